"""The kinds of rows of masked tokens: documents, crops, windows, full sentences, or several texts.

B rows   S rows of several documents   L row length   N = L - 2 tokens of text
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from data.members import call_later
from data.objectives.masking import Masker, count_true
from data.objectives.objective import BuildBatch
from data.objectives.setting_checks import check_masking
from data.rows.tables import Batch, DocumentRows, RowTable, TokenReader, WindowRows, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary

if TYPE_CHECKING:
    from data.rows.crops import CropRows
    from data.rows.full_sentences import SentenceRows

# Of the kinds of rows that a run does not ask for, nothing is imported.
make_crop_rows = call_later("data.rows.crops:CropRows")
make_sentence_rows = call_later("data.rows.full_sentences:SentenceRows")
make_packed_table = call_later("data.rows.packed:PackedRows")
lay_out_packed_rows = call_later("data.rows.packed:lay_out_rows")
make_strand_reverser = call_later("data.rows.strands:StrandReverser")
find_complements = call_later("data.rows.complement:find_complements")
LayOutRows = Callable[[np.ndarray, np.ndarray], Batch]  # row_B, key_B -> rows before masking
# (table, read, row_B, key_B, separator, out_BN) -> number of tokens of each row [B]; fills out_BN.
ReadTexts = Callable[[Any, TokenReader, np.ndarray, np.ndarray, int, np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class MaskedTexts:
    """How texts become rows, for objectives that mask tokens."""

    # a row: one piece of a document, a crop of it (another in each epoch), a window of the stream,
    # full sentences of it, or packed documents that do not attend to each other
    rows: Literal["documents", "crops", "windows", "sentences", "packed"] = "packed"
    # DNA: half of the training rows are the other strand, by chance; held-out rows never are
    reverse_complement: bool = False


def check_rows(objective: Any, vocabulary: Vocabulary) -> None:
    """Raise a ValueError unless these settings and this vocabulary allow rows of masked tokens."""
    if objective.length < 3:
        raise ValueError(
            f"{objective.name}: length={objective.length}; "
            "a row holds [CLS], text and [SEP], so at least 3 tokens"
        )
    check_masking(objective, vocabulary, objective.length - 2)
    check_strands(objective, vocabulary)


def check_strands(objective: Any, vocabulary: Vocabulary) -> None:
    """Raise a ValueError if `reverse_complement` is set and the vocabulary has no complements."""
    if objective.reverse_complement:
        try:
            find_complements(vocabulary)
        except ValueError as error:
            raise ValueError(f"{objective.name}: reverse_complement=true, but {error}") from error


def make_text_rows(objective: Any, split: Split, vocabulary: Vocabulary) -> tuple[Any, LayOutRows]:
    """Return the table of rows of a `MaskedTexts`, and the function that lays them out."""
    table, lay_out = ROW_KINDS[objective.rows](split, objective.length, vocabulary)
    if not objective.reverse_complement:
        return table, lay_out
    reverser = make_strand_reverser(vocabulary)

    def lay_out_strands(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
        rows = lay_out(row_B, key_B)
        reverser.reverse_rows(rows["token_ids"], key_B)
        return rows

    return table, lay_out_strands


def make_masked_rows(
    objective: Any, split: Split, vocabulary: Vocabulary, masker: Masker
) -> tuple[RowTable, BuildBatch]:
    """Return the table of rows of the objective's kind and the function that builds batches."""
    table, lay_out = make_text_rows(objective, split, vocabulary)

    def build_batch(
        row_B: np.ndarray, key_B: np.ndarray, rate_B: np.ndarray | None = None
    ) -> Batch:
        rows = lay_out(row_B, key_B)
        mask_BL = rows["attention_mask"]
        return rows | masker(rows["token_ids"], mask_BL, key_B, rate_B)  # changes token_ids

    return table, build_batch


def make_framed_rows(
    make_table: Callable[[Split, int], Any],
    read_texts: ReadTexts,
    split: Split,
    length: int,
    vocabulary: Vocabulary,
) -> tuple[RowTable, LayOutRows]:
    """Return the table and the function that lays out rows `[CLS] text [SEP]`.

    Args:
      make_table: (split, tokens of text in a row) -> table of rows.
    """
    table, read = make_table(split, length - 2), TokenReader(split.tokens, vocabulary.size)
    column_L = np.arange(length, dtype=np.int32)
    cls, sep, pad = map(require_id, (vocabulary.cls, vocabulary.sep, vocabulary.pad))

    def lay_out(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
        tokens_BL = np.empty((len(row_B), length), np.int32)
        length_B = read_texts(table, read, row_B, key_B, sep, tokens_BL[:, 1:-1])
        mask_BL = column_L < (length_B + 2).astype(np.int32)[:, None]
        if not mask_BL[:, -1].all():
            np.copyto(tokens_BL, pad, where=~mask_BL)
        tokens_BL[:, 0] = cls
        tokens_BL[np.arange(len(row_B)), length_B + 1] = sep
        return {"token_ids": tokens_BL, "attention_mask": mask_BL}

    return table, lay_out


def make_packed_rows(
    split: Split, length: int, vocabulary: Vocabulary
) -> tuple[RowTable, LayOutRows]:
    """Return the table and the function that lays out rows `[CLS] text [SEP] [CLS] text ...`."""
    table, read = make_packed_table(split, length), TokenReader(split.tokens, vocabulary.size)
    return table, lambda row_B, key_B: lay_out_packed_rows(table, read, row_B, vocabulary)


def drop_repeated_masks(table: Any, batch: Batch, row_B: np.ndarray) -> None:
    """Set to 0 the weights of tokens, masked or not, that are in another row as well.

    Windows alone share tokens. [CLS] and [SEP] are each row's own.
    """
    if isinstance(table, WindowRows):
        own_BL = np.pad(table.mark_own_tokens(row_B), ((0, 0), (1, 1)), constant_values=True)
        batch["label_weights"] *= np.take_along_axis(own_BL, batch["masked_positions"], axis=1)
        for name in batch.keys() & {"discriminator_weights", "state_weights", "text_weights"}:
            batch[name] *= own_BL  # of all tokens


def read_document_rows(
    table: DocumentRows,
    read: TokenReader,
    row_B: np.ndarray,
    key_B: np.ndarray,
    separator: int,
    out_BN: np.ndarray,
) -> np.ndarray:
    """Read rows of one document into the left of out_BN; return their numbers of tokens [B].

    A row ends with its document, so it holds no separator.
    """
    start_B, length_B = table.locate_spans(row_B)
    out_BN[:] = read.read_runs(start_B, table.width)
    return length_B


def read_crops(
    table: "CropRows",
    read: TokenReader,
    row_B: np.ndarray,
    key_B: np.ndarray,
    separator: int,
    out_BN: np.ndarray,
) -> np.ndarray:
    """Read crops as `read_document_rows` does; the keys draw where they begin."""
    start_B, length_B = table.locate_spans(row_B, key_B)
    out_BN[:] = read.read_runs(start_B, table.width)
    return length_B


def read_joined_rows(
    table: "WindowRows | SentenceRows",
    read: TokenReader,
    row_B: np.ndarray,
    key_B: np.ndarray,
    separator: int,
    out_BN: np.ndarray,
) -> np.ndarray:
    """Read rows of a stream of documents into the left of out_BN; return their numbers of tokens.

    The stream has `separator` between documents, which counts as a token of the row.
    """
    start_B, length_B = table.locate_spans(row_B)
    separator_BN, token_B = table.find_separators(start_B)
    ids_BN = read.read_runs(token_B, table.width)
    out_BN[:] = ids_BN
    number_B = count_true(separator_BN)
    several = np.flatnonzero(number_B)  # rows of more than one document
    out_SN = np.full((len(several), table.width), separator, np.int32)
    out_SN[~separator_BN[several]] = ids_BN[several][
        np.arange(table.width) < table.width - number_B[several, None]
    ]
    out_BN[several] = out_SN
    return length_B


# (split, length, vocabulary) -> (table of rows, function that lays them out)
ROW_KINDS: dict[str, Callable[[Split, int, Vocabulary], tuple[Any, LayOutRows]]] = {
    # Each row ends with its document.
    "documents": partial(make_framed_rows, DocumentRows, read_document_rows),
    # One row a document and epoch; of a long document, a window whose start the key draws.
    "crops": partial(make_framed_rows, make_crop_rows, read_crops),
    # Windows of one stream with [SEP] between documents; all rows are full.
    "windows": partial(make_framed_rows, partial(WindowRows, separated=True), read_joined_rows),
    # The same stream, as many full sentences as fit: RoBERTa's FULL-SENTENCES.
    "sentences": partial(make_framed_rows, make_sentence_rows, read_joined_rows),
    # The texts of "documents", several packed in a row, which do not attend to each other.
    "packed": make_packed_rows,
}
