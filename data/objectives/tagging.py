"""Tagging: predict a label for each word of a text, at the word's first token.

Devlin et al. (2018), section 5.3. A row is `[CLS] words [SEP]`, cut after the last token that fits.

B rows   C tags   L row length   D sentences   S words of all sentences   T tokens of all sentences
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from data.batch_spec import PAIR, TOKENS, Field, add_characters, spell_fields
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.objectives.weighting import check_weights, get_class_weights
from data.rows.frames import frame_rows
from data.rows.tables import Batch, TokenReader, find_source_edges, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary
from data.vocabulary.spelling import spell_batches

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
