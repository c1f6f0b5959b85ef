"""Select the curves of a run from the rows of its metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

# (image file, title of the y axis, key of a row, its held-out counterpart). The key `accuracy`
# stands for the first key that ends in `_accuracy`; {unit} is what a run counts, as
# `Objective.unit`.
CURVES = (
    ("loss.png", "loss (nats)", "loss", "heldout_loss"),
    ("accuracy.png", "accuracy", "accuracy", "heldout_accuracy"),
    ("gradient_norm.png", "gradient norm", "gradient_norm", None),
    ("learning_rate.png", "learning rate", "learning_rate", None),
    ("{unit}_per_second.png", "{unit}/s", "tokens_per_second", None),
    ("mfu.png", "MFU", "mfu", None),
)

# Keys without a curve: reported elsewhere, or constant.
KEYS_WITHOUT_CURVE = ("step", "time", "tokens", "seconds", "heldout_targets", "heldout_rows")

HELDOUT_PREFIX = "heldout_"
EMA_PREFIX = f"{HELDOUT_PREFIX}ema/"  # of the scores of the parameters' moving average
MAX_NAME_BYTES = 200  # of an image without its suffix; systems allow names of 255


def extract_series(rows: Iterable[dict[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Return (steps, values) of the rows that have a value for `key`.

    The value of a skipped step is null.
    """
    rows = [row for row in rows if row.get(key) is not None]
    return [row["step"] for row in rows], [row[key] for row in rows]


def find_phase_starts(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return {phase: its first step} of a run; {} for a run without phases."""
    starts = {}
    for row in rows:
        if "phase" in row:
            starts.setdefault(row["phase"], row["step"])
    return starts


class Curve(NamedTuple):
    """One curve.

    Attributes:
      file: name of its image; None if it has no image.
      label: title of the y axis.
      train, heldout: the keys of its values in a row, or None.
      ema: the key of its held-out values by the moving average of the parameters, or None.
    """

    file: str | None
    label: str
    train: str | None
    heldout: str | None
    ema: str | None = None


def describe_key(key: str) -> str:
    """Return the name of a score in words. What has a part or a source keeps its name as it is."""
    name = key.removeprefix(HELDOUT_PREFIX)
    return name if "/" in name else name.replace("_", " ")


def list_curves(rows: Sequence[dict[str, Any]], unit: str = "tokens") -> list[Curve]:
    """Return the curves of a run, which counts `unit`.

    Each has a label of its own. The order: the curves of `CURVES` with held-out values and the
    scores that exist only for held-out rows, the other curves of `CURVES`, then all further keys.
    """
    keys = dict.fromkeys(
        key for row in rows for key, value in row.items() if isinstance(value, int | float)
    )
    curves = []
    for file, label, *patterns in CURVES:
        train, heldout = (pattern and resolve_key(keys, pattern) for pattern in patterns)
        if (
            train and heldout and HELDOUT_PREFIX + train in keys
        ):  # of several, the one of the same name
            heldout = HELDOUT_PREFIX + train
        if train or heldout:
            curves.append(Curve(file.format(unit=unit), label.format(unit=unit), train, heldout))
    known = {*KEYS_WITHOUT_CURVE, *(key for curve in curves for key in curve[2:])}
    known |= {key for key in keys if key.endswith(("/rows", "/targets"))}
    averages = {f"{HELDOUT_PREFIX}{key[len(EMA_PREFIX) :]}": key for key in keys if is_average(key)}
    known |= {*averages.values()}
    losses = [extract_series(rows, key) for key in ("loss", HELDOUT_PREFIX + "loss")]
    scores, rest, labels = [], [], {curve.label for curve in curves}
    for name in dict.fromkeys(key.removeprefix(HELDOUT_PREFIX) for key in keys if key not in known):
        train, heldout = (
            key
            if key in keys and key not in known and extract_series(rows, key) not in losses
            else None
            for key in (name, HELDOUT_PREFIX + name)
        )
        if train and not any(extract_series(rows, train)[1]):
            train = None
        label = describe_key(name)
        if label in labels:  # "accuracy" stands for another key, and the page finds it by the label
            label = f"{label} ({train or heldout})"
        labels.add(label)
        if train:
            rest.append(Curve(None, label, train, heldout))
        elif heldout:
            file = shorten_name(re.sub(r"\W+", "_", heldout))
            while f"{file}.png" in (curve.file for curve in scores):
                file += "_"
            scores.append(Curve(f"{file}.png", label, None, heldout))
    curves = sorted(curves + scores, key=lambda curve: curve.heldout is None) + rest
    return [curve._replace(ema=averages.get(curve.heldout)) for curve in curves]


def is_average(key: str) -> bool:
    """Return whether a key of a row is a score of the parameters' moving average."""
    return key.startswith(EMA_PREFIX)


def shorten_name(name: str) -> str:
    """Return the beginning of a name that has at most MAX_NAME_BYTES bytes in UTF-8."""
    return name.encode()[:MAX_NAME_BYTES].decode(errors="ignore")


def resolve_key(keys: Iterable[str], key: str) -> str | None:
    """Return the key among `keys` that a key of `CURVES` stands for, or None."""
    if not key.endswith("accuracy"):
        return key if key in keys else None
    prefix = key.removesuffix("accuracy")
    accuracies = (
        name
        for name in keys
        if name.startswith(prefix)
        and name.endswith("_accuracy")
        and (prefix or not name.startswith(HELDOUT_PREFIX))
        and not is_average(name)
    )
    return next(accuracies, key if key in keys else None)
