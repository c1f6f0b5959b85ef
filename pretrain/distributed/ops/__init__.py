"""The operations of `models.layers.ops` with less memory, fewer copies and cheaper random bits."""
