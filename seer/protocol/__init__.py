"""The layout of a conversation, the select call, its grammar, and the encoder."""
