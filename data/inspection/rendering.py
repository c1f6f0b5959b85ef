"""A row of a batch as a person reads it: ids as text, masked words listed, segments and labels in words."""

from data.batch_spec import TOKEN_ID


def token_row(stream, seen, i):
    """Return the tokens of one row: of the keys of token ids those that a model reads first."""
    spec = stream.objective.spec()
    key = next(key for key, field in spec.items() if field.role == TOKEN_ID)
    tokens = seen.batch[key][i].ravel().tolist()
    return {
        "row": int(seen.row_B[i]),
        "tokens": [spaced(stream.vocabulary, token) for token in tokens],
        "padding": 0,
    }


def masked_row(stream, seen, i, label=""):
    """Return one row of masked words, of a pair or not: what the model sees, what it must predict.

    label: of the pair, in words.
    """
    batch, vocabulary = seen.batch, stream.vocabulary
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
            words = {"target": word(vocabulary, target), "shown": word(vocabulary, shown)}
            masked.append({"position": position, **words, "how": how})
    row = {
        "row": int(seen.row_B[i]),
        "tokens": [spaced(vocabulary, token) for token in batch["token_ids"][i, :length].tolist()],
        "padding": int(batch["attention_mask"].shape[1] - length),
        "masked": masked,
    }
    if "token_type_ids" in batch:
        row["segments"] = batch["token_type_ids"][i, :length].tolist()
        row["label"] = label
    return row


def next_row(stream, seen, i):
    """One row of causal_lm for reading: what the model sees, and the token behind it, which it is to tell last."""
    vocabulary = stream.vocabulary
    return {
        "row": int(seen.row_B[i]),
        "tokens": [spaced(vocabulary, token) for token in seen.batch["token_ids"][i].tolist()],
        "next": spaced(vocabulary, int(seen.batch["labels"][i, -1])),
    }


def part_row(stream, seen, i):
    """One row of prefix_lm, seq2seq, text2text or denoising for reading, without padding."""
    batch, row = seen.batch, span_row(stream, seen, i)
    lengths = {
        "inputs": int(batch["encoder_attention_mask"][i].sum()),
        "targets": int(batch["label_weights"][i].sum()),
    }
    return row | {key: row[key][:length] for key, length in lengths.items()}


def span_row(stream, seen, i):
    """One row of span_corruption for reading."""
    inputs, targets = (seen.batch[key][i].tolist() for key in ("encoder_token_ids", "labels"))
    vocabulary = stream.vocabulary
    return {
        "row": int(seen.row_B[i]),
        "inputs": [spaced(vocabulary, token) for token in inputs],
        "targets": [spaced(vocabulary, token) for token in targets],
    }


def word(vocabulary, token):
    """An id as a reader knows it: its text, or its piece where bytes make no text of their own."""
    text = vocabulary.decode([token]).strip()
    return vocabulary.piece(token) if not text or "\ufffd" in text else text.removeprefix("##")


def spaced(vocabulary, token):
    """The same with a blank before it where a word, or a special token, begins; a piece that is a blank is that."""
    text = word(vocabulary, token)
    blank = " " if vocabulary.starts_word[token] or vocabulary.special[token] else ""
    return blank + ("" if text in ("▁", "Ġ") else text)
