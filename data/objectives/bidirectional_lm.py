"""Bidirectional language modelling: predict the word after each word, and the word before.

Peters et al. (2018), section 3.1. The stream of sentences, each `[CLS] words [SEP]`, is read in
order and with each sentence reversed. Both streams have the same sentences at the same positions,
so a model of each direction reads the same text at the same time (as in the released code).

B rows   L row length   N = L + 1 words read   C characters of a word   S sentences, and the end
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from data.batch_spec import CONTINUED, TOKEN_ID, Field, add_characters, spell_fields
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens, check_zero_state_rate
from data.rows.tables import (
    Batch,
    TokenReader,
    WindowRows,
    find_source_edges,
    require_id,
    search_sorted,
)
from data.store.split import Split
from data.vocabulary.base import Vocabulary
from data.vocabulary.spelling import spell_batches


class FramedSentences(WindowRows):
    """Rows of `width` positions of the stream of a source's sentences.

    Rows, their order and their overlap are as in `WindowRows`, whose documents are sentences.
    """

    def __init__(self, split: Split, width: int, vocabulary: Vocabulary, shared: int = 0) -> None:
        """Compute the rows. The arguments are as for `WindowRows`."""
        starts = np.asarray(split.sentence_starts)
        # Sentences without a word are left out.
        self.token_S = starts[np.append(np.diff(starts) > 0, True)]
        self.begin_of_S = self.token_S + 2 * np.arange(len(self.token_S))
        edges = find_source_edges(split)
        edges = np.searchsorted(self.token_S, np.asarray(split.document_starts)[edges])
        sources = tuple(
            dataclasses.replace(source, documents=(int(first), int(end)))
            for source, first, end in zip(split.sources, edges[:-1], edges[1:], strict=True)
        )
        framed = dataclasses.replace(
            split, document_starts=self.begin_of_S, sentence_starts=self.begin_of_S, sources=sources
        )
        super().__init__(framed, width, shared=shared)
        self.read = TokenReader(split.tokens, vocabulary.size)
        self.cls, self.sep = require_id(vocabulary.cls), require_id(vocabulary.sep)

    def read_rows(self, row_B: np.ndarray, reverse: bool = False) -> np.ndarray:
        """Return the ids of rows, int32 [B, N]; with `reverse` of the reversed sentences.

        A reversed sentence is `[SEP] words [CLS]`, its last word first.
        """
        position_BN = self.locate_starts(row_B)[:, None] + np.arange(self.width)
        sentence_BN = search_sorted(self.begin_of_S, position_BN.ravel()) - 1
        sentence_BN = sentence_BN.reshape(position_BN.shape)
        place_BN = position_BN - self.begin_of_S[sentence_BN]
        last_BN = self.begin_of_S[sentence_BN + 1] - self.begin_of_S[sentence_BN] - 1
        if reverse:
            place_BN = last_BN - place_BN
        is_cls_BN, is_sep_BN = place_BN == 0, place_BN == last_BN
        index_BN = self.token_S[sentence_BN] + place_BN - 1
        ids_BN = self.read(np.where(is_cls_BN | is_sep_BN, self.token_S[sentence_BN], index_BN))
        ids_BN = np.where(is_cls_BN, self.cls, np.where(is_sep_BN, self.sep, ids_BN))
        return ids_BN.astype(np.int32)


@dataclass(frozen=True)
class BidirectionalLm(Objective):
    """Rows of the stream of sentences, each `[CLS] words [SEP]`, for two language models.

    The backward model reads each sentence from its end, in the same order of sentences, so that
    both carry the state of the text just read.
    """

    name: ClassVar[str] = "bidirectional_lm"
    scored_tokens: ClassVar[str] = "all"
    description: ClassVar[str] = "the next and the previous word, rows of {length} across sentences"
    checks: ClassVar[str] = "two_directions:check_neighbours"
    can_spell: ClassVar[bool] = True
    length: int = 20  # L: words of a row; each direction predicts its next word at each
    # "lanes": row i of a batch continues row i of the batch before, for a model with a state; the
    # end of a source that fills no row is skipped.
    order: Literal["shuffled", "lanes"] = "lanes"
    # probability that a training row on lanes begins with a state of zeros
    zero_state_rate: float = 0.0
    characters: int = 50  # characters per word for character-based models; 0 feeds word ids

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length}, and {"C"} of characters."""
        return add_characters({"L": self.length}, self.characters)

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        fields = {
            "token_ids": Field("int32", "BL", TOKEN_ID),  # without padding
            "backward_ids": Field("int32", "BL", TOKEN_ID),  # read from the end of the row
            "labels": Field("int32", "BL", TOKEN_ID),  # the word after each of token_ids
            "backward_labels": Field("int32", "BL", TOKEN_ID),  # before each of backward_ids
            "label_weights": Field("float32", "BL"),
            "backward_weights": Field("float32", "BL"),
        }
        if self.order == "lanes":
            fields |= CONTINUED
        return spell_fields(fields, self.characters)

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.length < 1:
            raise ValueError(f"{self.name}: length={self.length}; a row has at least 1 word")
        check_zero_state_rate(self)
        check_special_tokens(self.name, vocabulary, "pad", "cls", "sep", "unk")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[FramedSentences, BuildBatch]:
        """Return the table of rows and the function that builds batches; the keys are not used.

        The last word of a row is also the first of the next, so each word of a source but the first
        is predicted once by each direction.
        """
        table = FramedSentences(split, self.length + 1, vocabulary, shared=1)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            forward_BN, backward_BN = table.read_rows(row_B), table.read_rows(row_B, reverse=True)
            weights_BL = np.ones((len(row_B), self.length), np.float32)
            batch = {
                "token_ids": forward_BN[:, :-1].copy(),
                "backward_ids": backward_BN[:, -2::-1].copy(),
                "labels": forward_BN[:, 1:].copy(),
                "backward_labels": backward_BN[:, :0:-1].copy(),
                "label_weights": weights_BL,
                "backward_weights": weights_BL.copy(),
            }
            if self.order == "lanes":
                batch["is_continued"] = table.find_continued_rows(row_B)
            return batch

        return table, spell_batches(build_batch, vocabulary, self.characters)

    def drop_repeats(
        self, table: FramedSentences, batch: Batch, row_B: np.ndarray, key_B: np.ndarray
    ) -> None:
        """Set to 0 the weights of words that another row predicts as well."""
        own_BL = table.mark_own_tokens(row_B)[:, 1:]
        batch["label_weights"] *= own_BL
        batch["backward_weights"] *= own_BL[:, ::-1]
