"""Who gets a device group next: the policies."""
