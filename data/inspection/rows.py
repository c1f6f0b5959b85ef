"""Are the rows of a batch made of the store's text as their kind says? Measured again from the store's own offsets."""

import numpy as np

from data.inspection.causal import told
from data.inspection.checks import Check, none, within
from data.rows.full_sentences import SentenceRows
from data.rows.packed import PackedRows
from data.rows.tables import DocumentRows


def originals(batch):
    """The ids of a masked batch with the masks taken out again: [B, L]."""
    text_BL = batch["token_ids"].copy()
    row, slot = np.nonzero(batch["label_weights"])
    text_BL[row, batch["masked_positions"][row, slot]] = batch["labels"][row, slot]
    return text_BL


def texts(stream, seen):
    """Rows of masked_lm, or of an objective that masks as it does, against the store."""
    return (packed if isinstance(stream.table, PackedRows) else documents)(stream, seen)


def packed(stream, seen):
    """Rows of several pieces, each whole and framed, against the store's documents; and how much of the rows is not padding."""
    tokens, starts, vocabulary = (
        stream.split.tokens,
        stream.split.document_starts,
        stream.vocabulary,
    )
    width = stream.table.length - 2
    frames = uncounted = across = other_text = there = places = 0
    for each in seen:
        row_P, first_P, length_P, _ = stream.table.spans(each.row_B)
        home_P = np.searchsorted(starts, first_P, side="right") - 1
        across += ((first_P - starts[home_P]) % width > 0).sum()
        across += (length_P != np.minimum(starts[home_P + 1] - first_P, width)).sum()
        there, places = (
            there + each.batch["attention_mask"].sum(),
            places + each.batch["attention_mask"].size,
        )
        for i, (row, valid, pieces) in enumerate(
            zip(originals(each.batch), each.batch["attention_mask"], each.batch["segment_ids"])
        ):
            first, length = first_P[row_P == i].tolist(), length_P[row_P == i].tolist()
            uncounted += pieces.tolist() != [
                k for k, n in enumerate(length, 1) for _ in range(n + 2)
            ] + [0] * int((~valid).sum())
            for k, (a, n) in enumerate(zip(first, length), 1):
                piece = row[pieces == k]
                frames += (
                    len(piece) < 2 or piece[0] != vocabulary.cls or piece[-1] != vocabulary.sep
                )
                other_text += not np.array_equal(piece[1:-1], tokens[a : a + n])
    return [
        none("pieces across documents, or cut where the row had room", across),
        none("pieces that are not framed by [CLS] and [SEP]", frames),
        none("rows whose pieces are not 1 1 1 2 2 ... 0 0", uncounted),
        none("pieces whose text is not the store's", other_text),
        Check(
            "share of the rows that is not padding",
            True,
            f"{there / places:.4f}",
            "as near to 1 as the lengths allow",
        ),
    ]


def documents(stream, seen):
    """Rows that are one piece, or one stretch of the stream, against the store."""
    tokens, starts = stream.split.tokens, stream.split.document_starts
    across = other_text = 0
    separate = isinstance(stream.table, DocumentRows)
    for each in seen:
        first_B, _ = stream.table.spans(each.row_B)
        if not separate:
            _, first_B = stream.table.separators(first_B)
        for row, valid, first in zip(
            originals(each.batch), each.batch["attention_mask"], first_B.tolist()
        ):
            body = row[1 : valid.sum() - 1]
            if separate:
                other_text += not np.array_equal(body, tokens[first : first + len(body)])
                across += ((starts > first) & (starts < first + len(body))).any()
            else:
                text_holds, separators_hold = told(
                    body, first, tokens, starts, stream.vocabulary.sep
                )
                other_text, across = other_text + (not text_holds), across + (not separators_hold)
    more = sentences(stream, seen) if isinstance(stream.table, SentenceRows) else []
    promise = "rows across documents" if separate else "rows with documents not separated"
    return [none(promise, across), none("rows whose text is not the store's", other_text), *more]


def sentences(stream, seen):
    """Rows of full sentences: only one longer than a row may be cut, and no row has room for what follows it."""
    width, split, starts = stream.table.width, stream.split, stream.split.sentence_starts
    ends = {int(split.document_starts[source.documents[1]]) for source in split.sources}
    cut = roomy = 0
    for each in seen:
        start_B, _ = stream.table.spans(each.row_B)
        _, first_B = stream.table.separators(start_B)
        for row, valid, first in zip(
            originals(each.batch), each.batch["attention_mask"], first_B.tolist()
        ):
            body = row[1 : valid.sum() - 1]
            end = first + int((body != stream.vocabulary.sep).sum())
            for border in (first, end):
                i = np.searchsorted(starts, border)
                cut += starts[i] != border and starts[i] - starts[i - 1] <= width
            i = np.searchsorted(
                starts, end, side="right"
            )  # of the sentence behind the next, if one begins here
            if end not in ends and starts[i - 1] == end:
                following = int(starts[i] - end)
                following //= -(-following // width)
                separator = (
                    split.document_starts[np.searchsorted(split.document_starts, end)] == end
                )
                roomy += len(body) + separator + following <= width
    return [
        none("rows that begin or end within a sentence", cut),
        none("rows with room for the next sentence", roomy),
    ]


def pairs(stream, seen):
    """Rows of sentence_pair against the store."""
    tokens, starts, vocabulary = (
        stream.split.tokens,
        stream.split.document_starts,
        stream.vocabulary,
    )
    across = mislabelled = layout = other_text = other = rows = 0
    for each in seen:
        batch, text_BL = each.batch, originals(each.batch)
        (a_start, a), (b_start, b), _ = stream.table.pairs(
            each.row_B, each.key_B, stream.objective.short_seq_prob, stream.objective.random_next
        )
        home, away = (
            np.searchsorted(starts, a_start, side="right"),
            np.searchsorted(starts, b_start, side="right"),
        )
        across += (np.searchsorted(starts, a_start + a - 1, side="right") != home).sum()
        across += (np.searchsorted(starts, b_start + b - 1, side="right") != away).sum()
        follows = (home == away) & (b_start == a_start + a)
        mislabelled += np.where(batch["next_sentence_labels"] == 0, ~follows, home == away).sum()
        other, rows = other + batch["next_sentence_labels"].sum(), rows + len(home)
        for i, row in enumerate(text_BL):
            first, second = (
                tokens[a_start[i] : a_start[i] + a[i]],
                tokens[b_start[i] : b_start[i] + b[i]],
            )
            expected = np.concatenate(
                [[vocabulary.cls], first, [vocabulary.sep], second, [vocabulary.sep]]
            )
            other_text += not np.array_equal(row[batch["attention_mask"][i]], expected)
            segments = batch["token_type_ids"][i]
            layout += segments.sum() != b[i] + 1 or not segments[a[i] + 2 : a[i] + b[i] + 3].all()
    return [
        none("segments across documents", across),
        none("labels that are wrong", mislabelled),
        within("second segments from elsewhere", other, rows, stream.objective.random_next),
        none("rows whose segments are not 0 ... 0 1 ... 1", layout),
        none("rows whose text is not the store's", other_text),
    ]


def orders(stream, seen):
    """Rows of sentence_order against the store, which is asked for the order of the two segments that a row shows."""
    tokens, starts, sep = stream.split.tokens, stream.split.document_starts, stream.vocabulary.sep
    across = mislabelled = layout = other_text = swapped = rows = 0
    for each in seen:
        batch, counts_B = each.batch, each.batch["sentence_order_weights"] > 0
        (start_B, a_B), (_, b_B), *_ = stream.table.halves(
            each.row_B, each.key_B, stream.objective.short_seq_prob
        )
        across += (
            np.searchsorted(starts, start_B, "right")
            != np.searchsorted(starts, start_B + a_B + b_B - 1, "right")
        ).sum()
        mislabelled += (counts_B != (b_B > 0)).sum()
        swapped, rows = (
            swapped + batch["sentence_order_labels"][counts_B].sum(),
            rows + counts_B.sum(),
        )
        for i, row in enumerate(originals(batch)):
            body, segments = row[batch["attention_mask"][i]][1:-1], batch["token_type_ids"][i]
            cut = int(np.argmax(body == sep))
            first, second = body[:cut], body[cut + 1 :]
            text = tokens[start_B[i] : start_B[i] + a_B[i] + b_B[i]]
            fitting = [
                np.array_equal(np.concatenate(parts), text)
                for parts in ((first, second), (second, first))
            ]
            other_text += not any(fitting)
            mislabelled += any(fitting) and not fitting[batch["sentence_order_labels"][i]]
            layout += (
                segments.sum() != len(second) + 1 or not segments[cut + 2 : len(body) + 2].all()
            )
    return [
        none("segments across documents", across),
        none("labels that are wrong", mislabelled),
        within("segments in the other order", swapped, rows, 0.5),
        none("rows whose segments are not 0 ... 0 1 ... 1", layout),
        none("rows whose text is not the store's", other_text),
    ]
