"""The trainer: reads trajectories and writes a checkpoint that `seer.models.checkpoint.load`, transformers and vLLM load."""
