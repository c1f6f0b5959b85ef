"""What rows of next tokens promise: the store's text, with a separator where a document ends and nowhere else, cut in two, in pairs, or an answer."""

import itertools

import numpy as np

from data.inspection.checks import Check, none, specials, within


def successions(stream, seen, token_id):
    """causal_lm."""
    objective, vocabulary = stream.objective, stream.vocabulary
    tokens, starts = stream.split.tokens, stream.split.document_starts
    separator = vocabulary.eos if objective.end_of_text else None
    other_next = unweighed = other_text = misplaced = 0
    for each in seen:
        tokens_BL, targets_BL = each.batch["token_ids"], each.batch["labels"]
        other_next += (tokens_BL[:, 1:] != targets_BL[:, :-1]).sum()
        unweighed += (each.batch["label_weights"] != 1).sum()
        start_B = stream.table.starts(each.row_B)
        first_B = stream.table.separators(start_B)[1] if objective.end_of_text else start_B
        for row, last, first in zip(tokens_BL, targets_BL[:, -1:], first_B.tolist()):
            text_holds, separators_hold = told(
                np.concatenate([row, last]), first, tokens, starts, separator
            )
            other_text, misplaced = other_text + (not text_holds), misplaced + (not separators_hold)
    return [
        none("targets that are not the next token", other_next),
        none("tokens without loss", unweighed),
        none("rows whose text is not the store's", other_text),
        *([none("rows with documents not separated", misplaced)] if objective.end_of_text else []),
        *([specials(vocabulary, token_id, "eos")] if objective.end_of_text else []),
    ]


def continuations(stream, seen, token_id):
    """prefix_lm."""
    objective, vocabulary, tokens = stream.objective, stream.vocabulary, stream.split.tokens
    other_text = unended = padding = early = rows = 0
    for each in seen:
        batch, start_B = each.batch, stream.table.starts(each.row_B)
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
        early, rows = (
            early + (parts[0][1].sum(axis=1) - 1 <= objective.length // 2).sum(),
            rows + len(start_B),
        )
    return [
        none("rows that do not rebuild the store's text", other_text),
        none("parts without </s> at their end", unended),
        none("tokens in padding, padding between tokens", padding),
        within(
            "texts cut in their first half",
            early,
            rows,
            (objective.length // 2) / (objective.length - 1),
        ),
        specials(vocabulary, token_id, "eos", "pad"),
    ]


def translations(stream, seen, token_id):
    """seq2seq."""
    vocabulary, split, table = stream.vocabulary, stream.split, stream.table
    other_pairs = padding = unweighed = 0
    for each in seen:
        batch = each.batch
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
        for i, row in enumerate(each.row_B.tolist()):
            first = np.searchsorted(split.document_starts, table.start_Q2[table.first_R[row], 0])
            pairs = fitting(split, first, stream.objective)
            for number in range(1, int(sides[0][1][i].max()) + 1):
                pair = next(pairs, (None, None))
                rows = (ids_BN[i, segments_BN[i] == number] for ids_BN, segments_BN in sides)
                other_pairs += any(
                    not np.array_equal(ids, np.append(np.asarray(text), vocabulary.eos))
                    for ids, text in zip(rows, pair)
                )
    return [
        none("pairs that are not the store's, each side and </s>", other_pairs),
        none("tokens in padding, padding between tokens", padding),
        none("tokens without loss, losses on padding", unweighed),
        Check(
            "pairs left out",
            True,
            f"{table.left_out:,} of {len(split.document_starts) - 1:,}",
            "those longer than a row",
        ),
        specials(vocabulary, token_id, "eos", "pad"),
    ]


def answers(stream, seen, token_id):
    """text2text."""
    objective, vocabulary, split = stream.objective, stream.vocabulary, stream.split
    frame = [[vocabulary.bos] * objective.start_of_text, [vocabulary.eos]]
    other_text = shorter = padding = 0
    for each in seen:
        sides = (
            (each.batch["encoder_token_ids"], each.batch["encoder_attention_mask"]),
            (each.batch["labels"], each.batch["label_weights"] > 0),
        )
        for which, (ids_BN, used_BN) in enumerate(sides):
            padding += (ids_BN[~used_BN] != vocabulary.pad).sum() + (
                np.diff(used_BN.astype(int), axis=1) > 0
            ).sum()
            for row, used, number in zip(ids_BN, used_BN, each.row_B.tolist()):
                low, high = split.sentence_starts[
                    2 * number + which : 2 * number + which + 2
                ].tolist()
                found, room = row[used].tolist(), len(row) - sum(map(len, frame))
                text = found[len(frame[0]) : -1]
                other_text += found != [
                    *frame[0],
                    *split.tokens[low : low + len(text)].tolist(),
                    *frame[1],
                ]
                shorter += len(text) != min(high - low, room)
    return [
        none("sides that are not the store's text in its frame", other_text),
        none("sides that are cut though the row has room", shorter),
        none("tokens in padding, padding between tokens", padding),
        specials(vocabulary, token_id, "eos", "pad", *(["bos"] if objective.start_of_text else [])),
    ]


def fitting(split, document, objective):
    """(source, target) of the documents from one on whose sides fit into a row."""
    for d in range(document, len(split.document_starts) - 1):
        edges = split.sentence_starts[2 * d : 2 * d + 3].tolist()
        sides = [split.tokens[low:high] for low, high in itertools.pairwise(edges)]
        if len(sides[0]) < objective.length and len(sides[1]) < objective.target_length:
            yield sides


def told(row, first, tokens, starts, separator):
    """(whether a row's text is the store's from token `first` on, whether it has a separator before each document).

    Before the first document, and behind the last, a separator may be there or not: the row may have begun or ended with it.
    """
    places = np.flatnonzero(row == separator) if separator is not None else np.zeros(0, np.int64)
    text = np.delete(row, places)
    expected = set((starts[(starts > first) & (starts < first + len(text))] - first).tolist())
    found = set((places - np.arange(len(places))).tolist())
    return np.array_equal(
        text, tokens[first : first + len(text)]
    ), expected <= found <= expected | {0, len(text)}
