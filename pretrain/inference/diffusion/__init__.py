"""Masks that are filled in several steps, and pictures of their order."""
