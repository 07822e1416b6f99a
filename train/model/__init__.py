"""The model in training: loading, attention, layers and the loss."""
