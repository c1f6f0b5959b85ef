"""Write a small token store from ids in memory."""

import os
import pathlib
from collections.abc import Sequence

import numpy as np

from data.store.atomic import open_scratch_folder
from data.store.reader import Store
from data.store.writer import StoreWriter
from data.vocabulary.load import Vocabulary

# Documents are lists of sentences, which are lists of ids.
Documents = Sequence[Sequence[Sequence[int]]]


def write_store(
    path: str | os.PathLike[str],
    vocabulary: Vocabulary,
    documents: Documents | dict[str, Documents],
    *,
    heldout: Documents | dict[str, Documents] = (),
    rates: dict[str, float] | None = None,
) -> Store:
    """Write a token store and open it.

    Args:
      path: folder of the store, which must not exist.
      documents: the training documents, or {name of a source: its training documents}.
      rates: {name of a source: mixture rate}; default: its share of the training tokens.

    Raises:
      FileExistsError: if `path` exists.
      ValueError: if an id is not in the vocabulary, or a document or sentence is empty.
    """
    train = documents if isinstance(documents, dict) else {"documents": documents}
    held_out = heldout if isinstance(heldout, dict) else {next(iter(train)): heldout}
    folder = pathlib.Path(path)
    if folder.exists():
        raise FileExistsError(f"{folder} exists already")
    with open_scratch_folder(folder, exclusive=False) as scratch:
        with StoreWriter(scratch / "store", vocabulary) as writer:
            for name in train:
                writer.begin_source(name)
                for split, documents_by_source in (("train", train), ("heldout", held_out)):
                    arrays = _flatten_documents(documents_by_source.get(name, ()), vocabulary.size)
                    writer.add_documents(split, *arrays)
            sizes = [source["train"]["tokens"] for source in writer.sources]
            weights = [
                rates[name] if rates else stop - start for name, (start, stop) in zip(train, sizes)
            ]
            writer.finish([weight / (sum(weights) or 1) for weight in weights])
        os.rename(scratch / "store", folder)
    return Store.open(folder)


def _flatten_documents(
    documents: Documents, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids, the tokens of each document and the tokens of each sentence, all int64."""
    sentences = [sentence for document in documents for sentence in document]
    ids = np.array([i for sentence in sentences for i in sentence], np.int64)
    if len(ids) and not (0 <= ids.min() and ids.max() < size):
        raise ValueError(f"ids from {ids.min()} to {ids.max()}, but the vocabulary has {size}")
    document_lengths = np.array([sum(map(len, document)) for document in documents], np.int64)
    sentence_lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    if 0 in document_lengths or 0 in sentence_lengths:
        raise ValueError("a document or sentence is empty; each needs at least one id")
    return ids, document_lengths, sentence_lengths
