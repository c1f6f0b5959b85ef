"""Text sources: files, buckets, TFDS, the built-in corpus; sentence splitting."""
