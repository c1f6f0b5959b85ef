"""Parts of models for long rows: attention in chunks, hashing, reversible layers."""
