"""Corpus to token store, by local processes or Apache Beam."""
