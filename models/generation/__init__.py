"""Greedy, sampled and beam decoding."""
