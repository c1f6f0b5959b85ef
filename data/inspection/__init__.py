"""Decode a real batch and check it."""
