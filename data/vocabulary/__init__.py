"""Vocabularies (SentencePiece, WordPiece, BPE): encode text to token ids, decode ids to text."""
