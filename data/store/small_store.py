"""A small store written in one go, from ids that are in memory."""

import os
import pathlib

import numpy as np

from data.store.atomic import open_scratch_folder
from data.store.reader import Store
from data.store.writer import StoreWriter
from data.vocabulary.load import Vocabulary


def write_store(path, vocabulary: Vocabulary, documents, *, heldout=(), rates=None) -> Store:
    """Write a small store in one go, from ids, and open it.

    documents: a list of documents, a document being a list of sentences, a sentence a list of ids; or a dictionary
    from source names to such lists. heldout: the same for the held-out part. rates: {source: rate}; default: its
    share of the training tokens.
    """
    train = documents if isinstance(documents, dict) else {"documents": documents}
    held = heldout if isinstance(heldout, dict) else {next(iter(train)): heldout}
    folder = pathlib.Path(path)
    if folder.exists():
        raise FileExistsError(f"{folder} exists already")
    with open_scratch_folder(folder, exclusive=False) as scratch:
        with StoreWriter(scratch / "store", vocabulary) as writer:
            for name in train:
                writer.begin_source(name)
                for split, part in (("train", train), ("heldout", held)):
                    writer.add(split, *_flatten(part.get(name, ()), vocabulary.size))
            sizes = [source["train"]["tokens"] for source in writer.sources]
            weights = [rates[name] if rates else hi - lo for name, (lo, hi) in zip(train, sizes)]
            writer.finish([weight / (sum(weights) or 1) for weight in weights])
        os.rename(scratch / "store", folder)
    return Store.open(folder)


def _flatten(documents, size: int):
    """ids, tokens per document and tokens per sentence of nested lists."""
    sentences = [sentence for document in documents for sentence in document]
    ids = np.array([i for sentence in sentences for i in sentence], np.int64)
    if len(ids) and not (0 <= ids.min() and ids.max() < size):
        raise ValueError(f"ids from {ids.min()} to {ids.max()}, but the vocabulary has {size}")
    lengths = [np.array([sum(map(len, document)) for document in documents], np.int64)]
    lengths.append(np.array([len(sentence) for sentence in sentences], np.int64))
    if any(0 in length for length in lengths):
        raise ValueError("a document and a sentence hold at least one id")
    return ids, *lengths
