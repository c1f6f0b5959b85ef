"""One part of a token store, as it is read: ids and where documents and sentences begin in them."""

import dataclasses
import pathlib

import numpy as np


@dataclasses.dataclass(frozen=True)
class Source:
    """One source of a mixture. documents: its range (lo, hi) in a split. rate: its share of the rows; all sum to 1."""

    name: str
    documents: tuple[int, int]
    rate: float


@dataclasses.dataclass(frozen=True)
class Split:
    """One part of a store, train or held-out. All arrays are read-only and memory-mapped.

    tokens           uint16 or uint32 [T]
    document_starts  int64 [D + 1]
    sentence_starts  int64 [S + 1]
    sources          of the documents, in order; contiguous
    labels           float32 [D]: the number of a class or a score; None in a store without labels
    tags             float32 [S]: the number of a word's tag; None in a store without tags
    folder           where its files lie, and others beside them: data/examples/qa_store.py, data/examples/text2text.py
    hold             what keeps these files from being removed while they are read: data/store/generations.py
    """

    tokens: np.ndarray
    document_starts: np.ndarray
    sentence_starts: np.ndarray
    sources: tuple[Source, ...]
    labels: np.ndarray | None = None
    tags: np.ndarray | None = None
    folder: pathlib.Path | None = None
    hold: object = None
