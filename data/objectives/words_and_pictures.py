"""Masked words and visual tokens, and whether a picture belongs to its caption.

This is the idea of VideoBERT (Sun et al. 2019), with pictures instead of videos, and no
reproduction of it. There, some rows have words or visual tokens alone and learn by masks, and rows
of both learn the alignment alone (section 3.3). Here all rows have both parts.

B rows   L row length   P masked positions of a row
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import MASKED, PAIR, TOKENS, Field
from data.images.captioned_rows import BOTH, WORDS, CaptionedRows
from data.objectives.masking import Masker
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_masked_pair
from data.rows.sentence_pairs import lay_out_pairs
from data.rows.tables import Batch, TokenReader
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class WordsAndPictures(Objective):
    """Rows `[CLS] words [SEP] visual tokens [SEP]`, from a store that `prepare-captions` writes.

    A row has masks in both parts, as BERT's, and predicts whether the picture is another's. Or it
    has masks in one part alone, up to all of it, as Ghazvininejad et al. (2019, section 3), and
    does not predict the alignment.
    """

    name: ClassVar[str] = "words_and_pictures"
    text_documents: ClassVar[str] = ""
    reads_captions: ClassVar[bool] = True
    description: ClassVar[str] = (
        "masked words and visual tokens, and whether the picture belongs to the caption; "
        "{one_sided:.0%} of the rows have masks in one part alone; rows of {length}"
    )
    checks: ClassVar[str] = "captioned:check_captioned_rows"
    rendering: ClassVar[str] = "masked_objectives:render_masked_picture"
    gaps: ClassVar[str] = "masks"
    trains_as: ClassVar[str] = "sentence_pair"
    whole_words: ClassVar[bool] = False
    dupe_factor: ClassVar[int] = 0

    length: int = 48  # L: tokens of a row, special tokens included
    max_predictions: int = 36  # P: most masked positions in a row
    mask_rate: float = 0.15  # share of a row's tokens that are predicted, with masks in both parts
    random_picture: float = 0.5  # share of those rows with another's picture
    one_sided: float = 0.5  # share of rows with masks in words or picture alone

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "P": the number of masked positions}."""
        return {"L": self.length, "P": self.max_predictions}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        own = {
            "next_sentence_labels": Field("int32", "B"),  # 0: the caption's picture; 1: another's
            "next_sentence_weights": Field("float32", "B"),  # 0.0 for masks in one part alone
        }
        return TOKENS | MASKED | PAIR | own

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_masked_pair(self, vocabulary, shares=("random_picture", "one_sided"))

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[CaptionedRows, BuildBatch]:
        """Return the table of rows and the function that builds batches.

        The keys draw the pictures and the masks.
        """
        read, masker = TokenReader(split.tokens, vocabulary.size), Masker(self, vocabulary)
        table = CaptionedRows(split)
        if table.longest + 3 > self.length:
            raise ValueError(
                f"{self.name}: length={self.length}; the longest caption and a picture need "
                f"{table.longest + 3} tokens: set data.objective.length to it or more"
            )

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            drawn = table.draw_pairs(row_B, key_B, self.random_picture, self.one_sided)
            rows = lay_out_pairs(read, vocabulary, self.length, drawn.words, drawn.picture)
            is_both_B = drawn.part_B == BOTH
            in_words_BL = rows["token_type_ids"] == 0
            masked_BL = is_both_B[:, None] | (in_words_BL == (drawn.part_B == WORDS)[:, None])
            masked = masker(
                rows["token_ids"],
                rows["attention_mask"] & masked_BL,
                key_B,
                np.where(is_both_B, self.mask_rate, drawn.rate_B),
            )
            return {
                **rows,
                **masked,
                "next_sentence_labels": drawn.other_B.astype(np.int32),
                "next_sentence_weights": is_both_B.astype(np.float32),
            }

        return table, build_batch
