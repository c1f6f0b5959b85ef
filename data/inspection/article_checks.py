"""Checks of rows that are the fields of an article, each between its two tokens.

B rows   L row length
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from data.inspection.checks import (
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_share,
    check_special_ids,
)
from data.rows.article_rows import ArticleRows
from data.vocabulary.field_tokens import find_fields

TokenId = Callable[[str], int | None]


def check_articles(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: TokenId
) -> list[Check]:
    """Check batches of partitioned_fields.

    Rows that hold a whole article are compared with the store, field by field.
    """
    objective, tokens = stream.objective, stream.split.tokens
    fields = find_fields(stream.vocabulary)
    begins, body = [field.begin for field in fields.values()], fields[objective.body].begin
    other_next = padding = wrong_text = disordered = cut = 0
    alone, chances = [], []
    for inspected in batches:
        ids_BL, labels_BL = inspected.batch["token_ids"], inspected.batch["labels"]
        used_BL = inspected.batch["label_weights"] > 0
        other_next += (ids_BL[:, 1:] != labels_BL[:, :-1])[used_BL[:, :-1]].sum()
        padding += (used_BL[:, 1:] & ~used_BL[:, :-1]).sum()
        for ids, labels, used, row in zip(ids_BL, labels_BL, used_BL, inspected.row_B.tolist()):
            stored = list_stored_fields(stream.table, tokens, row)
            if sum(map(len, stored.values())) > objective.length + 1:
                cut += 1
                continue
            parts = split_at_ids(np.concatenate([ids[:1], labels[used]]), begins)
            names = [part[0] for part in parts]
            wrong_text += any(part != stored.get(part[0]) for part in parts)
            steps_back = sum(after < before for before, after in itertools.pairwise(names))
            disordered += steps_back > 1 or len(set(names)) < len(names)
            if body in stored and len(stored) > 1:
                alone.append(names == [body])
                dropped = objective.drop_rate ** (len(stored) - 1)
                chances.append(objective.body_only_rate + (1 - objective.body_only_rate) * dropped)
    share = float(np.mean(chances)) if chances else objective.body_only_rate
    return [
        check_absence("targets that are not the next token", other_next),
        check_absence("losses after padding", padding),
        check_absence("rows with a field that is not the store's", wrong_text),
        check_absence("rows that are not two sets of fields, each in order", disordered),
        *([check_share("bodies alone", sum(alone), len(alone), share)] if alone else []),
        Check("articles longer than a row", True, f"{cut:,}", "a random window of each"),
        check_special_ids(stream.vocabulary, token_id, "eos"),
    ]


def list_stored_fields(table: ArticleRows, tokens: np.ndarray, row: int) -> dict[int, list[int]]:
    """Return {id that begins a field: its ids} of the article of a row."""
    fields = table.locate_fields(np.array([row]))
    found = {}
    for start, length in zip(fields.start_BF[0].tolist(), fields.length_BF[0].tolist()):
        if length:
            found[int(tokens[start])] = tokens[start : start + length].tolist()
    return found


def split_at_ids(row: np.ndarray, begins: Sequence[int]) -> list[list[int]]:
    """Return the parts of a row, each of which begins with one of these ids."""
    edges = [*np.flatnonzero(np.isin(row, begins)).tolist(), len(row)]
    return [row[low:high].tolist() for low, high in itertools.pairwise(edges)]
