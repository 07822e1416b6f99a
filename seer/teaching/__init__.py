"""Asking stronger models: teachers behind one ledger, and the judge of page relevance."""
