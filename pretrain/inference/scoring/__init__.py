"""Scores of texts: how probable a model finds them."""
