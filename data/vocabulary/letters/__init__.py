"""Vocabularies of letters: proteins, DNA and molecules."""
