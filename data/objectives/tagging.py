"""Tagging: predict a label for each word of a text, at the word's first token.

Devlin et al. (2018), section 5.3.

B rows   C tags   L row length
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from data.batch_spec import PAIR, TOKENS, Field, add_characters, spell_fields
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.objectives.weighting import check_weights, get_class_weights
from data.rows.tables import Batch
from data.rows.tagged import TaggedRows, make_tagged_rows
from data.store.split import Split
from data.vocabulary.base import Vocabulary
from data.vocabulary.spelling import spell_batches


@dataclass(frozen=True)
class Tagging(Objective):
    """Rows of one sentence each, from a store that `finetune` writes."""

    name: ClassVar[str] = "tagging"
    text_documents: ClassVar[str] = ""
    reads_examples: ClassVar[bool] = True
    can_spell: ClassVar[bool] = True
    description: ClassVar[str] = "the tags of words, rows of {length}"
    rendering: ClassVar[str] = "fine_tuning_rows:render_tags"
    # L: tokens of a row, special tokens included; longer examples are truncated and counted
    length: int = 128
    cls_position: Literal["first", "last"] = "first"  # of [CLS] in a row; XLNet: last
    columns: tuple[str, ...] = ()  # JSON fields of the words and the tags; (): the default names
    class_weights: tuple[float, ...] = ()  # loss weight of each tag's words; (): equal
    characters: int = 0  # characters per word for character-based models; 0 feeds word ids

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length}, and {"C"} of characters."""
        return add_characters({"L": self.length}, self.characters)

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        fields = (PAIR if self.cls_position == "last" else TOKENS) | {
            # The index of a word's tag at the word's first token, 0 at the other tokens.
            "labels": Field("int32", "BL"),
            # The class weight of that tag at a word's first token, else 0.0.
            "label_weights": Field("float32", "BL"),
            "word_weights": Field("float32", "BL"),  # 1.0 at a word's first token, else 0.0
            "row_weights": Field("float32", "B"),  # 1.0; 0.0 for rows that only fill up a batch
        }
        return spell_fields(fields, self.characters)

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.length < 3:
            raise ValueError(
                f"tagging: length={self.length}; "
                "a row holds [CLS], a token and [SEP], so at least 3 tokens"
            )
        if len(self.columns) not in (0, 2):
            raise ValueError(
                f"tagging: columns={self.columns}; expected two names, of the field with the words "
                "and of the one with the tags"
            )
        check_special_tokens(self.name, vocabulary, "cls", "sep", "pad")
        check_weights(self)

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[TaggedRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; it draws nothing."""
        table, lay_out = make_tagged_rows(self, split, vocabulary)
        weight_C = get_class_weights(self, table.tag_T.max(initial=-1) + 1)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            batch = lay_out(row_B)
            weights_BL = batch["word_weights"] * weight_C[batch["labels"]]
            return {
                **batch,
                "label_weights": weights_BL,
                "row_weights": np.ones(len(row_B), np.float32),
            }

        return table, spell_batches(build_batch, vocabulary, self.characters)
