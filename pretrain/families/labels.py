"""The names of labels in a config.json of Hugging Face transformers."""

from collections.abc import Mapping, Sequence
from typing import Any

MAX_LABELS = 1 << 20  # that are numbered and not named


def name_labels(labels: Sequence[str]) -> dict[str, Any]:
    """Return the two tables of config.json that name the labels."""
    names = dict(enumerate(labels))
    return {
        "id2label": {str(number): name for number, name in names.items()},
        "label2id": {name: number for number, name in names.items()},
    }


def read_labels(hf_config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the labels in a config.json, in the order of their numbers.

    If it names none, they are LABEL_0, LABEL_1 ..., as many as `num_labels`, or two.

    Raises ValueError, which names the key, for labels without such an order or number.
    """
    count = hf_config.get("num_labels")
    if count is not None and not (type(count) is int and 1 <= count <= MAX_LABELS):
        raise ValueError(f"num_labels is {count!r:.80}; expected 1 to {MAX_LABELS:,}")
    named: Any = hf_config.get("id2label") or {str(i): f"LABEL_{i}" for i in range(count or 2)}
    if not isinstance(named, dict):
        raise ValueError(f"id2label is {named!r:.80}; expected an object of number: label")
    if sorted(map(str, named)) != sorted(map(str, range(len(named)))):
        raise ValueError(
            f"id2label has the numbers {', '.join(map(str, named)):.80}; expected 0 to "
            f"{len(named) - 1}"
        )
    if count not in (None, len(named)):
        raise ValueError(
            f"num_labels is {count}, and id2label names {len(named)}; delete the wrong one"
        )
    return tuple(str(named.get(str(number), named.get(number))) for number in range(len(named)))
