"""Rows of a batch in readable form: ids as text, masked tokens listed, labels spelled out."""

from typing import Any

from data.batch_spec import TOKEN_ID, SpecifiedObjective
from data.inspection.checks import InspectedBatch, RowStream
from data.vocabulary.base import Vocabulary


def render_tokens(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return the tokens of row i: the first key of the batch spec that holds token ids."""
    objective: SpecifiedObjective = stream.objective
    key = next(key for key, field in objective.describe_batch().items() if field.role == TOKEN_ID)
    tokens = inspected.batch[key][i].ravel().tolist()
    return {
        "row": int(inspected.row_B[i]),
        "tokens": [decode_spaced_token(stream.vocabulary, token) for token in tokens],
        "padding": 0,
    }


def render_masked_row(
    stream: RowStream, inspected: InspectedBatch, i: int, label: str = ""
) -> dict[str, Any]:
    """Return row i of masked tokens: the model's input and its targets.

    label: the label of a pair, as text.
    """
    batch, vocabulary = inspected.batch, stream.vocabulary
    length, masked = int(batch["attention_mask"][i].sum()), []
    for position, target, weight in zip(
        *(batch[key][i].tolist() for key in ("masked_positions", "labels", "label_weights"))
    ):
        if weight:
            shown = int(batch["token_ids"][i, position])
            how = (
                "as [MASK]"
                if shown == vocabulary.mask
                else "as itself"
                if shown == target
                else "by another word"
            )
            texts = {
                "target": vocabulary.format_token(target),
                "shown": vocabulary.format_token(shown),
            }
            masked.append({"position": position, **texts, "how": how})
    row = {
        "row": int(inspected.row_B[i]),
        "tokens": [
            decode_spaced_token(vocabulary, token)
            for token in batch["token_ids"][i, :length].tolist()
        ],
        "padding": int(batch["attention_mask"].shape[1] - length),
        "masked": masked,
    }
    if "token_type_ids" in batch:
        row["segments"] = batch["token_type_ids"][i, :length].tolist()
        row["label"] = label
    return row


def render_next_token_row(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i of causal_lm: the model's input and the token that follows it."""
    vocabulary = stream.vocabulary
    return {
        "row": int(inspected.row_B[i]),
        "tokens": [
            decode_spaced_token(vocabulary, token)
            for token in inspected.batch["token_ids"][i].tolist()
        ],
        "next": decode_spaced_token(vocabulary, int(inspected.batch["labels"][i, -1])),
    }


def render_unpadded_row(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i of prefix_lm, seq2seq, text2text or denoising, without padding."""
    batch, row = inspected.batch, render_span_row(stream, inspected, i)
    lengths = {
        "inputs": int(batch["encoder_attention_mask"][i].sum()),
        "targets": int(batch["label_weights"][i].sum()),
    }
    return row | {key: row[key][:length] for key, length in lengths.items()}


def render_span_row(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i of span_corruption."""
    inputs, targets = (inspected.batch[key][i].tolist() for key in ("encoder_token_ids", "labels"))
    vocabulary = stream.vocabulary
    return {
        "row": int(inspected.row_B[i]),
        "inputs": [decode_spaced_token(vocabulary, token) for token in inputs],
        "targets": [decode_spaced_token(vocabulary, token) for token in targets],
    }


def decode_spaced_token(vocabulary: Vocabulary, token: int) -> str:
    """Return the text of an id, with a blank before it where a word or a special token begins.

    A token of blanks becomes one blank.
    """
    text = "" if vocabulary.is_blank(token) else vocabulary.format_token(token)
    blank = " " if vocabulary.starts_word[token] or vocabulary.special[token] else ""
    return blank + text
