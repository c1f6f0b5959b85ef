"""Questions in a token store, read: the files that data/examples/qa_store.py describes and writes.

Q questions   T tokens
"""

import json
from typing import NamedTuple

import numpy as np

OFFSETS = np.dtype("<i8")
CHARACTERS = np.dtype("<i4")


class Questions(NamedTuple):
    """Questions as tokens; sentences: tokens of each context and each question, and documents: sentences of each, as they lie in `tokens`."""

    tokens: np.ndarray
    spans_Q6: np.ndarray
    begins_T: np.ndarray
    ends_T: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


def opened(split) -> Questions:
    """The questions of a part of a store, memory-mapped where they are large. Raises ValueError where it has none."""
    if split.folder is None or not (split.folder / "spans.bin").exists():
        raise ValueError(
            "its documents are no contexts with questions; `finetune --task squad` makes a store of them"
        )
    spans_Q6 = np.fromfile(split.folder / "spans.bin", OFFSETS).reshape(-1, 6)
    begins_T, ends_T = (
        np.memmap(split.folder / f"{name}.bin", CHARACTERS, mode="r") for name in ("begins", "ends")
    )
    return Questions(
        split.tokens,
        spans_Q6,
        begins_T,
        ends_T,
        np.diff(split.sentence_starts),
        np.diff(split.document_starts),
    )


def opened_texts(split) -> tuple[list[str], list[list[str]]]:
    """(the context of each question, the texts of its answers) of a part of a store, as they were written."""
    found = json.loads((split.folder / "texts.json").read_bytes())
    return [found["contexts"][number] for _, number, _ in found["questions"]], [
        answers for *_, answers in found["questions"]
    ]
