"""Plans: what this runtime would do with a load, in virtual time."""
