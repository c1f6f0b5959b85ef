"""The arrays of one split of a token store.

Axes: D documents, S sentences, T tokens.
"""

import dataclasses
import pathlib

import numpy as np


@dataclasses.dataclass(frozen=True)
class MixtureSource:
    """One source of the mixture of a split.

    Attributes:
      name: SOURCE of the command line.
      documents: range [start, stop) of its documents in the split.
      rate: its share of the rows; the shares of all sources sum to 1.
    """

    name: str
    documents: tuple[int, int]
    rate: float


@dataclasses.dataclass(frozen=True)
class Split:
    """The train or held-out split of a store. The arrays are read-only and memory-mapped.

    Attributes:
      tokens: uint16 or uint32 [T], the ids.
      document_starts: int64 [D + 1], offsets of the documents into the tokens; the last is T.
      sentence_starts: int64 [S + 1], offsets of the sentences into the tokens; the last is T.
      labels: float32 [D], the number of a class or a score; None in a store without labels.
      tags: float32 [S], the number of a word's tag; None in a store without tags.
      folder: folder of the split's files; data/examples/qa_store.py and text2text.py add others.
      mapped_folder: folder of the files that the arrays map (data/store/mapped.py).
      generation_lock: lock that prevents the removal of the files (data/store/generations.py).
    """

    tokens: np.ndarray
    document_starts: np.ndarray
    sentence_starts: np.ndarray
    sources: tuple[MixtureSource, ...]
    labels: np.ndarray | None = None
    tags: np.ndarray | None = None
    folder: pathlib.Path | None = None
    mapped_folder: pathlib.Path | None = None
    generation_lock: object = None
