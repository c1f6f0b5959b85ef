"""One file a family: its record and its map of parameter names to those of Hugging Face transformers. No JAX."""
