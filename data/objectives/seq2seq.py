"""Sequence to sequence: read the source of a pair, write its target (Sutskever et al. 2014; Vaswani et al. 2017, section 5.1).

B rows   L inputs   T targets
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import TOKEN_ID, Field
from data.inspection.causal import translations
from data.inspection.rendering import part_row
from data.objectives.base import Objective
from data.objectives.masking import needs
from data.rows.tables import TokenReader
from data.rows.translation import ParallelRows


@dataclass(frozen=True)
class Seq2Seq(Objective):
    """Rows of as many pairs as fit into `length` and `target_length`, each side ended by </s>; no pair sees another.

    A pair with a side that is longer is left out, in training and evaluation. The store is one of `prepare --document pair`.
    """

    name: ClassVar[str] = "seq2seq"
    description: ClassVar[str] = (
        "the targets of pairs of texts (several in rows of {length} and {target_length})"
    )
    length: int = 256  # L: tokens of sources in a row, each with its </s>
    target_length: int = 256  # T: of targets

    def dims(self):
        return {"L": self.length, "T": self.target_length}

    def spec(self):
        return {  # several pairs a row: segments count them from 1; 0 on padding
            "encoder_token_ids": Field("int32", "BL", TOKEN_ID),
            "encoder_attention_mask": Field("bool", "BL"),
            "encoder_segment_ids": Field("int32", "BL"),
            "labels": Field("int32", "BT", TOKEN_ID),
            "decoder_segment_ids": Field("int32", "BT"),
            "label_weights": Field("float32", "BT"),
        }

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        if min(self.length, self.target_length) < 2:
            raise ValueError(
                f"seq2seq: length={self.length}, target_length={self.target_length}; a token and its </s> are 2 at least"
            )
        needs(self.name, vocabulary, "eos", "pad")

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows; nothing is drawn."""
        table, read = (
            ParallelRows(split, self.length, self.target_length),
            TokenReader(split.tokens, vocabulary.size),
        )

        def side(which, row_B, width):
            """(ids, pair of each) [B, width]."""
            index_BN, ends_BN, segments_BN = table.side(which, row_B, width)
            ids_BN = np.where(ends_BN, vocabulary.eos, read(index_BN))
            return np.where(segments_BN > 0, ids_BN, vocabulary.pad).astype(np.int32), segments_BN

        def build(row_B, key_B):
            inputs_BL, inputs_segments_BL = side(0, row_B, self.length)
            targets_BT, targets_segments_BT = side(1, row_B, self.target_length)
            return {
                "encoder_token_ids": inputs_BL,
                "encoder_attention_mask": inputs_segments_BL > 0,
                "encoder_segment_ids": inputs_segments_BL,
                "labels": targets_BT,
                "decoder_segment_ids": targets_segments_BT,
                "label_weights": (targets_segments_BT > 0).astype(np.float32),
            }

        return table, build

    def measure(self, stream, seen, token_id):
        return translations(stream, seen, token_id)

    def render(self, stream, seen, i):
        return part_row(stream, seen, i)
