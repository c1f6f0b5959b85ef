"""The records of the speedrun, from the logs in benchmarks/results/speedrun.

A log is what `race.json` has of a run, and its scores. Entry, steps, overrides and processor make a
group; the time of a group is the slowest of its seeds, and at least two must reach the target. The
Trainer, which holds no record, needs one.
"""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks.harness import RESULTS, ROOT
from benchmarks.speedrun.entries import BASELINE, ENTRIES, TRAINER
from benchmarks.speedrun.heldout_rows import TARGET
from data.store.atomic import write_atomically

FOLDER = RESULTS / "speedrun"
PAGE = ROOT / "docs" / "speedrun.md"
PICTURE = "curves.svg"
BEGIN, END = "<!-- python -m benchmarks.speedrun page -->", "<!-- end -->"
MIN_SEEDS = 2
NO_RECORD = "**No record yet.** No run has been measured."
NO_CONFIRMED = "**No record yet.** No run has been confirmed by a second seed."


class Crossing(NamedTuple):
    """The first checkpoint that reaches the target: seconds since the process began, and step."""

    seconds: float
    step: int


class RaceGroup(NamedTuple):
    """The runs of one entry with one number of steps on one processor, by seed.

    Attributes:
      runs: (name of the log, its content).
    """

    entry: str
    steps: int
    overrides: tuple[str, ...]
    processor: str
    runs: tuple[tuple[str, dict[str, Any]], ...]

    @property
    def title(self) -> str:
        """The entry, its steps and its overrides in words."""
        name = "transformers.Trainer" if self.entry == TRAINER else ENTRIES[self.entry].title
        return ", ".join([name, f"{self.steps:,} steps", *(f"`{one}`" for one in self.overrides)])

    @property
    def crossings(self) -> list[Crossing | None]:
        """Where each seed reaches the target."""
        return [find_crossing(run["scores"]) for _, run in self.runs]

    @property
    def seconds(self) -> float | None:
        """The slowest seed's time; None if one misses the target, or there are too few."""
        needed = 1 if self.entry == TRAINER else MIN_SEEDS
        if len({run["seed"] for _, run in self.runs}) < needed:
            return None
        found = self.crossings
        return None if None in found else max(one.seconds for one in found if one)

    @property
    def date(self) -> str:
        """The day of its last run."""
        return max(run["date"] for _, run in self.runs)


def find_crossing(scores: Iterable[Sequence[float]], target: float = TARGET) -> Crossing | None:
    """Return the first of [step, seconds, accuracy, nats] that reaches an accuracy, or None."""
    by_time = sorted(scores, key=lambda row: row[1])
    return next((Crossing(row[1], int(row[0])) for row in by_time if row[2] >= target), None)


def group_runs(runs: Iterable[tuple[str, dict[str, Any]]]) -> list[RaceGroup]:
    """Return the groups of logs by their last day; on one day the slower come first."""
    grouped: dict[tuple[Any, ...], list[tuple[str, dict[str, Any]]]] = {}
    for name, run in runs:
        key = (run["entry"], run["steps"], tuple(run["overrides"]), run["processor"])
        grouped.setdefault(key, []).append((name, run))
    groups = [
        RaceGroup(
            key[0], key[1], key[2], key[3], tuple(sorted(found, key=lambda pair: pair[1]["seed"]))
        )
        for key, found in grouped.items()
    ]
    return sorted(groups, key=lambda group: (group.date, -(group.seconds or float("inf"))))


def list_records(groups: Sequence[RaceGroup]) -> list[RaceGroup]:
    """Return the groups that were faster than all before them on their processor, oldest first.

    The Trainer is a yardstick and holds no record.
    """
    records: list[RaceGroup] = []
    best: dict[str, float] = {}
    for group in groups:
        seconds = group.seconds
        if group.entry == TRAINER or seconds is None:
            continue
        if seconds < best.get(group.processor, float("inf")):
            best[group.processor] = seconds
            records.append(group)
    return records


def format_minutes(seconds: float) -> str:
    """Return minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def format_ratio(group: RaceGroup, groups: Sequence[RaceGroup], entry: str) -> str:
    """Return how many times sooner than an entry a group is, on its processor; "" if unknown."""
    times = [
        other.seconds
        for other in groups
        if other.entry == entry and other.processor == group.processor and not other.overrides
    ]
    known = [one for one in times if one is not None]
    return f"{min(known) / group.seconds:.1f}" if known and group.seconds else ""


def format_logs(group: RaceGroup) -> str:
    """Return links to the logs, by seed."""
    links = (
        f"[{run['seed']}](../benchmarks/results/speedrun/{name}.json)" for name, run in group.runs
    )
    return ", ".join(links)


def format_records(records: Sequence[RaceGroup], groups: Sequence[RaceGroup]) -> list[str]:
    """Return the table of the records, the newest first."""
    lines = [
        "| record | minutes, each seed | step | than AdamW | than the Trainer | date | processor "
        "| logs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group in reversed(records):
        crossings = [one for one in group.crossings if one]
        each = ", ".join(format_minutes(one.seconds) for one in crossings)
        step = max(one.step for one in crossings)
        ratios = [format_ratio(group, groups, entry) for entry in (BASELINE, TRAINER)]
        cells = [group.title, each, f"{step:,}", *ratios, group.date, group.processor]
        lines.append(f"| {' | '.join([*cells, format_logs(group)])} |")
    commands = [f"`{run['command']}`" for group in records for _, run in group.runs]
    return [*lines, "", "Commands, the oldest record first:", "", *(f"- {one}" for one in commands)]


def describe_outcome(group: RaceGroup) -> str:
    """Return how far a group that holds no record came."""
    if group.seconds is not None:
        return f"{TARGET:.1%} after {format_minutes(group.seconds)}"
    parts = []
    for (_, run), crossing in zip(group.runs, group.crossings, strict=True):
        best = max(run["scores"], key=lambda row: row[2])
        parts.append(
            f"{TARGET:.1%} after {format_minutes(crossing.seconds)}"
            if crossing
            else f"at most {best[2]:.1%}, {format_minutes(best[1])}"
        )
    alone = "" if len(group.runs) >= MIN_SEEDS else ", one seed"
    return "; ".join(parts) + alone


def format_others(groups: Sequence[RaceGroup]) -> list[str]:
    """Return the table of the runs that hold no record."""
    lines = ["| other runs | reached | date | processor | logs |", "|---|---|---|---|---|"]
    for group in groups:
        cells = [group.title, describe_outcome(group), group.date, group.processor]
        lines.append(f"| {' | '.join([*cells, format_logs(group)])} |")
    return lines


def format_section(groups: Sequence[RaceGroup]) -> str:
    """Return the part of the page that follows from the logs."""
    if not groups:
        return NO_RECORD
    records = list_records(groups)
    others = [group for group in groups if group not in records]
    lines = format_records(records, groups) if records else [NO_CONFIRMED]
    if others:
        lines += ["", *format_others(others)]
    picture = f"../benchmarks/results/speedrun/{PICTURE}"
    lines += ["", f"![Held-out accuracy by minutes since the process began]({picture})"]
    return "\n".join(lines)


def draw_curves(groups: Sequence[RaceGroup], path: pathlib.Path) -> None:
    """Draw the accuracy by time of the first seed of records, baseline and Trainer.

    They are of the processor with the newest run.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    records, processor = list_records(groups), groups[-1].processor
    drawn = [
        group
        for group in groups
        if group.processor == processor
        and (group in records or group.entry in (BASELINE, TRAINER) or not records)
    ]
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "speedrun", "font.size": 9}
    with matplotlib.rc_context(style):
        figure, ax = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
        for group in drawn:
            scores = group.runs[0][1]["scores"]
            minutes = [row[1] / 60 for row in scores]
            ax.plot(minutes, [100 * row[2] for row in scores], "o-", ms=3, label=group.title)
        ax.axhline(100 * TARGET, color="0.4", lw=1, ls="--")
        ax.set(xscale="log", xlabel="minutes since the process began (logarithmic)")
        ax.set_ylabel("held-out masked tokens right, %")
        ax.xaxis.set_major_formatter(lambda minutes, _: f"{minutes:g}")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def read_logs(folder: pathlib.Path = FOLDER) -> list[tuple[str, dict[str, Any]]]:
    """Return (name, content) of all logs."""
    return [(path.stem, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def replace_section(page: str, section: str) -> str:
    """Return a page with another section between its two marks."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{section}\n\n{END}{rest.split(END)[1]}"


def write_page() -> None:
    """Draw the curves and write the section of docs/speedrun.md."""
    groups = group_runs(read_logs())
    if groups:
        draw_curves(groups, FOLDER / PICTURE)
    write_atomically(PAGE, replace_section(PAGE.read_text(), format_section(groups)))


def add_log(race: dict[str, Any], scores: Sequence[Sequence[float]], name: str) -> pathlib.Path:
    """Write the log of a scored run and return its path.

    Raises ValueError where another run has the name.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{race['date']}_{name}.json"
    log = {key: value for key, value in race.items() if key != "marks"} | {"scores": list(scores)}
    if path.exists() and json.loads(path.read_text()) != log:
        raise ValueError(f"{path} is the log of another run: rename the folder of this one")
    write_atomically(path, json.dumps(log, indent=1) + "\n")
    return path
