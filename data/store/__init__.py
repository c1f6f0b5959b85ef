"""Token stores: write, read and salvage tokenized documents on disk."""
