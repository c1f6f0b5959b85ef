"""The token store: tokenized documents on disk, read, written and salvaged."""
