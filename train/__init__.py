"""Training: trajectories in, a checkpoint out that `seer.models.checkpoint.load`, transformers and vLLM load."""
