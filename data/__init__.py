"""What the machine reads: text to a token store, and the store to batches. Never imports JAX."""
