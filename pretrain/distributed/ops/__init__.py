"""The operations of `models.layers.ops` as this program's platforms compute them: less memory, fewer copies, cheaper random bits."""
