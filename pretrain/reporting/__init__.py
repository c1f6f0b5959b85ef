"""Curves and pages of a run."""
