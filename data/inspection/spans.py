"""What rows of removed spans promise: how many tokens are gone, the sentinels in their places, and the text when they are put back."""

import numpy as np

from data.inspection.checks import Check, ends, none, specials


def spans(stream, seen, token_id):
    """Measure spans that sentinels replace."""
    objective, vocabulary = stream.objective, stream.vocabulary
    tokenizer = [token_id(f"<extra_id_{i}>") for i in range(objective.spans)]
    from_end = [vocabulary.size - 1 - i for i in range(objective.spans)]
    foreign = gaps = loss = other_text = 0
    seen, unmarked = split_modes(objective, vocabulary, seen)
    removed, rows = 0, 0
    for each in seen:
        batch = each.batch
        inputs_BL, labels_BT = batch["encoder_token_ids"], batch["labels"]
        start_B = stream.table.starts(each.row_B)
        for inputs, targets, start in zip(inputs_BL, labels_BT, start_B.tolist()):
            foreign += inputs[np.isin(inputs, vocabulary.sentinels)].tolist() != tokenizer
            raw, gone = rebuild(inputs.tolist(), targets.tolist(), set(vocabulary.sentinels))
            other_text += raw != stream.split.tokens[start : start + objective.raw_length].tolist()
            removed, rows = removed + gone, rows + 1
        gaps += (~batch["encoder_attention_mask"]).sum() + (inputs_BL == vocabulary.pad).sum()
        gaps += (inputs_BL[:, -1] != vocabulary.eos).sum()
        gaps += (labels_BT[:, -1] != vocabulary.eos).sum()
        loss += ((batch["label_weights"] > 0) & (labels_BT == vocabulary.pad)).sum()
        loss += (batch["label_weights"] == 0).sum()
    raw, share, mean = (
        objective.raw_length,
        removed / (rows * objective.raw_length),
        removed / (rows * objective.spans),
    )
    return [
        Check(
            "share of tokens removed",
            abs(share - objective.noise_density) <= 0.5001 / raw or objective.noise == 1,
            f"{share:.4f}",
            f"{objective.noise_density} of {raw}, rounded",
        ),
        Check(
            "mean span",
            abs(removed / rows / objective.mean_span - objective.spans) <= 0.5001
            or objective.spans == 1,
            f"{mean:.3f} ({objective.spans} spans a row)",
            f"{objective.mean_span}, so that spans are whole",
        ),
        Check(
            "sentinels are the tokenizer's <extra_id_0> ...",
            not foreign and None not in tokenizer,
            f"{foreign} rows differ",
            f"{ends(tokenizer)} in every row",
        ),
        Check(
            "sentinels count down from the vocabulary's end",
            tokenizer == from_end,
            ends(tokenizer),
            ends(from_end),
        ),
        specials(vocabulary, token_id, "eos"),
        none("gaps in rows (padding, no </s>)", gaps),
        none("losses on padding, tokens without loss", loss),
        none("rows that do not rebuild the store's text", other_text),
        *unmarked,
    ]


def split_modes(objective, vocabulary, seen):
    """Return (the batches without the mode tokens that their rows begin with, what is to be said of these)."""
    if not objective.mode:
        return seen, []
    mode, wrong, found = objective.find_mode(vocabulary), 0, []
    for each in seen:
        inputs_BL = each.batch["encoder_token_ids"]
        wrong += (inputs_BL[:, 0] != mode).sum()
        mask_BL = each.batch["encoder_attention_mask"]
        rest = {"encoder_token_ids": inputs_BL[:, 1:], "encoder_attention_mask": mask_BL[:, 1:]}
        found.append(each._replace(batch=each.batch | rest))
    return found, [none(f"rows that do not begin with {objective.mode}", wrong)]


def rebuild(inputs, targets, sentinels):
    """(raw ids, number that were removed): each sentinel of the inputs replaced by what follows it in the targets."""
    pieces, current = {}, []
    for token in targets[:-1]:
        if token in sentinels:
            current = pieces.setdefault(token, [])
        else:
            current.append(token)
    raw = []
    for token in inputs[:-1]:
        raw += pieces.get(token, []) if token in sentinels else [token]
    return raw, sum(map(len, pieces.values()))
