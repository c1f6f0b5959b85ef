"""Where text comes from: files, TFDS, buckets, the built-in corpus; sentences."""
