"""Read the questions of a token store, whose files data/examples/qa_store.py describes and writes.

Axes: Q questions, T tokens.
"""

import json
from typing import NamedTuple

import numpy as np

from data.store.mapped import map_numbers
from data.store.split import Split

SPAN_DTYPE = np.dtype("<i8")
CHARACTER_DTYPE = np.dtype("<i4")


class Questions(NamedTuple):
    """Contexts and questions as tokens.

    Attributes:
      tokens: uint16 or uint32 [T], the ids of the contexts and questions.
      spans_Q6: int64 [Q, 6], see data/examples/qa_store.py.
      begins_T: int32 [T], first character of each token in its text.
      ends_T: int32 [T], character after the last one of each token.
      sentences: int64, number of tokens of each context and each question, in order.
      documents: int64, number of sentences of each document, in order.
    """

    tokens: np.ndarray
    spans_Q6: np.ndarray
    begins_T: np.ndarray
    ends_T: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


def open_questions(split: Split) -> Questions:
    """Open the questions of a split; large arrays are memory-mapped.

    Raises ValueError if the store has no questions.
    """
    if split.folder is None or not (split.folder / "spans.bin").exists():
        raise ValueError(
            "its documents are not contexts with questions; "
            "`finetune --task squad` makes a store of them"
        )
    spans_Q6 = np.fromfile(split.folder / "spans.bin", SPAN_DTYPE).reshape(-1, 6)
    begins_T, ends_T = (
        map_numbers(split.folder / f"{name}.bin", CHARACTER_DTYPE) for name in ("begins", "ends")
    )
    return Questions(
        split.tokens,
        spans_Q6,
        begins_T,
        ends_T,
        np.diff(split.sentence_starts),
        np.diff(split.document_starts),
    )


def read_question_texts(split: Split) -> tuple[list[str], list[list[str]]]:
    """Return the context of each question and the texts of its answers, as they were written."""
    assert split.folder is not None, "a split with questions has a folder"
    texts = json.loads((split.folder / "texts.json").read_bytes())
    contexts = [texts["contexts"][number] for _, number, _ in texts["questions"]]
    return contexts, [answers for *_, answers in texts["questions"]]
