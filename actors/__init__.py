"""The actor core, and on it model contexts, device groups and the policy protocol."""
