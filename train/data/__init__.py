"""Training data: sets, admission, sampling, packing and batches."""
