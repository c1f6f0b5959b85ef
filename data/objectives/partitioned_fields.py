"""Articles as fields: predict the next token, with the fields in an order that is drawn.

Zellers et al. (2019, "Defending Against Neural Fake News"), section 3.1: the fields of an article
are partitioned at random into two sets. Those of the first set come first, and each set is in the
canonical order. So the model learns to generate each field given any others.

B rows   L row length   N = L + 1 tokens read   F fields   K draws of a row
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import TOKEN_ID, Field
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.rows import hashing
from data.rows.article_rows import ArticleRows, lay_out_fields
from data.rows.tables import Batch, TokenReader, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary
from data.vocabulary.field_tokens import find_fields

NUM_ROW_DRAWS = 2  # whether the body is alone, and where a window begins; then 2 for each field


@dataclass(frozen=True)
class PartitionedFields(Objective):
    """A row of each article of a store of `prepare --document fields`.

    `prepare --field` gives the order. An article longer than a row is read through a random window,
    another in each epoch.
    """

    name: ClassVar[str] = "partitioned_fields"
    text_documents: ClassVar[str] = "fields"
    description: ClassVar[str] = (
        "the next token of articles, whose fields are in a random order, rows of {length}"
    )
    checks: ClassVar[str] = "article_checks:check_articles"
    rendering: ClassVar[str] = "rendering:render_next_token_row"
    trains_as: ClassVar[str] = "causal_lm"
    length: int = 1024  # L: tokens of a row; each predicts the next
    body: str = "body"  # the text of an article, never dropped; other fields are metadata
    drop_rate: float = 0.1  # probability that a metadata field is dropped
    body_only_rate: float = 0.35  # share of rows with the body alone

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length}."""
        return {"L": self.length}

    def describe_batch(self) -> dict[str, Field]:
        """Return the batch fields (as for causal LM)."""
        return {
            "token_ids": Field("int32", "BL", TOKEN_ID),
            "labels": Field("int32", "BL", TOKEN_ID),  # the next token at each position
            "label_weights": Field("float32", "BL"),  # 0 on padding
        }

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.length < 3:
            raise ValueError(
                f"{self.name}: length={self.length}; a row holds a field with the tokens that "
                "begin and end it, so 3 tokens at least"
            )
        for setting in ("drop_rate", "body_only_rate"):
            if not 0 <= getattr(self, setting) <= 1:
                raise ValueError(
                    f"{self.name}: {setting}={getattr(self, setting)}; "
                    "a probability is between 0 and 1"
                )
        if not (fields := find_fields(vocabulary)):
            raise ValueError(
                f"{self.name} reads a store of articles, and the store's vocabulary has no tokens "
                "of fields: prepare the store with --document fields"
            )
        if self.body not in fields:
            raise ValueError(
                f"{self.name}: body={self.body}; the store's articles have the fields "
                f"{', '.join(fields)}: set data.objective.body to one of them"
            )
        check_special_tokens(self.name, vocabulary, "eos")  # It pads the rows.

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[ArticleRows, BuildBatch]:
        """Return the table of rows and the function that builds batches."""
        read, fields = TokenReader(split.tokens, vocabulary.size), find_fields(vocabulary)
        table = ArticleRows(split, [*fields.values()], read)
        body, padding = [*fields].index(self.body), require_id(vocabulary.eos)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            found = table.locate_fields(row_B)
            order_BF, is_used_BF, bits_B = self.draw_order(found.number_BF, body, key_B)
            used = found._replace(length_BF=found.length_BF * is_used_BF)
            index_BN, used_BN, _ = lay_out_fields(used, order_BF, self.length + 1, bits_B)
            ids_BN = np.where(used_BN, read(index_BN), padding).astype(np.int32)
            return {
                "token_ids": ids_BN[:, :-1].copy(),
                "labels": ids_BN[:, 1:].copy(),
                "label_weights": used_BN[:, 1:].astype(np.float32),
            }

        return table, build_batch

    def draw_order(
        self, number_BF: np.ndarray, body: int, key_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw which fields of articles are used, and their order.

        Args:
          number_BF: the number of each field in the canonical order; F where there is none.
          body: the number of the body.
          key_B: the keys of the rows.

        Returns:
          order_BF: index of the field at each place; those that are not used come last.
          is_used_BF: bool, which fields are used. All fields of an article are if none would be.
          bits_B: uint64, further random bits.
        """
        F = number_BF.shape[1]
        bits_BK = hashing.draw_uint64(
            hashing.derive_keys(key_B, hashing.FIELDS), NUM_ROW_DRAWS + 2 * F
        )
        is_alone_B = hashing.bits_to_bools(bits_BK[:, 0], self.body_only_rate)
        field_BF = np.minimum(number_BF, F - 1)
        drop_BF, second_BF = (
            np.take_along_axis(bits_BF, field_BF, axis=1)
            for bits_BF in np.split(bits_BK[:, NUM_ROW_DRAWS:], 2, axis=1)
        )
        is_dropped_BF = hashing.bits_to_bools(drop_BF, self.drop_rate) | is_alone_B[:, None]
        is_there_BF = number_BF < F
        is_used_BF = is_there_BF & (~is_dropped_BF | (number_BF == body))
        is_used_BF |= is_there_BF & ~is_used_BF.any(axis=1)[:, None]
        place_BF = number_BF + F * hashing.bits_to_bools(second_BF, 0.5)
        order_BF = np.argsort(np.where(is_used_BF, place_BF, 2 * F), axis=1, kind="stable")
        return order_BF, is_used_BF, bits_BK[:, 1]
