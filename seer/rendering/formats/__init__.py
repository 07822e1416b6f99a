"""File formats that documents are read from, and their detection."""
