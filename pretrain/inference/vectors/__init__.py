"""Vectors of texts: an embedder, the nearest neighbours, and hard negatives."""
