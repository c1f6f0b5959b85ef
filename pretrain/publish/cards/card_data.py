"""What a model card says of the data of a run, and of its scores.

Sources are called by the ends of their paths: a card has no path of the machine that wrote it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pretrain.publish.cards.card_texts import format_code

SOURCE_SCORE = "loss/"  # precedes the source in the name of a score


def describe_data(manifest: Mapping[str, Any] | None, store: str | None) -> str:
    """Return the size and the sources of the training data.

    Args:
      manifest: the manifest of the store; None: the store no longer exists.
    """
    if manifest is None:
        (name,) = shorten_names([store or "unnamed"]).values()
        return f"a token store that no longer exists ({format_code(name)})"
    train = manifest["splits"]["train"]
    shown = shorten_names([source["name"] for source in manifest["sources"]])
    named = ", ".join(
        f"{format_code(shown[source['name']])} ({source['rate']:.0%})"
        for source in manifest["sources"]
    )
    if "images" in manifest:
        return f"{train['documents']:,} images: {named}"
    return f"{train['tokens']:,} tokens of {train['documents']:,} documents: {named}"


def format_scores(rows: Sequence[Mapping[str, Any]], step: int, parameters: str = "raw") -> str:
    """Return a table of the last evaluation on the held-out part.

    parameters: the scores of which: "raw", or "ema", their moving average.
    """
    start = "heldout_ema/" if parameters == "ema" else "heldout_"
    rows = [row for row in rows if f"{start}loss" in row]
    if not rows:
        return "None was made during training."
    row = rows[-1]
    scores = {
        name.removeprefix(start): value
        for name, value in row.items()
        if name.startswith(start) and (parameters == "ema") == name.startswith("heldout_ema/")
    }
    shown = _shorten_score_names(scores)
    later = "" if row["step"] == step else f" (these weights are of step {step:,})"
    lines = [
        f"On the held-out part of the data, at step {row['step']:,}{later}:",
        "",
        "| measure | value |",
        "|-|-|",
    ]
    return "\n".join(
        [
            *lines,
            *(
                f"| {format_score_name(shown[name])} | {_format_score(value)} |"
                for name, value in scores.items()
            ),
        ]
    )


def _format_score(value: Any) -> str:
    """Return a score as text; metrics.jsonl has null for NaN, as of a run that has diverged."""
    return f"{value:.5g}" if isinstance(value, int | float) else "not finite"


def _shorten_score_names(names: Iterable[str]) -> dict[str, str]:
    """Return {name of a score: the same with the short name of its source}."""
    parts = {name: name.partition(SOURCE_SCORE) for name in names}
    short = shorten_names([source for _, mark, source in parts.values() if mark])
    return {
        name: part + mark + short[source] if mark else name
        for name, (part, mark, source) in parts.items()
    }


def shorten_names(names: Sequence[str]) -> dict[str, str]:
    """Return {name of a source: what a card calls it}, which has no path of this machine.

    A file or a folder is called by the end of its path, by as many parts as tell it from the
    others; `tfds:` names stay.
    """
    parts = {
        name: [name]
        if name.startswith("tfds:")
        else [part for part in re.split(r"[/\\]", name) if part] or [name]
        for name in names
    }
    longest = max(map(len, parts.values()), default=1)
    shown = {}
    for name, own in parts.items():
        others = [other for other in parts.values() if other != own]
        count = next(
            (n for n in range(1, longest) if all(own[-n:] != other[-n:] for other in others)),
            longest,
        )
        shown[name] = "/".join(own[-count:])
    return shown


def format_score_name(name: str) -> str:
    """Return the name of a score in words; names with a part or a source are quoted as code."""
    return name.replace("_", " ") if re.fullmatch(r"\w+", name, re.ASCII) else format_code(name)
