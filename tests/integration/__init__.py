"""The whole runtime over the simulated MX3, from `infer` down to the bytes of a frame."""
