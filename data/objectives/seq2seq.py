"""Sequence to sequence: read the source text of a pair, write its target text.

Sutskever et al. (2014); Vaswani et al. (2017), section 5.1.

B rows   L input length   T target length   N either of them
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import TOKEN_ID, Field
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.rows.tables import Batch, TokenReader, require_id
from data.rows.translation import ParallelRows
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class Seq2Seq(Objective):
    """Rows of as many pairs as fit into `length` and `target_length`.

    From a store of `prepare --document pair`. Each side ends with </s>, and no pair attends to
    another. Pairs with a longer side are skipped.
    """

    name: ClassVar[str] = "seq2seq"
    text_documents: ClassVar[str] = "pair"
    description: ClassVar[str] = (
        "the targets of pairs of texts (several in rows of {length} and {target_length})"
    )
    checks: ClassVar[str] = "causal:check_translations"
    rendering: ClassVar[str] = "rendering:render_unpadded_row"
    length: int = 256  # L: source tokens of a row, each source with its </s>
    target_length: int = 256  # T: target tokens of a row, each target with its </s>

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the input length, "T": the target length}."""
        return {"L": self.length, "T": self.target_length}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch; segment ids number a row's pairs from 1."""
        return {
            "encoder_token_ids": Field("int32", "BL", TOKEN_ID),
            "encoder_attention_mask": Field("bool", "BL"),
            "encoder_segment_ids": Field("int32", "BL"),
            "labels": Field("int32", "BT", TOKEN_ID),
            "decoder_segment_ids": Field("int32", "BT"),
            "label_weights": Field("float32", "BT"),
        }

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if min(self.length, self.target_length) < 2:
            raise ValueError(
                f"seq2seq: length={self.length}, target_length={self.target_length}; "
                "a row holds at least a token and its </s>, so 2 tokens"
            )
        check_special_tokens(self.name, vocabulary, "eos", "pad")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[ParallelRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; the keys are not used."""
        table = ParallelRows(split, self.length, self.target_length)
        read = TokenReader(split.tokens, vocabulary.size)
        eos, pad = require_id(vocabulary.eos), require_id(vocabulary.pad)

        def build_side(which: int, row_B: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
            """Return (ids, segment ids) of one side, 0 source or 1 target: [B, N = width]."""
            index_BN, ends_BN, segments_BN = table.locate_side(which, row_B, width)
            ids_BN = np.where(ends_BN, eos, read(index_BN))
            return np.where(segments_BN > 0, ids_BN, pad).astype(np.int32), segments_BN

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            input_BL, input_segments_BL = build_side(0, row_B, self.length)
            label_BT, label_segments_BT = build_side(1, row_B, self.target_length)
            return {
                "encoder_token_ids": input_BL,
                "encoder_attention_mask": input_segments_BL > 0,
                "encoder_segment_ids": input_segments_BL,
                "labels": label_BT,
                "decoder_segment_ids": label_segments_BT,
                "label_weights": (label_segments_BT > 0).astype(np.float32),
            }

        return table, build_batch
