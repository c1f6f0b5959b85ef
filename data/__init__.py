"""Prepare text as a token store, and build batches from the store. Never imports JAX."""
