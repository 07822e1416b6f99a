"""Page selection without the model: BM25, dense, hybrid, and controls."""
