"""Turn a corpus into a token store, with local processes or Apache Beam."""
