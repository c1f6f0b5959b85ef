"""Attention in chunks of sorted keys in a Pallas kernel for TPUs, for the Reformer.

XLA writes the scores of all chunks to HBM, several times in each pass. The kernel drops weights.
"""
