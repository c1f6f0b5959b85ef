"""Checks of rows that are text of the store: next tokens, prefixes and translations.

Next tokens have a separator exactly where a document ends.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from data.inspection.checks import (
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_share,
    check_special_ids,
)
from data.rows.tables import WindowRows, require_id
from data.rows.translation import ParallelRows
from data.store.split import Split

TokenId = Callable[[str], int | None]


def check_next_tokens(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: TokenId
) -> list[Check]:
    """Check batches of causal_lm."""
    objective, vocabulary = stream.objective, stream.vocabulary
    table: WindowRows = stream.table
    tokens, starts = stream.split.tokens, stream.split.document_starts
    separator = vocabulary.eos if objective.end_of_text else None
    other_next = unweighed = other_text = misplaced = 0
    for inspected in batches:
        tokens_BL, labels_BL = inspected.batch["token_ids"], inspected.batch["labels"]
        other_next += (tokens_BL[:, 1:] != labels_BL[:, :-1]).sum()
        unweighed += (inspected.batch["label_weights"] != 1).sum()
        start_B = table.locate_starts(inspected.row_B)
        first_B = table.find_separators(start_B)[1] if objective.end_of_text else start_B
        for row, last, first in zip(tokens_BL, labels_BL[:, -1:], first_B.tolist()):
            text_holds, separators_hold = compare_to_store(
                np.concatenate([row, last]), first, tokens, starts, separator
            )
            other_text, misplaced = other_text + (not text_holds), misplaced + (not separators_hold)
    return [
        check_absence("targets that are not the next token", other_next),
        check_absence("tokens without loss", unweighed),
        check_absence("rows whose text is not the store's", other_text),
        *(
            [check_absence("rows with documents not separated", misplaced)]
            if objective.end_of_text
            else []
        ),
        *([check_special_ids(vocabulary, token_id, "eos")] if objective.end_of_text else []),
    ]


def check_prefixes(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: TokenId
) -> list[Check]:
    """Check batches of prefix_lm."""
    objective, vocabulary, tokens = stream.objective, stream.vocabulary, stream.split.tokens
    table: WindowRows = stream.table
    other_text = unended = padding = early = num_rows = 0
    for inspected in batches:
        batch, start_B = inspected.batch, table.locate_starts(inspected.row_B)
        parts = (
            (batch["encoder_token_ids"], batch["encoder_attention_mask"]),
            (batch["labels"], batch["label_weights"] > 0),
        )
        for ids_BL, used_BL in parts:
            unended += (
                ids_BL[np.arange(len(ids_BL)), used_BL.sum(axis=1) - 1] != vocabulary.eos
            ).sum()
            padding += (ids_BL[~used_BL] != vocabulary.pad).sum() + (
                np.diff(used_BL.astype(int), axis=1) > 0
            ).sum()
        for i, start in enumerate(start_B.tolist()):
            text = np.concatenate([ids_BL[i, used_BL[i]][:-1] for ids_BL, used_BL in parts])
            other_text += not np.array_equal(text, tokens[start : start + objective.length])
        early += (parts[0][1].sum(axis=1) - 1 <= objective.length // 2).sum()
        num_rows += len(start_B)
    return [
        check_absence("rows that do not rebuild the store's text", other_text),
        check_absence("parts without </s> at their end", unended),
        check_absence("tokens in padding, padding between tokens", padding),
        check_share(
            "texts cut in their first half",
            early,
            num_rows,
            (objective.length // 2) / (objective.length - 1),
        ),
        check_special_ids(vocabulary, token_id, "eos", "pad"),
    ]


def check_translations(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: TokenId
) -> list[Check]:
    """Check batches of seq2seq."""
    vocabulary, split = stream.vocabulary, stream.split
    table: ParallelRows = stream.table
    eos = require_id(vocabulary.eos)
    other_pairs = padding = unweighed = 0
    for inspected in batches:
        batch = inspected.batch
        sides = [
            (batch["encoder_token_ids"], batch["encoder_segment_ids"]),
            (batch["labels"], batch["decoder_segment_ids"]),
        ]
        for ids_BN, segments_BN in sides:
            padding += ((ids_BN == vocabulary.pad) != (segments_BN == 0)).sum()
            padding += ((segments_BN[:, 1:] > 0) & (segments_BN[:, :-1] == 0)).sum()
        unweighed += ((batch["label_weights"] > 0) != (sides[1][1] > 0)).sum() + (
            batch["encoder_attention_mask"] != (sides[0][1] > 0)
        ).sum()
        for i, row in enumerate(inspected.row_B.tolist()):
            first_token = table.start_Q2[table.first_R[row], 0]
            first = int(np.searchsorted(split.document_starts, first_token))
            pairs = iterate_fitting_pairs(
                split, first, stream.objective.length, stream.objective.target_length
            )
            for number in range(1, int(sides[0][1][i].max()) + 1):
                pair = next(pairs, (None, None))
                rows = (ids_BN[i, segments_BN[i] == number] for ids_BN, segments_BN in sides)
                other_pairs += any(
                    not np.array_equal(ids, np.append(np.asarray(text), eos))
                    for ids, text in zip(rows, pair)
                )
    return [
        check_absence("pairs that are not the store's, each side and </s>", other_pairs),
        check_absence("tokens in padding, padding between tokens", padding),
        check_absence("tokens without loss, losses on padding", unweighed),
        Check(
            "pairs left out",
            True,
            f"{table.num_skipped_pairs:,} of {len(split.document_starts) - 1:,}",
            "those longer than a row",
        ),
        check_special_ids(vocabulary, token_id, "eos", "pad"),
    ]


def iterate_fitting_pairs(
    split: Split, document: int, length: int, target_length: int
) -> Iterator[list[np.ndarray]]:
    """Iterate over [source, target] of the documents from `document` on that fit into a row."""
    for d in range(document, len(split.document_starts) - 1):
        edges = split.sentence_starts[2 * d : 2 * d + 3].tolist()
        sides = [split.tokens[low:high] for low, high in itertools.pairwise(edges)]
        if len(sides[0]) < length and len(sides[1]) < target_length:
            yield sides


def compare_to_store(
    row: np.ndarray, first: int, tokens: np.ndarray, starts: np.ndarray, separator: int | None
) -> tuple[bool, bool]:
    """Compare a row with the store's text from token `first` on.

    A separator before the first document or after the last is optional, since the row may begin or
    end with one.

    Args:
      first: number of the row's first token that is not a separator.
      starts: first token of each document.
      separator: id between documents; None for none.

    Returns:
      Whether the text is the store's, and whether each document has a separator before it.
    """
    positions = np.flatnonzero(row == separator) if separator is not None else np.zeros(0, np.int64)
    text = np.delete(row, positions)
    expected = set((starts[(starts > first) & (starts < first + len(text))] - first).tolist())
    found = set((positions - np.arange(len(positions))).tolist())
    same_text = np.array_equal(text, tokens[first : first + len(text)])
    return same_text, expected <= found <= expected | {0, len(text)}
