"""Weights that Flax wrote: msgpack files, and checkpoints of zarr arrays."""
