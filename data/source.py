"""The data source of a run: the protocol that the trainer reads.

A token store, `data.store.reader.Store`, is one implementation.

B rows of a batch   S sources of the mixture
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np

MANIFEST_FILE = "manifest.json"  # in the folder of a token store
SPLITS = ("train", "heldout")


class Encoding(Protocol):
    """The meaning of the numbers in a batch, such as a vocabulary for token ids.

    A checkpoint can be used with one encoding only.

    fingerprint  equal for two encodings in which all numbers have the same meaning
    artefacts    {name of a folder in a workdir: function that writes its files to a path}; the
                 files that are needed to encode inputs as the run did
    """

    @property
    def fingerprint(self) -> str: ...
    @property
    def artefacts(self) -> Mapping[str, Callable[[str], Any]]: ...


class SourceShare(Protocol):
    """One source of a mixture. rate: its share of the rows."""

    @property
    def name(self) -> str: ...
    @property
    def rate(self) -> float: ...


@dataclasses.dataclass(frozen=True)
class RowSet:
    """The rows of one split of a source, for one objective.

    table       has `count`, the number of rows, and `offsets`, int64 [S + 1], the number of the
                first row of each source of the mixture, and the end
    build       (row_B, key_B) -> {key: array}, the batch of those rows; the keys decide all draws
    sources     the sources of the mixture, in the order of the offsets
    order       "shuffled" in every epoch; or "lanes": row i of a batch continues row i of the batch
                before. This needs `table.whole_S`, int64 [S], the number of consecutive rows of
                each source without overlap
    split       the texts of the rows, for code that inspects or scores them
    vocabulary  the vocabulary of the token ids, if the rows hold any
    drop_repeats  (batch, row_B, key_B) -> None: set the weights of targets that another row has,
                too, to 0. Evaluation calls it. None: no two rows share a target
    build_plain  (row_B, key_B) -> the batch as an evaluation reads it, without what training
                changes at random; None: as `build`
    restore     (batch, row_B, key_B) -> the batch with the token ids of `split`, where the source
                changes them at random. Inspection calls it. None: the source does not
    """

    table: Any
    build: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]
    sources: Sequence[SourceShare]
    order: str = "shuffled"
    split: Any = None
    vocabulary: Any = None
    drop_repeats: Callable[[dict[str, np.ndarray], np.ndarray, np.ndarray], None] | None = None
    restore: Callable[[dict[str, np.ndarray], np.ndarray, np.ndarray], Any] | None = None
    build_plain: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]] | None = None


class Source(Protocol):
    """Rows of the splits "train" and "heldout", and the meaning of their numbers.

    path         where the source is, as messages name it
    fingerprint  hash of everything that rows are made of: different data, different fingerprint
    encoding     see `Encoding`
    """

    @property
    def path(self) -> Any: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def encoding(self) -> Encoding: ...

    def open_rows(self, split: str, objective: Any) -> RowSet:
        """Return the rows of a split.

        Raises:
          ValueError: the objective cannot learn from this source.
        """
        ...

    def verify_or_salvage(self, on_corrupt: Literal["refuse", "skip"]) -> Source:
        """Return this source after a check that its bytes are those that were written.

        With "skip", return what remains of a damaged source without the damaged documents.

        Raises:
          ValueError: the source is damaged; the message names the damage.
        """
        ...


def describe_omissions(store: Any) -> str:
    """Return a description of a store's skipped documents, equal for equal documents.

    Args:
      store: a store, or another source, which has no skipped documents.
    """
    left_out = getattr(store, "skipped_documents", {})
    counts = [
        f"{len(documents):,} of {split}" for split, documents in left_out.items() if len(documents)
    ]
    if not counts:
        return "no documents"
    digest = hashlib.sha256(
        b"".join(left_out[split].tobytes() + b"|" for split in SPLITS)
    ).hexdigest()[:8]
    return f"{' and '.join(counts)} documents ({digest})"
