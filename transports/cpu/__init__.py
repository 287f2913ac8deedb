"""The host itself as a device, by onnxruntime."""
