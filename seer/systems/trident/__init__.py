"""Trident: semantic records and one adaptive rerank call (R), then three lenses and a synthesis (S)."""
