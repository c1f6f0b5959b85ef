"""SentencePiece, WordPiece, byte-level BPE: text to token ids and back."""
