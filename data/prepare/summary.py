"""The summary that `prepare` prints: sizes, what was skipped or repaired, and the store's path."""

from collections.abc import Mapping
from typing import Any

from data.prepare.build import PreparedStore
from data.prepare.fertility import format_fertility, list_fertility
from data.prepare.held_out import HASHED
from data.vocabulary.characters import format_characters


def format_summary(prepared: PreparedStore) -> list[str]:
    """Return the lines of the summary."""
    store, manifest = prepared.store, prepared.store.manifest
    totals, splits = manifest["totals"], manifest["splits"]
    tokens = sum(split["tokens"] for split in splits.values())
    lines = [f"already prepared: {store.path}"] if prepared.existed else []
    for name, split in splits.items():
        counts = (f"{split[key]:>14,} {key}" for key in ("documents", "sentences", "tokens"))
        lines.append(f"{name:<9}" + "".join(counts))
    rate = f", {tokens / prepared.seconds:,.0f} tokens/s" if prepared.seconds else ""
    unknown = totals.get("unknown", 0) / max(tokens, 1)
    read = f"text     {totals['bytes']:,} bytes in {totals['documents']:,} documents"
    lines.append(f"{read}, {tokens / totals['bytes']:.3f} tokens per byte{rate}")
    vocabulary = manifest["vocabulary"]
    lines.append(
        f"vocab    {vocabulary['size']:,} ids ({vocabulary['kind']}), "
        f"{unknown:.4%} of the tokens unknown"
        + (f", trained on {manifest['sampled_bytes']:,} bytes" if manifest["sampled_bytes"] else "")
    )
    if characters := manifest.get("unknown_characters"):
        lines.append(f"unknown  {format_characters([*characters], characters)}")
    if len(manifest["sources"]) > 1:
        for source in manifest["sources"]:
            trained, heldout = (
                high - low for low, high in (source[name]["documents"] for name in splits)
            )
            lines.append(
                f"source   {source['name']}: {trained:,} training documents, "
                f"{heldout:,} held out, rate {source['rate']:.4f}"
            )
        lines += [
            f"words    {row.name}: {format_fertility(row)}" for row in list_fertility(manifest)
        ]
    lines += [f"noted    {note}" for note in format_notes(manifest)]
    if dropped := manifest.get("dropped"):
        lines.append(
            f"dropped  {dropped['documents']:,} of {totals['documents']:,} documents, listed in "
            f"{store.path / manifest['generation'] / dropped['list']}"
        )
    is_chosen = splits["heldout"]["documents"] and not manifest["held_out"].get("files")
    if is_chosen and manifest["held_out"].get("by") != HASHED:
        lines.append(
            "noted    an earlier version chose the held-out documents by their bytes: copies in "
            "another Unicode form or case may be in both parts (--overwrite chooses again)"
        )
    store_bytes = sum(file["bytes"] for file in manifest["files"].values())
    lines.append(f"store    {store.path}, {store_bytes:,} bytes")
    return lines


def format_notes(manifest: Mapping[str, Any]) -> list[str]:
    """Return a line for each reason to skip or repair text, with the first place."""
    lines = []
    for reason, noted in manifest["noted"].items():
        first = f" (first: {noted['first']})" if "first" in noted else ""
        lines.append(f"{noted['count']:,} {reason}{first}")
    return lines
