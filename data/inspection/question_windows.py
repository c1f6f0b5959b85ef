"""Checks of rows of questions: the question, the right window of its context, and the answer."""

from collections.abc import Callable, Sequence
from typing import Any

from data.inspection.checks import (
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_special_ids,
)
from data.inspection.rendering import decode_spaced_token
from data.rows.frames import unframe_batch
from data.store.qa_reader import open_questions


def check_windows(
    stream: RowStream, seen: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
) -> list[Check]:
    """Check batches of answer_span."""
    objective, vocabulary, split = stream.objective, stream.vocabulary, stream.split
    spans_Q6 = open_questions(split).spans_Q6
    other_text = targets = segments = padding = misplaced = 0
    for inspected in seen:
        batch = unframe_batch(objective, inspected.batch)
        padding += (batch["token_ids"][~batch["attention_mask"]] != vocabulary.pad).sum()
        for row, number in enumerate(batch["question_ids"].tolist()):
            begin, end, first, last, answer, answer_end = spans_Q6[number].tolist()
            question = split.tokens[begin:end].tolist()[: objective.question]
            head = [vocabulary.cls, *question, *[vocabulary.sep] * objective.separators]
            room, skipped = objective.length - len(head) - 1, int(batch["context_offsets"][row])
            window = split.tokens[first + skipped : last].tolist()[:room]
            ids = batch["token_ids"][row, batch["attention_mask"][row]].tolist()
            context_start = batch["context_starts"][row]
            other_text += ids != [*head, *window, vocabulary.sep] or context_start != len(head)
            segments += batch["token_type_ids"][row].tolist() != [
                int(len(head) <= i < len(ids)) for i in range(objective.length)
            ]
            misplaced += skipped % (room - objective.stride) != 0 or not 0 <= skipped < max(
                1, last - first - objective.stride
            )
            low, high = answer - first - skipped, answer_end - first - skipped
            has_answer = answer >= 0 and 0 <= low and high <= len(window)
            expected = (len(head) + low, len(head) + high - 1) if has_answer else (0, 0)
            targets += (
                int(batch["start_positions"][row]),
                int(batch["end_positions"][row]),
            ) != expected
    return [
        check_special_ids(vocabulary, token_id, "pad", "cls", "sep"),
        check_absence("rows with other text than the question's and its context's", other_text),
        check_absence("rows whose targets are not the answer's tokens", targets),
        check_absence("windows that begin at a wrong offset in their context", misplaced),
        check_absence("rows whose segments are not their texts", segments),
        check_absence("tokens in padding", padding),
    ]


def render_window(stream: RowStream, seen: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i in readable form."""
    batch, length = seen.batch, int(seen.batch["attention_mask"][i].sum())
    tokens = batch["token_ids"][i, :length].tolist()
    start, end = (int(batch[key][i]) for key in ("start_positions", "end_positions"))
    return {
        "row": int(seen.row_B[i]),
        "tokens": [decode_spaced_token(stream.vocabulary, token) for token in tokens],
        "padding": int(batch["attention_mask"].shape[1] - length),
        "segments": batch["token_type_ids"][i, :length].tolist(),
        "answer": stream.vocabulary.decode(tokens[start : end + 1])
        if tokens[start : end + 1] != [stream.vocabulary.cls]
        else "not in this part of the context",
    }
