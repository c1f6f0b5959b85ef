"""What a prepared store has: hashes of its files, and its texts."""

import hashlib
import itertools
import pathlib

from data.store.reader import Store


def hash_files(folder: pathlib.Path) -> dict[str, str]:
    """Return {file: hash of its contents} for all files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def texts_of(store: Store, name: str) -> list[str]:
    """Return the decoded documents of a split."""
    split = store.open_split(name)
    bounds = split.document_starts.tolist()
    return [store.vocabulary.decode(split.tokens[a:b]) for a, b in itertools.pairwise(bounds)]
