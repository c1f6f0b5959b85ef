"""Checks that rows are the store's text in the layout of their kind, from the store's offsets."""

from collections.abc import Sequence

import numpy as np

from data.inspection.causal import compare_to_store
from data.inspection.checks import Check, InspectedBatch, RowStream, check_absence, check_share
from data.rows.crops import CropRows
from data.rows.full_sentences import SentenceRows
from data.rows.packed import PackedRows
from data.rows.sentence_pairs import ChunkRows, SentencePairRows
from data.rows.tables import Batch, DocumentRows, WindowRows


def restore_tokens(batch: Batch) -> np.ndarray:
    """Return the ids of a masked batch before they were masked: [B, L]."""
    text_BL = batch["token_ids"].copy()
    row, slot = np.nonzero(batch["label_weights"])
    text_BL[row, batch["masked_positions"][row, slot]] = batch["labels"][row, slot]
    return text_BL


def check_texts(stream: RowStream, batches: Sequence[InspectedBatch]) -> list[Check]:
    """Check the text of rows of masked_lm, or of an objective with the same rows."""
    return (check_packed_rows if isinstance(stream.table, PackedRows) else check_document_rows)(
        stream, batches
    )


def check_packed_rows(stream: RowStream, batches: Sequence[InspectedBatch]) -> list[Check]:
    """Check packed rows: each segment whole and framed; and report the share of padding."""
    table: PackedRows = stream.table
    tokens, starts = stream.split.tokens, stream.split.document_starts
    vocabulary = stream.vocabulary
    width = table.length - 2
    frames = uncounted = across = other_text = tokens_in_rows = positions = 0
    for inspected in batches:
        row_P, first_P, length_P, _ = table.locate_segments(inspected.row_B)
        home_P = np.searchsorted(starts, first_P, side="right") - 1
        across += ((first_P - starts[home_P]) % width > 0).sum()
        across += (length_P != np.minimum(starts[home_P + 1] - first_P, width)).sum()
        tokens_in_rows += inspected.batch["attention_mask"].sum()
        positions += inspected.batch["attention_mask"].size
        for i, (row, mask, segment_ids) in enumerate(
            zip(
                restore_tokens(inspected.batch),
                inspected.batch["attention_mask"],
                inspected.batch["segment_ids"],
            )
        ):
            first, length = first_P[row_P == i].tolist(), length_P[row_P == i].tolist()
            expected = [k for k, n in enumerate(length, 1) for _ in range(n + 2)]
            uncounted += segment_ids.tolist() != expected + [0] * int((~mask).sum())
            for k, (start, n) in enumerate(zip(first, length), 1):
                segment = row[segment_ids == k]
                frames += (
                    len(segment) < 2
                    or segment[0] != vocabulary.cls
                    or segment[-1] != vocabulary.sep
                )
                other_text += not np.array_equal(segment[1:-1], tokens[start : start + n])
    return [
        check_absence("pieces across documents, or cut where the row had room", across),
        check_absence("pieces that are not framed by [CLS] and [SEP]", frames),
        check_absence("rows whose pieces are not 1 1 1 2 2 ... 0 0", uncounted),
        check_absence("pieces whose text is not the store's", other_text),
        Check(
            "share of the rows that is not padding",
            True,
            f"{tokens_in_rows / positions:.4f}",
            "as near to 1 as the lengths allow",
        ),
    ]


def check_document_rows(stream: RowStream, batches: Sequence[InspectedBatch]) -> list[Check]:
    """Check rows of one document, or of one window of the stream."""
    table: DocumentRows | CropRows | WindowRows | SentenceRows = stream.table
    tokens, starts = stream.split.tokens, stream.split.document_starts
    across = other_text = 0
    separate = isinstance(table, DocumentRows | CropRows)
    for inspected in batches:
        if isinstance(table, CropRows):
            first_B, _ = table.locate_spans(inspected.row_B, inspected.key_B)
        else:
            first_B, _ = table.locate_spans(inspected.row_B)
        if not separate:
            _, first_B = table.find_separators(first_B)
        for row, mask, first in zip(
            restore_tokens(inspected.batch), inspected.batch["attention_mask"], first_B.tolist()
        ):
            body = row[1 : mask.sum() - 1]
            if separate:
                other_text += not np.array_equal(body, tokens[first : first + len(body)])
                across += ((starts > first) & (starts < first + len(body))).any()
            else:
                text_holds, separators_hold = compare_to_store(
                    body, first, tokens, starts, stream.vocabulary.sep
                )
                other_text, across = other_text + (not text_holds), across + (not separators_hold)
    more = check_sentence_rows(stream, batches) if isinstance(table, SentenceRows) else []
    promise = "rows across documents" if separate else "rows with documents not separated"
    return [
        check_absence(promise, across),
        check_absence("rows whose text is not the store's", other_text),
        *more,
    ]


def check_sentence_rows(stream: RowStream, batches: Sequence[InspectedBatch]) -> list[Check]:
    """Check rows of full sentences.

    Only a sentence longer than a row may be cut, and no row has room for the next sentence.
    """
    table: SentenceRows = stream.table
    width, split, starts = table.width, stream.split, stream.split.sentence_starts
    ends = {int(split.document_starts[source.documents[1]]) for source in split.sources}
    cut = roomy = 0
    for inspected in batches:
        start_B, _ = table.locate_spans(inspected.row_B)
        _, first_B = table.find_separators(start_B)
        for row, mask, first in zip(
            restore_tokens(inspected.batch), inspected.batch["attention_mask"], first_B.tolist()
        ):
            body = row[1 : mask.sum() - 1]
            end = first + int((body != stream.vocabulary.sep).sum())
            for border in (first, end):
                i = np.searchsorted(starts, border)
                cut += starts[i] != border and starts[i] - starts[i - 1] <= width
            # The sentence after the next, if one begins here.
            i = np.searchsorted(starts, end, side="right")
            if end not in ends and starts[i - 1] == end:
                following = int(starts[i] - end)
                following //= -(-following // width)
                separator = (
                    split.document_starts[np.searchsorted(split.document_starts, end)] == end
                )
                roomy += len(body) + separator + following <= width
    return [
        check_absence("rows that begin or end within a sentence", cut),
        check_absence("rows with room for the next sentence", roomy),
    ]


def check_sentence_pairs(stream: RowStream, batches: Sequence[InspectedBatch]) -> list[Check]:
    """Check the text and the labels of rows of sentence_pair."""
    table: SentencePairRows = stream.table
    tokens, starts = stream.split.tokens, stream.split.document_starts
    vocabulary = stream.vocabulary
    across = mislabelled = layout = other_text = other = num_rows = 0
    for inspected in batches:
        batch, text_BL = inspected.batch, restore_tokens(inspected.batch)
        (a_start, a), (b_start, b), _ = table.draw_pairs(
            inspected.row_B,
            inspected.key_B,
            stream.objective.short_seq_prob,
            stream.objective.random_next,
        )
        a_document = np.searchsorted(starts, a_start, side="right")
        b_document = np.searchsorted(starts, b_start, side="right")
        across += (np.searchsorted(starts, a_start + a - 1, side="right") != a_document).sum()
        across += (np.searchsorted(starts, b_start + b - 1, side="right") != b_document).sum()
        same_document = a_document == b_document
        follows = same_document & (b_start == a_start + a)
        mislabelled += np.where(batch["next_sentence_labels"] == 0, ~follows, same_document).sum()
        other, num_rows = other + batch["next_sentence_labels"].sum(), num_rows + len(a_document)
        for i, row in enumerate(text_BL):
            first = tokens[a_start[i] : a_start[i] + a[i]].tolist()
            second = tokens[b_start[i] : b_start[i] + b[i]].tolist()
            expected = [vocabulary.cls, *first, vocabulary.sep, *second, vocabulary.sep]
            other_text += row[batch["attention_mask"][i]].tolist() != expected
            token_types = batch["token_type_ids"][i]
            layout += (
                token_types.sum() != b[i] + 1 or not token_types[a[i] + 2 : a[i] + b[i] + 3].all()
            )
    return [
        check_absence("segments across documents", across),
        check_absence("labels that are wrong", mislabelled),
        check_share(
            "second segments from elsewhere", other, num_rows, stream.objective.random_next
        ),
        check_absence("rows whose segments are not 0 ... 0 1 ... 1", layout),
        check_absence("rows whose text is not the store's", other_text),
    ]


def check_sentence_order(stream: RowStream, batches: Sequence[InspectedBatch]) -> list[Check]:
    """Check the text and the labels of rows of sentence_order, whose true order is in the store."""
    table: ChunkRows = stream.table
    tokens, starts, sep = stream.split.tokens, stream.split.document_starts, stream.vocabulary.sep
    across = mislabelled = layout = other_text = swapped = num_rows = 0
    for inspected in batches:
        batch, counts_B = inspected.batch, inspected.batch["sentence_order_weights"] > 0
        (start_B, a_B), (_, b_B), *_ = table.draw_halves(
            inspected.row_B, inspected.key_B, stream.objective.short_seq_prob
        )
        across += (
            np.searchsorted(starts, start_B, "right")
            != np.searchsorted(starts, start_B + a_B + b_B - 1, "right")
        ).sum()
        mislabelled += (counts_B != (b_B > 0)).sum()
        swapped, num_rows = (
            swapped + batch["sentence_order_labels"][counts_B].sum(),
            num_rows + counts_B.sum(),
        )
        for i, row in enumerate(restore_tokens(batch)):
            body, token_types = row[batch["attention_mask"][i]][1:-1], batch["token_type_ids"][i]
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
                token_types.sum() != len(second) + 1
                or not token_types[cut + 2 : len(body) + 2].all()
            )
    return [
        check_absence("segments across documents", across),
        check_absence("labels that are wrong", mislabelled),
        check_share("segments in the other order", swapped, num_rows, 0.5),
        check_absence("rows whose segments are not 0 ... 0 1 ... 1", layout),
        check_absence("rows whose text is not the store's", other_text),
    ]
