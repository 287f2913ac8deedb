"""What a model is: artifact formats, tensor specs, number formats, and the root of errors."""
