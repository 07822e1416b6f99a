"""lm-evaluation-harness with Seer as the model."""
