"""The messages of c7x_compute: one module a wire version, one type a message."""
