"""What rows of labelled examples promise: the texts of an example with what stands between them, cut at their ends, and its own label."""

from data.inspection.checks import none, specials
from data.inspection.rendering import spaced


def labels(stream, seen, token_id):
    """classification and regression."""
    objective, vocabulary, split = stream.objective, stream.vocabulary, stream.split
    edges, count = split.sentence_starts, len(split.labels)
    texts = (len(edges) - 1) // count
    unbounded = other_text = other_label = padding = segments = shorter = 0
    for each in seen:
        batch = each.batch
        found = batch["labels"]
        other_label += (found != split.labels[each.row_B]).sum()
        padding += (batch["token_ids"][~batch["attention_mask"]] != vocabulary.pad).sum()
        for row, number in enumerate(each.row_B.tolist()):
            ids = batch["token_ids"][row, batch["attention_mask"][row]].tolist()
            whole = [
                split.tokens[edges[texts * number + i] : edges[texts * number + i + 1]].tolist()
                for i in range(texts)
            ]
            second = ids.index(vocabulary.sep) + objective.separators if texts == 2 else len(ids)
            parts = [ids[1 : ids.index(vocabulary.sep)], ids[second:-1]][:texts]
            unbounded += ids[0] != vocabulary.cls or ids[-1] != vocabulary.sep
            other_text += any(part != text[: len(part)] for part, text in zip(parts, whole))
            segments += batch["token_type_ids"][row].tolist() != [
                int(second <= i < len(ids)) for i in range(objective.length)
            ]
            shorter += (
                list(map(len, parts)) != list(map(len, whole)) and len(ids) < objective.length
            )
    return [
        specials(vocabulary, token_id, "pad", "cls", "sep"),
        none("labels that are not the example's", other_label),
        none("rows that do not begin and end with special tokens", unbounded),
        none("rows with other text than the example's", other_text),
        none("texts that are cut though the row has room", shorter),
        none("rows whose segments are not their texts", segments),
        none("tokens in padding", padding),
    ]


def labelled_row(stream, seen, i):
    """One row for reading."""
    batch, length = seen.batch, int(seen.batch["attention_mask"][i].sum())
    label = batch["labels"][i]
    label = f"class {label}" if batch["labels"].dtype.kind == "i" else f"score {label:g}"
    return {
        "row": int(seen.row_B[i]),
        "tokens": [
            spaced(stream.vocabulary, token) for token in batch["token_ids"][i, :length].tolist()
        ],
        "padding": int(batch["attention_mask"].shape[1] - length),
        "segments": batch["token_type_ids"][i, :length].tolist(),
        "label": label,
    }
