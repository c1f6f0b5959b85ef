"""Attention over whole rows of up to 2,048 positions in a Pallas kernel for TPUs.

The kernel drops weights, adds a bias, scores relative positions and takes rows of any length.
Splash does none of it.
"""
