"""Leases: one writer of a workdir at a time."""
