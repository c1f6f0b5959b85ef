"""Tables of rows: which tokens of a token store form each row of a batch."""
