"""What came of a campaign of torture, as a section of its results page."""

from __future__ import annotations

import collections
import dataclasses
import subprocess

from benchmarks.harness import format_command, format_title
from benchmarks.reliability import torture_verdict as verdict
from benchmarks.reliability.torture_schedule import DAMAGES, INSIDE, NUM_FAULTS, OUTSIDE, STEPS


@dataclasses.dataclass
class Totals:
    """Counts over the schedules of a campaign."""

    passed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failed: list[str] = dataclasses.field(default_factory=list)
    faults: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    starts: int = 0
    largest_difference: float = 0.0


def format_results(totals: Totals, first_seed: int, hours: float, load: float) -> list[str]:
    """Return the section of the results page."""
    from importlib import metadata

    versions = [f"{name} {metadata.version(name)}" for name in ("jax", "orbax-checkpoint")]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    passed, faults = sum(totals.passed.values()), sum(totals.faults.values())
    count = passed + len(totals.failed)
    lines = [
        format_title(load, *versions, f"commit {commit or 'unknown'}"),
        "",
        f"`{format_command()}`: {hours:.2f} hours, seeds {first_seed} to {first_seed + count - 1}, "
        f"{count} schedules, {faults} faults, {totals.starts} starts; {passed} schedules passed, "
        f"{len(totals.failed)} failed. Tiny BERT, GPT and T5, {STEPS} steps, up to {NUM_FAULTS} "
        "faults each.",
        "",
        "| changed over the run | schedules passed | compared with the undisturbed run |",
        "|---|---|---|",
        f"| nothing | {totals.passed['nothing']} | rows, metrics, bits |",
        f"| devices | {totals.passed['devices']} | rows; parameters: they differ by at most "
        f"{totals.largest_difference:.2g}, {verdict.TOLERANCE:g} is allowed |",
        f"| devices and batch sizes | {totals.passed['devices and batch sizes']} | rows |",
        "",
        "| fault | where | times |",
        "|---|---|---|",
    ]
    for kind, (moments, _) in INSIDE.items():
        lines.append(f"| {kind}, inside | {', '.join(moments)} | {totals.faults[kind]} |")
    for kind, (where, _) in OUTSIDE.items():
        lines.append(f"| {kind} | {where} | {totals.faults[kind]} |")
    for kind in DAMAGES:
        lines.append(f"| {kind} damaged | between two starts | {totals.faults[kind]} |")
    lines += ["", *(f"Failed: {line}." for line in totals.failed), ""]
    return lines
