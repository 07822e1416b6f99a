"""The engine for transformers, in this process."""
