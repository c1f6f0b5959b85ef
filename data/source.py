"""What a run learns from: the protocol that the trainer reads. A token store, `data.store.reader.Store`, is one such source.

B rows of a batch   S parts of the mixture
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np


class Encoding(Protocol):
    """What the numbers of a batch mean, as a vocabulary says it of token ids. A checkpoint is of use with one encoding only.

    fingerprint  the same where the numbers mean the same
    artefacts    {name of a folder in a workdir: function that fills the folder of that path}: what is needed to encode as the run did
    """

    @property
    def fingerprint(self) -> str: ...
    @property
    def artefacts(self) -> Mapping[str, Callable[[str], Any]]: ...


class Part(Protocol):
    """One part of a mixture. rate: its share of the rows."""

    @property
    def name(self) -> str: ...
    @property
    def rate(self) -> float: ...


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of one split of a source, as an objective has them.

    table       `count`, the number of rows, and `offsets`, int64 [S + 1], at which the rows of each part of the mixture begin
    build       (row_B, key_B) -> {key: array}, the batch of those rows, drawn as the keys say
    parts       of the mixture, in the order of the offsets
    order       "shuffled", anew in each epoch; or "lanes": row i of a batch goes on where row i of the batch before ended, which
                takes `table.whole_S`, int64 [S], the number of rows of each part that follow one another without overlap
    split       what the rows are made of, for whoever inspects or scores them
    vocabulary  what token ids stand for, where the rows hold any
    """

    table: Any
    build: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]
    parts: Sequence[Part]
    order: str = "shuffled"
    split: Any = None
    vocabulary: Any = None


class Source(Protocol):
    """Rows of the splits "train" and "heldout", and what their numbers mean.

    path         where it lies, as messages name it
    fingerprint  of all that rows are made of: where it differs, batches do
    encoding     see `Encoding`
    """

    @property
    def path(self) -> Any: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def encoding(self) -> Encoding: ...

    def rows(self, split: str, objective) -> Rows:
        """Return the rows of a split. Raises ValueError where the objective cannot learn from this source."""
        ...

    def verified(self, on_corrupt: Literal["refuse", "skip"]) -> Source:
        """Return this source once its bytes are known to be what was written, or, for "skip", what is left of it.

        Raises ValueError, which names what is damaged.
        """
        ...
