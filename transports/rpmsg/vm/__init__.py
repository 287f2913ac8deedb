"""The vendor's Python class, for scripts that were written for it: `from repertory import C7xVirtualMachine`."""
