"""Attention by relative position, and the memory of the segments before."""
