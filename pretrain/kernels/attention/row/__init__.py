"""Attention over whole rows in a Pallas kernel for TPUs.

The kernel drops weights, adds a bias, scores relative positions and takes lengths that are no
multiple of 128. Splash does none of it. Rows of more than 2,048 positions are computed in squares.
"""
