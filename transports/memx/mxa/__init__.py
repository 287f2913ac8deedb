"""The vendor's Python module `mxa`, over the lowest interface."""
