"""Layers that several papers share: attention, feed-forward networks, norms, wiring and stacks.

Each takes the modules inside it as constructors.
"""
