"""Texts with gaps and what a model says there, over its training: `samples.jsonl`, a line for each evaluation (docs/inside.md).

L row length   T targets of a row
"""

import json
import math
from typing import NamedTuple

import numpy as np
from etils import epath

from pretrain.damage import named

NAME = "samples.jsonl"
PIECES = 64  # of a row, from its beginning, at most
FOLLOWING = 16  # pieces that follow a text, where these are told
TARGETS = 48  # of a row, that are computed
GAPS = 8  # of a row, that are told of, at most
LINES = 100  # of the file: beyond that every second one goes


class Gapped(NamedTuple):
    """A row as a person reads it. text: what stands around its gaps, one stretch more; gaps: the targets [begin, end) of each, by number."""

    text: list[str]
    gaps: list[tuple[int, int]]


# ---- the gaps of a row -------------------------------------------------------


def masks(row, vocabulary):
    """Each masked piece is a gap; the text ends before the first that is not told of."""
    tokens_L, valid_L = row["tokens"][:PIECES], row["valid"][:PIECES]
    places = [place for place in row["positions"][row["weights"] > 0].tolist() if place < len(tokens_L)]
    edges = [-1, *places[:GAPS], places[GAPS] if len(places) > GAPS else int(valid_L.sum())]
    return Gapped(_stretches(vocabulary, tokens_L, edges), [(t, t + 1) for t in range(len(edges) - 2)])


def spans(row, vocabulary):
    """Each span behind its sentinel is a gap: T5's."""
    inputs_L, targets_T = row["inputs"][:PIECES], row["targets"]
    marks = [i for i, piece in enumerate(inputs_L.tolist()) if piece in vocabulary.sentinels][: GAPS + 1]
    heads = [t for t, piece in enumerate(targets_T.tolist()) if piece in vocabulary.sentinels]
    ends = [*heads[1:], int(np.flatnonzero(row["weights"])[-1])]  # the last target is </s>
    gaps = [(head + 1, end) for head, end, _ in zip(heads, ends, marks[:GAPS]) if end <= TARGETS]
    edges = [-1, *marks[: len(gaps)], marks[len(gaps)] if len(marks) > len(gaps) else len(inputs_L)]
    return Gapped(_stretches(vocabulary, inputs_L, edges), gaps)


def following(row, vocabulary):
    """What follows the first pieces of a row is its gap."""
    many = min(FOLLOWING, len(row["tokens"]) // 2)
    first = min(TARGETS, len(row["tokens"])) - many
    return Gapped(_stretches(vocabulary, row["tokens"], [-1, first + 1, first + 1]), [(first, first + many)])


# By objective; others are scored by what they are for, or have no gaps.
READERS = {
    **dict.fromkeys(("masked_lm", "distillation", "sentence_pair", "sentence_order", "replaced_token"), masks),
    "span_corruption": spans,
    "causal_lm": following,
}


def _stretches(vocabulary, ids, edges):
    """What stands between each two of the edges, without pieces that stand for no text."""
    kept = ids < vocabulary.size
    kept[kept] = ~vocabulary.special[ids[kept]] | (ids[kept] == vocabulary.unk)
    return [spelt(vocabulary, ids[a + 1 : b][kept[a + 1 : b]]) for a, b in zip(edges, edges[1:])]


def spelt(vocabulary, ids):
    """Pieces as a person reads them: an ellipsis before those that go on with a word, special ones by their names."""
    ids = ids.tolist()
    text = vocabulary.decode(ids).strip().removeprefix("##") or " ".join(vocabulary.pieces[i] for i in ids)
    return text if not ids or vocabulary.starts_word[ids[0]] else f"…{text}"


def told(vocabulary, gapped, right_T, id_T, chance_T):
    """{"text", "gaps"} of a row, as a line of the file has it; id_T, chance_T: what the model finds likeliest for each target, and how likely."""
    gaps = []
    for begin, end in gapped.gaps:
        one = {"right": spelt(vocabulary, right_T[begin:end]), "told": spelt(vocabulary, id_T[begin:end])}
        gaps.append(one | {"probability": round(math.prod(chance_T[begin:end].tolist()), 4)})
    return {"text": gapped.text, "gaps": gaps}


# ---- the file ----------------------------------------------------------------


def write(path, line):
    """Add the line of a step, in place of those from there on, which another start has left."""
    lines = [one for one in read(path) if one["step"] < line["step"]]
    if len(lines) >= LINES:
        lines = lines[::2]
    part = path.with_name(path.name + ".part")
    with named(path):
        part.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in [*lines, line]), encoding="utf-8")
        part.replace(path)


def read(path):
    """The lines of a file, in the order of their steps; none where there is no file."""
    path = epath.Path(path)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line] if path.exists() else []


def by_row(lines):
    """What a page shows of a file's lines: {"steps": [N], "rows": [{"text", "right", "told"}]}, one for each different row.

    told: for each step the [word, probability] of each gap, None where the row was not among that step's.
    """
    rows = {}
    for n, line in enumerate(lines):
        for one in line["samples"]:
            right = [gap["right"] for gap in one["gaps"]]
            row = rows.setdefault((*one["text"], *right), {"text": one["text"], "right": right, "told": [None] * len(lines)})
            row["told"][n] = [[gap["told"], gap["probability"]] for gap in one["gaps"]]
    return {"steps": [line["step"] for line in lines], "rows": list(rows.values())}
