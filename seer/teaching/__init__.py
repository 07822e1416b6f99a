"""Stronger models as teachers: an engine behind a ledger and a budget, and the judge of page relevance."""
