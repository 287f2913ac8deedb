"""The demonstration's parts."""
