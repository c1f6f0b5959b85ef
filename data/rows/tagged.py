"""Rows of tagged sentences: `[CLS] words [SEP]`, cut behind the last piece that has room. A tag stands at the first piece of its word.

B rows   L row length   D sentences   S words of all   T tokens of all
"""

import numpy as np

from data.rows.tables import TokenReader, source_edges

NOT = -1  # where no tag stands


class TaggedRows:
    """The sentences of a split; `cut` of them do not fit into `length` tokens, by which the tags of `missed` words stand in no row.

    word_D: the number of each sentence's first word among all, and the end, int64 [D + 1].
    """

    def __init__(self, split, length):
        if split.tags is None:
            raise ValueError(
                "its words have no tags; `finetune --task tagging` makes a store of tagged sentences"
            )
        document_starts, word_starts = (
            np.asarray(split.document_starts),
            np.asarray(split.sentence_starts),
        )
        self.count, self.start_D = len(document_starts) - 1, document_starts[:-1]
        whole_D = np.diff(document_starts)
        self.length_D = np.minimum(whole_D, length - 2)
        self.cut = int((whole_D > length - 2).sum())
        self.word_D = np.searchsorted(word_starts, document_starts)
        read_D = np.searchsorted(word_starts, self.start_D + self.length_D) - self.word_D[:-1]
        self.missed = int(self.word_D[-1] - read_D.sum())
        self.tag_T = np.full(int(document_starts[-1]), NOT, np.int32)
        self.tag_T[word_starts[:-1]] = split.tags
        self.offsets = source_edges(split)


def tagged_rows(objective, split, vocabulary):
    """(table, rows), where rows(row_B) gives {"token_ids", "attention_mask", "labels", "word_weights"} [B, L]; word_weights: 1 at a word's first piece, else 0."""
    table, read = TaggedRows(split, objective.length), TokenReader(split.tokens, vocabulary.size)
    column_L = np.arange(objective.length)

    def rows(row_B):
        start_B1, length_B1 = table.start_D[row_B, None], table.length_D[row_B, None]
        own_BL = (column_L > 0) & (column_L <= length_B1)
        valid_BL = column_L <= length_B1 + 1
        index_BL = np.where(own_BL, start_B1 + column_L - 1, start_B1)
        tokens_BL = np.where(own_BL, read(index_BL), vocabulary.sep)
        tokens_BL[:, 0] = vocabulary.cls
        tag_BL = np.where(own_BL, table.tag_T[index_BL], NOT)
        return {
            "token_ids": np.where(valid_BL, tokens_BL, vocabulary.pad).astype(np.int32),
            "attention_mask": valid_BL,
            "labels": np.maximum(tag_BL, 0).astype(np.int32),
            "word_weights": (tag_BL != NOT).astype(np.float32),
        }

    return table, rows
