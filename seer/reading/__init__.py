"""The loop of one conversation: look, select, retrieve, reason, answer, cite."""
