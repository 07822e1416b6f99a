"""The engine for OpenAI-compatible APIs: requests, replies, retries, and what each server supports."""
