"""The face: runtime, models, policies, configuration and the command line."""
