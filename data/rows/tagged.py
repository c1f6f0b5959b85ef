"""Rows of tagged sentences: `[CLS] words [SEP]`, cut after the last token that fits.

A tag is at the first token of its word.

B rows   L row length   D sentences   S words of all sentences   T tokens of all sentences
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from data.rows.frames import frame_rows
from data.rows.tables import Batch, TokenReader, find_source_edges, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary

NO_TAG = -1  # no tag at this token


class TaggedRows:
    """The sentences of a split.

    start_D, length_D: first token of each sentence, and the number of tokens that are read.
    word_D: int64 [D + 1], number of each sentence's first word among all words, and the end.
    tag_T: int32 [T], number of the tag at a word's first token, else NO_TAG.
    num_truncated: number of sentences that do not fit into a row.
    num_missed_words: number of words that are in no row for that reason.
    """

    def __init__(self, split: Split, length: int) -> None:
        if split.tags is None:
            raise ValueError(
                "its words have no tags; `finetune --task tagging` makes a store of tagged "
                "sentences"
            )
        document_starts = np.asarray(split.document_starts)
        word_starts = np.asarray(split.sentence_starts)
        self.count, self.start_D = len(document_starts) - 1, document_starts[:-1]
        whole_D = np.diff(document_starts)
        self.length_D = np.minimum(whole_D, length - 2)
        self.num_truncated = int((whole_D > length - 2).sum())
        self.word_D = np.searchsorted(word_starts, document_starts)
        read_D = np.searchsorted(word_starts, self.start_D + self.length_D) - self.word_D[:-1]
        self.num_missed_words = int(self.word_D[-1] - read_D.sum())
        self.tag_T = np.full(int(document_starts[-1]), NO_TAG, np.int32)
        self.tag_T[word_starts[:-1]] = split.tags
        self.offsets = find_source_edges(split)


def make_tagged_rows(
    objective: Any, split: Split, vocabulary: Vocabulary
) -> tuple[TaggedRows, Callable[[np.ndarray], Batch]]:
    """Return the table of sentences and a function that lays out the rows row_B of it.

    The function returns {"token_ids", "attention_mask", "labels", "word_weights"} [B, L]; word
    weights are 1 at a word's first token, else 0. With the [CLS] last there are "token_type_ids".
    """
    table, read = TaggedRows(split, objective.length), TokenReader(split.tokens, vocabulary.size)
    column_L = np.arange(objective.length)
    cls, sep, pad = map(require_id, (vocabulary.cls, vocabulary.sep, vocabulary.pad))

    def build_rows(row_B: np.ndarray) -> Batch:
        start_B1, length_B1 = table.start_D[row_B, None], table.length_D[row_B, None]
        text_BL = (column_L > 0) & (column_L <= length_B1)
        mask_BL = column_L <= length_B1 + 1
        index_BL = np.where(text_BL, start_B1 + column_L - 1, start_B1)
        tokens_BL = np.where(text_BL, read(index_BL), sep)
        tokens_BL[:, 0] = cls
        tag_BL = np.where(text_BL, table.tag_T[index_BL], NO_TAG)
        rows = {
            "token_ids": np.where(mask_BL, tokens_BL, pad).astype(np.int32),
            "attention_mask": mask_BL,
            "labels": np.maximum(tag_BL, 0).astype(np.int32),
            "word_weights": (tag_BL != NO_TAG).astype(np.float32),
        }
        if objective.cls_position == "last":  # The [CLS] has a token type of its own.
            rows["token_type_ids"] = np.zeros(mask_BL.shape, np.int32)
        return frame_rows(objective, rows)

    return table, build_rows
