"""Compare what the processes of a run know: the configuration, the code, the data."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

NOTHING = "nothing"  # stands for the value of a key that a process lacks; it is not JSON
MAX_SHOWN = 80  # characters of a value

Facts = dict[str, Any]


def flatten_tree(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Return {path of keys: value} of the leaves of a tree of dictionaries and lists."""
    if not isinstance(tree, (dict, list)) or not tree:
        return {prefix: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return {
        path: leaf
        for key, value in items
        for path, leaf in flatten_tree(value, f"{prefix}.{key}".lstrip(".")).items()
    }


def find_differences(facts_by_process: Sequence[Facts]) -> list[str]:
    """Return a sentence for each fact that differs: which hosts deviate from the majority.

    The facts `host` and `probe` are each process's own.
    """
    sentences = []
    for name in facts_by_process[0].keys() - {"host", "probe"}:
        label, values, others = _select_key(name, [process[name] for process in facts_by_process])
        usual = max(values, key=lambda value: (values.count(value), -values.index(value)))
        if values.count(usual) == len(values):
            continue
        shown = _format_values(values)
        outliers = [
            f"{process['host']} has {label} {shown[value]}"
            for process, value in zip(facts_by_process, values)
            if value != usual
        ]
        having = [str(i) for i, value in enumerate(values) if value == usual]
        which = f"process {', '.join(having[:4])}{', ...' if having[4:] else ''}"
        sentences.append(
            f"{', '.join(outliers)}, {len(having)} of {len(values)} have {shown[usual]} "
            f"({which}){others}"
        )
    return sorted(sentences)


def _select_key(name: str, values: list[Any]) -> tuple[str, list[str], str]:
    """Return a fact's name with its first key that differs, the values, and a note on others.

    The values are JSON, whole, so that any two that differ are unequal; NOTHING for a missing key.
    """
    if not all(isinstance(value, dict) for value in values):
        return name, [json.dumps(value) for value in values], ""
    encoded = [{key: json.dumps(leaf) for key, leaf in value.items()} for value in values]
    keys = dict.fromkeys(key for value in encoded for key in value)
    differing = [key for key in keys if len({value.get(key, NOTHING) for value in encoded}) > 1]
    if not differing:
        return name, [NOTHING] * len(values), ""
    others = f" ({len(differing) - 1} more keys of it differ)" if len(differing) > 1 else ""
    first = differing[0]
    return f"{name} {first}", [value.get(first, NOTHING) for value in encoded], others


def _format_values(values: Sequence[str]) -> dict[str, str]:
    """Return {value: text that is shown} of JSON values, of which some differ.

    Texts are shown without quotes unless they look like another value. What long values share at
    their beginning is left out.
    """
    shown = {value: json.loads(value) if value[0] == '"' else value for value in values}
    if len(set(shown.values())) < len(shown):
        shown = {value: value for value in values}
    if max(map(len, shown.values())) > MAX_SHOWN:
        letters = zip(*shown.values())
        shared = sum(1 for _ in itertools.takewhile(lambda each: len({*each}) == 1, letters))
        cut = max(shared - MAX_SHOWN // 2, 0)
        shown = {value: f"...{text[cut:]}" if cut else text for value, text in shown.items()}
    return {value: f"{text:.{MAX_SHOWN}}" for value, text in shown.items()}
