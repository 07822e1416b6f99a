"""Estimates of the memory and compute of a run."""
