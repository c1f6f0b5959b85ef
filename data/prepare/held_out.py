"""Decide by a hash which texts are held out, so that copies of a text are in the same part.

Vocabularies read some texts alike: after Unicode normalization, folded case, stripped accents. The
hash is of a form that is the same for all texts which any of them reads alike, so it does not
depend on the vocabulary, and models with different ones are evaluated on the same texts.
"""

import hashlib
import re
import unicodedata

HASHED = "folded text"  # what the hash is of, as a manifest records it; older ones have no entry
NON_ASCII = re.compile(r"[^\x00-\x7f]+")
# Blanks and control characters, and quotes, which ALBERT's vocabulary writes as one.
DELETED = bytes(range(0x21)) + b"\x7f'\"`"
LOWER = bytes(range(256)).lower()
# U+2581 is SentencePiece's sign for a blank, and U+FFFD stands for bytes that are no text. The
# iota below a Greek letter is an accent that one vocabulary strips and another writes as a letter.
DROPPED = "\u2581\ufffd\u03b9"


def hash_text(raw: bytes) -> int:
    """Return a hash of 64 bits of the bytes of a text, the same on any machine."""
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")


def hash_document(raw: bytes) -> int:
    """Return the hash of a text in UTF-8 that decides whether it is held out."""
    return hash_text(fold_text(raw) or raw)


def fold_text(raw: bytes) -> bytes:
    """Return a text in UTF-8 without case, accents, blanks, quotes and control characters.

    Compatibility characters are replaced by the plain ones (NFKD).
    """
    if not raw.isascii():
        text = raw.decode(errors="surrogatepass")
        raw = NON_ASCII.sub(lambda run: run[0].translate(_FOLDED), text).encode(
            errors="surrogatepass"
        )
    return raw.translate(LOWER, DELETED)


class _FoldedCharacters(dict):
    """{code point: its folded form}, which is computed where a text has the character."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold_character(chr(code))
        return folded


_FOLDED = _FoldedCharacters()


def _fold_character(character: str) -> str:
    """Return a character without its case and accents; "" for one that does not count."""
    for _ in range(2):  # folding case can give accents
        character = unicodedata.normalize("NFKD", character).casefold()
    return "".join(
        part
        for part in unicodedata.normalize("NFKD", character)
        if part not in DROPPED and unicodedata.category(part)[0] not in "MCZ"
    )
