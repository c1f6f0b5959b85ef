"""Which curves a run has, from the rows of its metrics."""

import re
from typing import NamedTuple

# (file, title of the y axis, the key of a row, its held-out counterpart); `accuracy` stands for the first name that ends so
CURVES = (
    ("loss.png", "loss (nats)", "loss", "heldout_loss"),
    ("accuracy.png", "share of targets guessed", "accuracy", "heldout_accuracy"),
    ("gradient_norm.png", "gradient norm", "gradient_norm", None),
    ("learning_rate.png", "learning rate", "learning_rate", None),
    ("tokens_per_second.png", "tokens/s", "tokens_per_second", None),
    ("mfu.png", "MFU", "mfu", None),
)


APART = (
    "step",
    "time",
    "tokens",
    "seconds",
    "heldout_targets",
    "heldout_rows",
)  # what is told elsewhere, or never changes


HELD = "heldout_"


def series(rows, key):
    """(steps, values) of the rows that have `key`."""
    rows = [row for row in rows if row.get(key) is not None]  # null: a skipped step's
    return [row["step"] for row in rows], [row[key] for row in rows]


class Curve(NamedTuple):
    """file: of its picture, None of those without one; train, heldout: the keys of its values in a row, or None."""

    file: str | None
    label: str
    train: str | None
    heldout: str | None


def drawn(rows):
    """The `Curve`s of a run: what is held out of CURVES and the scores that have no other, the others of CURVES, then whatever else."""
    keys = dict.fromkeys(
        key for row in rows for key, value in row.items() if isinstance(value, int | float)
    )
    found = []
    for file, label, *own in CURVES:
        train, heldout = (key and named(keys, key) for key in own)
        if train and heldout and HELD + train in keys:  # of several, that of the same name
            heldout = HELD + train
        if train or heldout:
            found.append(Curve(file, label, train, heldout))
    known = {*APART, *(key for curve in found for key in curve[2:])}
    known |= {key for key in keys if key.endswith(("/rows", "/targets"))}
    losses = [series(rows, key) for key in ("loss", HELD + "loss")]
    scores, rest = [], []
    for name in dict.fromkeys(key.removeprefix(HELD) for key in keys if key not in known):
        train, heldout = (
            key if key in keys and key not in known and series(rows, key) not in losses else None
            for key in (name, HELD + name)
        )
        if train and not any(series(rows, train)[1]):
            train = None
        label = name.replace("_", " ")
        if train:
            rest.append(Curve(None, label, train, heldout))
        elif heldout:
            file = re.sub(r"\W+", "_", heldout)
            while f"{file}.png" in (curve.file for curve in scores):
                file += "_"
            scores.append(Curve(f"{file}.png", label, None, heldout))
    return sorted(found + scores, key=lambda curve: curve.heldout is None) + rest


def named(keys, key):
    """The name in `keys` that a key of CURVES stands for, or None."""
    if not key.endswith("accuracy"):
        return key if key in keys else None
    prefix = key.removesuffix("accuracy")
    names = (
        name
        for name in keys
        if name.startswith(prefix)
        and name.endswith("_accuracy")
        and (prefix or not name.startswith(HELD))
    )
    return next(names, key if key in keys else None)
