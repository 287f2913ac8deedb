"""How a frame reaches a device: the contract, the worlds that drivers run in, and a folder a family."""
