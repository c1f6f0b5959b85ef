"""Cleaning of a corpus: filters, copies, near copies, and texts of a test set."""
