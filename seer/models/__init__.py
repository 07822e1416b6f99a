"""Checkpoints: load, save and check them; small models; token counting."""
