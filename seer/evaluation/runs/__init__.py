"""Runs: systems over benchmark inputs, written to a folder of predictions, and the scores of such a folder."""
