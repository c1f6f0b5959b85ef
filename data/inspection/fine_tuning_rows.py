"""Rows of fine-tuning in readable form: texts with labels, tags, choices, or an answer's span."""

from typing import Any

import numpy as np

from data.inspection.checks import InspectedBatch, RowStream
from data.inspection.rendering import decode_spaced_token


def render_text_row(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return the number, the tokens and the padding of row i."""
    batch, length = inspected.batch, int(inspected.batch["attention_mask"][i].sum())
    return {
        "row": int(inspected.row_B[i]),
        "tokens": [
            decode_spaced_token(stream.vocabulary, token)
            for token in batch["token_ids"][i, :length].tolist()
        ],
        "padding": int(batch["attention_mask"].shape[1] - length),
    }


def list_token_types(inspected: InspectedBatch, i: int) -> list[int]:
    """Return the token types of row i without its padding."""
    length = int(inspected.batch["attention_mask"][i].sum())
    return inspected.batch["token_type_ids"][i, :length].tolist()


def render_label(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i with its class or score."""
    label = inspected.batch["labels"][i]
    is_class = inspected.batch["labels"].dtype.kind == "i"
    return render_text_row(stream, inspected, i) | {
        "segments": list_token_types(inspected, i),
        "label": f"class {label}" if is_class else f"score {label:g}",
    }


def render_tags(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i with the tag at the first token of each word, as `position:tag`."""
    positions = np.flatnonzero(inspected.batch["label_weights"][i])
    tags = inspected.batch["labels"][i][positions]
    pairs = zip(positions.tolist(), tags.tolist())
    return render_text_row(stream, inspected, i) | {
        "label": " ".join(f"{position}:{tag}" for position, tag in pairs)
    }


def render_choice(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return question i as the row of its right choice."""
    right = int(inspected.batch["labels"][i])
    batch = {
        key: array[:, right] if array.ndim == 3 else array for key, array in inspected.batch.items()
    }
    chosen = inspected._replace(batch=batch)
    return render_text_row(stream, chosen, i) | {
        "segments": list_token_types(chosen, i),
        "label": f"choice {right}, as shown",
    }


def render_texts(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return the texts of example i, of which each is a row, and its score if there is one."""
    batch, decode = inspected.batch, stream.vocabulary.decode
    texts = [
        decode(ids_L[mask_L].tolist())
        for ids_L, mask_L in zip(batch["token_ids"][i], batch["attention_mask"][i])
    ]
    score = {"label": f"score {batch['labels'][i]:g}"} if "labels" in batch else {}
    return {"row": int(inspected.row_B[i]), "texts": texts} | score


def render_answer(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i, a question and a window of its context, with the answer in it."""
    start, end = (int(inspected.batch[key][i]) for key in ("start_positions", "end_positions"))
    answer = inspected.batch["token_ids"][i, start : end + 1].tolist()
    is_absent = answer == [stream.vocabulary.cls]
    return render_text_row(stream, inspected, i) | {
        "segments": list_token_types(inspected, i),
        "answer": "not in this part of the context"
        if is_absent
        else stream.vocabulary.decode(answer),
    }
