"""Checks that a run, its model, its data and its hosts fit each other."""
