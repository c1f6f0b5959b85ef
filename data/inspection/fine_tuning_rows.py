"""Rows of fine-tuning in readable form: texts with a label, tags, choices, or an answer's span."""

from typing import Any

import numpy as np

from data.inspection.checks import InspectedBatch, RowStream
from data.inspection.rendering import decode_spaced_token


def render_text_row(stream: RowStream, seen: InspectedBatch, i: int) -> dict[str, Any]:
    """Return the number, the tokens and the padding of row i."""
    batch, length = seen.batch, int(seen.batch["attention_mask"][i].sum())
    return {
        "row": int(seen.row_B[i]),
        "tokens": [
            decode_spaced_token(stream.vocabulary, token)
            for token in batch["token_ids"][i, :length].tolist()
        ],
        "padding": int(batch["attention_mask"].shape[1] - length),
    }


def list_token_types(seen: InspectedBatch, i: int) -> list[int]:
    """Return the token types of row i without its padding."""
    length = int(seen.batch["attention_mask"][i].sum())
    return seen.batch["token_type_ids"][i, :length].tolist()


def render_label(stream: RowStream, seen: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i with its class or score."""
    label = seen.batch["labels"][i]
    is_class = seen.batch["labels"].dtype.kind == "i"
    return render_text_row(stream, seen, i) | {
        "segments": list_token_types(seen, i),
        "label": f"class {label}" if is_class else f"score {label:g}",
    }


def render_tags(stream: RowStream, seen: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i with the tag at the first token of each word, as `position:tag`."""
    positions = np.flatnonzero(seen.batch["label_weights"][i])
    tags = seen.batch["labels"][i][positions]
    pairs = zip(positions.tolist(), tags.tolist())
    return render_text_row(stream, seen, i) | {
        "label": " ".join(f"{position}:{tag}" for position, tag in pairs)
    }


def render_choice(stream: RowStream, seen: InspectedBatch, i: int) -> dict[str, Any]:
    """Return question i as the row of its right choice."""
    right = int(seen.batch["labels"][i])
    batch = {
        key: array[:, right] if array.ndim == 3 else array for key, array in seen.batch.items()
    }
    chosen = seen._replace(batch=batch)
    return render_text_row(stream, chosen, i) | {
        "segments": list_token_types(chosen, i),
        "label": f"choice {right}, as shown",
    }


def render_answer(stream: RowStream, seen: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i, a question and a window of its context, with the answer in it."""
    start, end = (int(seen.batch[key][i]) for key in ("start_positions", "end_positions"))
    answer = seen.batch["token_ids"][i, start : end + 1].tolist()
    is_absent = answer == [stream.vocabulary.cls]
    return render_text_row(stream, seen, i) | {
        "segments": list_token_types(seen, i),
        "answer": "not in this part of the context"
        if is_absent
        else stream.vocabulary.decode(answer),
    }
