"""Attention over whole rows of up to 1,024 positions in a Pallas kernel for TPUs.

The kernel drops weights, adds a bias and takes rows of any length. Splash does none of these.
"""
