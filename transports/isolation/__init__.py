"""A device in a process of its own, which may hang or crash without taking this one with it."""
