"""A simulated NPU, below the library and below the nodes."""
