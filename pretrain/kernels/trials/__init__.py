"""Comparisons of hand-made operations with their plain equations, on the devices of a run."""
