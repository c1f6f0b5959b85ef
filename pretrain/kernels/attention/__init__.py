"""Attention on a device: the kernels, and the choice among them."""
