"""Benchmarks: their tasks and prompts, and readers for their records."""
