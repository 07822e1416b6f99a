"""Metrics: pure functions from a prediction and its gold answer to a number in [0, 1]."""
