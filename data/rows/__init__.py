"""Which tokens form a row: windows, packing, pairs, mixtures, permutation, hashing."""
