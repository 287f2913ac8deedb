"""A simulated libmemx: the lowest interface of the MX3 family without a card."""
