"""The demonstration: three networks of a face detector that share one small device."""
