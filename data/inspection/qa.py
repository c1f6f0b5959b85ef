"""What rows of questions promise: the question, the right part of its context, and the answer's own tokens where it is there."""

from data.inspection.checks import none, specials
from data.inspection.rendering import spaced
from data.store.qa_reader import opened


def windows(stream, seen, token_id):
    """answer_span."""
    objective, vocabulary, split = stream.objective, stream.vocabulary, stream.split
    spans_Q6 = opened(split).spans_Q6
    other_text = targets = segments = padding = behind = 0
    for each in seen:
        batch = each.batch
        padding += (batch["token_ids"][~batch["attention_mask"]] != vocabulary.pad).sum()
        for row, number in enumerate(batch["question_ids"].tolist()):
            asked, asked_end, first, last, answer, answer_end = spans_Q6[number].tolist()
            question = split.tokens[asked:asked_end].tolist()[: objective.question]
            head = [vocabulary.cls, *question, *[vocabulary.sep] * objective.separators]
            room, skipped = objective.length - len(head) - 1, int(batch["context_offsets"][row])
            part = split.tokens[first + skipped : last].tolist()[:room]
            ids = batch["token_ids"][row, batch["attention_mask"][row]].tolist()
            other_text += ids != [*head, *part, vocabulary.sep] or batch["context_starts"][
                row
            ] != len(head)
            segments += batch["token_type_ids"][row].tolist() != [
                int(len(head) <= i < len(ids)) for i in range(objective.length)
            ]
            behind += skipped % (room - objective.stride) != 0 or not 0 <= skipped < max(
                1, last - first - objective.stride
            )
            low, high = answer - first - skipped, answer_end - first - skipped
            there = answer >= 0 and 0 <= low and high <= len(part)
            expected = (len(head) + low, len(head) + high - 1) if there else (0, 0)
            targets += (
                int(batch["start_positions"][row]),
                int(batch["end_positions"][row]),
            ) != expected
    return [
        specials(vocabulary, token_id, "pad", "cls", "sep"),
        none("rows with other text than the question's and its context's", other_text),
        none("rows whose targets are not the answer's tokens", targets),
        none("parts that begin elsewhere than the one before them says", behind),
        none("rows whose segments are not their texts", segments),
        none("tokens in padding", padding),
    ]


def window_row(stream, seen, i):
    """One row for reading."""
    batch, length = seen.batch, int(seen.batch["attention_mask"][i].sum())
    tokens, (start, end) = (
        batch["token_ids"][i, :length].tolist(),
        (int(batch[key][i]) for key in ("start_positions", "end_positions")),
    )
    return {
        "row": int(seen.row_B[i]),
        "tokens": [spaced(stream.vocabulary, token) for token in tokens],
        "padding": int(batch["attention_mask"].shape[1] - length),
        "segments": batch["token_type_ids"][i, :length].tolist(),
        "answer": stream.vocabulary.decode(tokens[start : end + 1])
        if start
        else "not in this part of the context",
    }
