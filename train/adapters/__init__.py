"""Adapters to other trainers: accelerate and verl."""
