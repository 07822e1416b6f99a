"""Question sets as sources: readers, adapters to one record form, and their registry."""
