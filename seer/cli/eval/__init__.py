"""The commands of `seer eval`, one module each."""
