"""What rows of tagged sentences promise: the words of a sentence between special tokens, and the tag of each at its first piece, and nowhere else."""

import numpy as np

from data.inspection.checks import none, specials
from data.inspection.rendering import spaced


def tags(stream, seen, token_id):
    """tagging."""
    objective, vocabulary, split = stream.objective, stream.vocabulary, stream.split
    edges, tag_of = (
        split.document_starts,
        dict(zip(split.sentence_starts[:-1].tolist(), split.tags.astype(int).tolist())),
    )
    unbounded = other_text = other_tags = padding = shorter = 0
    for each in seen:
        batch = each.batch
        padding += (batch["token_ids"][~batch["attention_mask"]] != vocabulary.pad).sum()
        for row, number in enumerate(each.row_B.tolist()):
            ids, start = (
                batch["token_ids"][row, batch["attention_mask"][row]].tolist(),
                int(edges[number]),
            )
            whole = split.tokens[start : edges[number + 1]].tolist()
            unbounded += ids[0] != vocabulary.cls or ids[-1] != vocabulary.sep
            other_text += ids[1:-1] != whole[: len(ids) - 2]
            shorter += len(ids) - 2 < len(whole) and len(ids) < objective.length
            expected = {
                1 + at: tag
                for at in range(len(ids) - 2)
                if (tag := tag_of.get(start + at)) is not None
            }
            where = np.flatnonzero(batch["label_weights"][row]).tolist()
            other_tags += dict(zip(where, batch["labels"][row][where].tolist())) != expected
    return [
        specials(vocabulary, token_id, "pad", "cls", "sep"),
        none("rows whose tags are not those of their words, at their first pieces", other_tags),
        none("rows that do not begin and end with special tokens", unbounded),
        none("rows with other text than the sentence's", other_text),
        none("sentences that are cut though the row has room", shorter),
        none("tokens in padding", padding),
    ]


def tagged_row(stream, seen, i):
    """One row for reading."""
    batch, length = seen.batch, int(seen.batch["attention_mask"][i].sum())
    at = np.flatnonzero(batch["label_weights"][i])
    return {
        "row": int(seen.row_B[i]),
        "tokens": [
            spaced(stream.vocabulary, token) for token in batch["token_ids"][i, :length].tolist()
        ],
        "padding": int(batch["attention_mask"].shape[1] - length),
        "label": " ".join(
            f"{place}:{tag}" for place, tag in zip(at.tolist(), batch["labels"][i][at].tolist())
        ),
    }
