"""The commands of `repertory`, one module each."""
