"""The names of labels in a config.json of Hugging Face transformers."""

from collections.abc import Mapping, Sequence
from typing import Any


def name_labels(labels: Sequence[str]) -> dict[str, Any]:
    """Return the two tables of config.json that name the labels."""
    names = dict(enumerate(labels))
    return {
        "id2label": {str(number): name for number, name in names.items()},
        "label2id": {name: number for number, name in names.items()},
    }


def read_labels(hf_config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the labels in a config.json, in the order of their numbers; two if it names none."""
    named: Any = hf_config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    if not isinstance(named, dict):
        raise ValueError(f"id2label is {named!r:.80}; expected an object of number: label")
    if sorted(map(str, named)) != sorted(map(str, range(len(named)))):
        raise ValueError(
            f"id2label has the numbers {', '.join(map(str, named)):.80}; expected 0 to "
            f"{len(named) - 1}"
        )
    return tuple(str(named.get(str(number), named.get(number))) for number in range(len(named)))
