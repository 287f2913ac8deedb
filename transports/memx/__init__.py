"""MemryX MX3: libmemx, its simulator, and the device on top of either."""
