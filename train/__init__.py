"""Training: trajectories in, a checkpoint out that `seer.models.load`, transformers and vLLM load."""
