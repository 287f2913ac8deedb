"""Every trap of libmemx: what it does to whoever walks into it, and that the driver does not."""
