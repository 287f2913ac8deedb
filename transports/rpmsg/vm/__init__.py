"""The vendor's Python class, for its scripts: `from repertory import C7xVirtualMachine`."""
