"""Engines run a model: transformers, vLLM, an OpenAI-compatible API, or a script."""
