"""One real batch, decoded for the eye, and what its objective promises, measured on a few batches.

The measurements read nothing but the batches, the store and the row table, and recompute each promise in their own way:
text is compared with the store's tokens, words and documents are walked, shares are held against their binomial spread.
"""

from dataclasses import asdict

import numpy as np

from data import batch_spec
from data.inspection.causal import answers, continuations, successions, translations
from data.inspection.checks import Check, Seen, ends, none, specials, within
from data.inspection.denoising import damages
from data.inspection.labelled import labelled_row, labels
from data.inspection.multiple_choice import choices, question_row
from data.inspection.qa import window_row, windows
from data.inspection.rendering import masked_row, next_row, part_row, span_row
from data.inspection.rows import orders, originals, pairs, texts
from data.inspection.tagging import tagged_row, tags

ROWS = {
    "sentence_pair": pairs,
    "sentence_order": orders,
}  # what is promised of rows that are not `texts`


def inspect(stream, step=0, batches=8, rows=4, token_id=None):
    """{"objective", "step", "batches", "passed", "checks", "rows"}: measured from `step` on, some rows decoded.

    token_id: from a piece to its id in the tokenizer that the model will be used with; default: the store's vocabulary.
    If keys, shapes or ids are wrong, nothing further can be read, and the report ends there.
    """
    check, describe = OBJECTIVES.get(stream.objective.name, (masks, masked_row))
    token_id = token_id or {piece: i for i, piece in enumerate(stream.vocabulary.pieces)}.get
    seen = [look(stream, step + i) for i in range(batches)]
    checks, shown = common(stream, seen, step), []
    if checks[0].passed and checks[1].passed:
        checks += check(stream, seen, token_id)
        shown = [describe(stream, seen[0], i) for i in range(min(rows, len(seen[0].row_B)))]
    return {
        "objective": stream.objective.name,
        "step": step,
        "batches": batches,
        "passed": all(check.passed for check in checks),
        "checks": [asdict(check) for check in checks],
        "rows": shown,
    }


def look(stream, step):
    return Seen(
        stream.batch(step),
        *stream.draws(step * stream.data.batch_size + np.arange(stream.data.batch_size)),
    )


def common(stream, seen, step):
    """What holds for every objective; first of all keys and shapes, then ids."""
    size, vocabulary = stream.data.batch_size, stream.vocabulary
    shapes = "as data/batch_spec.py says"
    try:
        for each in seen:
            batch_spec.check(each.batch, stream.objective, size)
    except ValueError as error:
        shapes = str(error)
    ids = [
        each.batch[key]
        for each in seen
        for key in each.batch.keys() & {"token_ids", "encoder_token_ids", "labels"}
    ]
    low, high = min(int(i.min()) for i in ids), max(int(i.max()) for i in ids)
    halves = [
        stream.batch(step, lo, hi) for lo, hi in ((0, size // 2), (size // 2, size)) if lo < hi
    ]
    whole = {key: np.concatenate([half[key] for half in halves]) for key in halves[0]}
    same = all(np.array_equal(whole[key], array) for key, array in seen[0].batch.items())
    return [
        Check(
            "keys, types and shapes", shapes.startswith("as"), shapes, "as data/batch_spec.py says"
        ),
        Check(
            "ids in the vocabulary",
            0 <= low <= high < vocabulary.size,
            f"{low} to {high}",
            f"0 to {vocabulary.size - 1}",
        ),
        Check("two hosts read what one reads", same, "equal" if same else "different", "equal"),
    ]


def replacements(stream, seen, token_id):
    """replaced_token: words masked as [MASK] alone, what draws others in their places, and every token judged."""
    chances = np.concatenate([each.batch["uniforms"].ravel() for each in seen])
    unjudged = sum(
        (each.batch["discriminator_weights"] != each.batch["attention_mask"]).sum() for each in seen
    )
    return [
        *masks(stream, seen, token_id, (1.0, 0.0)),
        none("chances below 0, or of 1 and more", ((chances < 0) | (chances >= 1)).sum()),
        *(
            within(f"chances below {at}", (chances < at).sum(), chances.size, at)
            for at in (0.1, 0.5, 0.9)
        ),
        none("tokens not judged, padding judged", unjudged),
    ]


def masks(stream, seen, token_id, shares=(0.8, 0.1)):
    """masked_lm, sentence_pair and sentence_order; shares: of the masked words, those that become [MASK], and another word."""
    objective, vocabulary = stream.objective, stream.vocabulary
    masked = tokens = wanted = wrong_rows = special = padding = disorder = torn = 0
    actions = np.zeros(3, np.int64)  # [MASK], another id, the same id
    for each in seen:
        batch, text_BL = each.batch, originals(each.batch)
        used_BP, valid_BL = batch["label_weights"] > 0, batch["attention_mask"]
        ordinary_B = (valid_BL & ~vocabulary.special[text_BL]).sum(axis=1)
        wanted_B = [
            min(objective.predictions, max(1, round(objective.rate * n)), n)
            for n in ordinary_B.tolist()
        ]
        number_B = used_BP.sum(axis=1)
        masked, tokens, wanted = (
            masked + number_B.sum(),
            tokens + ordinary_B.sum(),
            wanted + sum(wanted_B),
        )
        wrong_rows += (
            (number_B > wanted_B).sum() if objective.whole_words else (number_B != wanted_B).sum()
        )
        special += vocabulary.special[batch["labels"][used_BP]].sum()
        padding += (
            used_BP & ~np.take_along_axis(valid_BL, batch["masked_positions"], axis=1)
        ).sum()
        padding += (batch["token_ids"][~valid_BL] != vocabulary.pad).sum()
        disorder += (used_BP[:, 1:] & (np.diff(batch["masked_positions"], axis=1) <= 0)).sum()
        shown = np.take_along_axis(batch["token_ids"], batch["masked_positions"], axis=1)[used_BP]
        same = shown == batch["labels"][used_BP]
        actions += (
            (shown == vocabulary.mask).sum(),
            ((shown != vocabulary.mask) & ~same).sum(),
            same.sum(),
        )
        torn += torn_words(batch, text_BL, vocabulary) if objective.whole_words else 0
    share = masked / max(tokens, 1)
    rate_holds = wrong_rows == 0 and (not objective.whole_words or masked >= 0.8 * wanted)
    as_mask, as_other = shares
    chance = as_other / (~vocabulary.special).sum()  # a random id is the true one
    bound = "at most " if objective.whole_words else ""
    return [
        Check(
            "share of tokens masked",
            bool(rate_holds),
            f"{share:.4f} ({masked:,} of {tokens:,}; {wrong_rows} rows off)",
            f"{bound}{objective.rate} of each row, rounded",
        ),
        within("masked as [MASK]", actions[0], masked, as_mask),
        within("masked by another word", actions[1], masked, as_other - chance),
        within("masked as itself", actions[2], masked, 1 - as_mask - as_other + chance),
        specials(vocabulary, token_id, "pad", "cls", "sep", "mask"),
        none("special tokens masked", special),
        none("losses on padding, tokens in it", padding),
        none("positions out of order", disorder),
        *([none("words masked in part", torn)] if objective.whole_words else []),
        *ROWS.get(objective.name, texts)(stream, seen),
    ]


def spans(stream, seen, token_id):
    """span_corruption."""
    objective, vocabulary = stream.objective, stream.vocabulary
    tokenizer = [token_id(f"<extra_id_{i}>") for i in range(objective.spans)]
    from_end = [vocabulary.size - 1 - i for i in range(objective.spans)]
    foreign = gaps = loss = other_text = 0
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
            abs(share - objective.rate) <= 0.5001 / raw or objective.noise == 1,
            f"{share:.4f}",
            f"{objective.rate} of {raw}, rounded",
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
    ]


def torn_words(batch, text_BL, vocabulary):
    """Words of which some pieces are masked and others not."""
    torn = 0
    for text, valid, positions, weights in zip(
        text_BL.tolist(), batch["attention_mask"], batch["masked_positions"], batch["label_weights"]
    ):
        masked, words = set(positions[weights > 0].tolist()), []
        for i in range(int(valid.sum())):
            breaks = vocabulary.special[text[i]] and text[i] != vocabulary.unk
            if breaks or vocabulary.starts_word[text[i]] or not words:
                words.append([])
            words[-1].append(i)
            if breaks:
                words.append([])
        torn += sum(0 < len(masked.intersection(word)) < len(word) for word in words)
    return torn


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


OBJECTIVES = {  # all others mask words
    "span_corruption": (spans, span_row),
    "causal_lm": (successions, next_row),
    "prefix_lm": (continuations, part_row),
    "replaced_token": (replacements, masked_row),
    "seq2seq": (translations, part_row),
    "denoising": (damages, part_row),
    "classification": (labels, labelled_row),
    "regression": (labels, labelled_row),
    "tagging": (tags, tagged_row),
    "multiple_choice": (choices, question_row),
    "text2text": (answers, part_row),
    "answer_span": (windows, window_row),
}
