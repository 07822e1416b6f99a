"""Whole ways to answer questions over documents, behind one interface."""
