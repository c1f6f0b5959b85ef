"""Format benchmarks/results/downstream.md from the results of the two downstream benchmarks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness import RESULTS
from benchmarks.papers.downstream_text import (
    ENCODER_TEXT,
    LOSSES_TEXT,
    METHOD_TEXT,
    PEER_TEXT,
    RATES_TEXT,
    TIMES_TEXT,
)

Result = Mapping[str, Any]

PAGE = RESULTS / "downstream.md"
METRIC_LABELS = {
    "matthews": "Matthews",
    "accuracy": "accuracy",
    "f1": "F1",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "entity_f1": "entity F1",
    "span_f1": "F1 of answers",
    "exact_match": "exact match",
}
COLUMNS = (
    "task",
    "pretrained",
    "random weights",
    "gain",
    "most frequent class",
    "trained on",
    "scored on",
    "row",
    "best epochs",
)
PROGRAMS = ("cloze", "trainer", "tuned")


def format_mean(values: Sequence[float]) -> str:
    """Return the mean ± the sample standard deviation, in hundredths."""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{spread}"


def format_gain(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the difference of the means, in hundredths.

    It has a remark if it is not larger than the sum of the standard deviations.
    """
    difference = statistics.fmean(ours) - statistics.fmean(theirs)
    within = len(ours) > 1 and abs(difference) <= statistics.stdev(ours) + statistics.stdev(theirs)
    return f"{100 * difference:+.1f}" + (" (within the spreads)" if within else "")


def list_hardware(results: Iterable[Result]) -> str:
    """Return the machines of the results, without repetitions."""
    machines = {result["hardware"] for result in results}
    return "; ".join(
        sorted(
            machine.removesuffix(" 1 cores") + " one core" * machine.endswith(" 1 cores")
            for machine in machines
        )
    )


def format_epochs(runs: Iterable[Result]) -> str:
    """Return the best epoch of each run."""
    return ", ".join(f"{run['epoch']:.0f}" for run in runs)


def format_data(head: Result, fresh: Result | None, part: str) -> list[str]:
    """Return the last cells of a row: the files with their rows, the row length, the best epochs.

    Args:
      head, fresh: results from the encoder and from random weights.
      part: "runs" for the scores on the held-out file, "also" for those on the further file.
    """
    train, heldout = head["files"]
    heldout_file = f"{heldout or 'a tenth of it'} ({head['examples']['heldout']:,})"
    further_file = f"{head['also_file']} (not used to choose the epoch)"
    train_file = f"{train} ({head['examples']['train']:,})"
    best = " / ".join(format_epochs(result["runs"]) for result in (head, fresh) if result)
    measured_file = heldout_file if part == "runs" else further_file
    return [train_file, measured_file, str(head["length"]), best]


def format_rows(results: Iterable[Result], order: Sequence[str]) -> Iterator[str]:
    """Yield a row for each measured task and metric, then the rows of the further files.

    Args:
      results: the results of `benchmarks.papers.downstream`.
      order: names of the tasks, in the order of the rows.
    """
    results_by_start = {(result["task"], result["start"]): result for result in results}
    for part in ("runs", "also"):
        for task in order:
            head = results_by_start.get((task, "head"))
            fresh = results_by_start.get((task, "all"))
            if not head or not head[part]:
                continue
            for metric in head["metrics"]:
                ours, theirs = (
                    [run[metric] for run in result[part]] if result else []
                    for result in (head, fresh)
                )
                base = head["examples"]["baseline"].get(metric) if part == "runs" else None
                cells = [f"{task}, {METRIC_LABELS[metric]}", format_mean(ours)]
                cells += (
                    [format_mean(theirs), format_gain(ours, theirs)]
                    if theirs
                    else ["not measured", "-"]
                )
                cells.append("-" if base is None else f"{100 * base:.1f}")
                yield f"| {' | '.join([*cells, *format_data(head, fresh, part)])} |"


def format_table(columns: Sequence[str], lines: Iterable[str]) -> list[str]:
    """Return the lines of a table with a header."""
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *lines]


def describe_settings(results: Iterable[Result]) -> str:
    """Return a description of the settings of all results, without repetitions."""
    results = list(results)
    origins = {"head": "from the encoder", "all": "from random weights"}
    ways = [
        f"{rate} {origins[start]}"
        for start, rate in sorted(
            {(result["start"], result["rate"]) for result in results}, reverse=True
        )
    ]
    num_epochs = " or ".join(map(str, sorted({result["epochs"] for result in results})))
    return (
        f"batches of 32, {num_epochs} epochs, AdamW with a peak rate of {' and of '.join(ways)} "
        "after a tenth of the steps, linear decay"
    )


def describe_truncation(results: Iterable[Result]) -> list[str]:
    """Return a line about truncated training examples, or no line if there are none."""
    counts = [
        f"{result['task']} {result['examples']['cut']:,}"
        for result in results
        if result["start"] == "head" and result["examples"]["cut"]
    ]
    if not counts:
        return []
    text = f"Training examples truncated to the length of a row: {', '.join(counts)} examples."
    return [text, ""]


def format_score_rows(peers: Iterable[Result]) -> Iterator[str]:
    """Yield a row for each task and metric that was also measured with PyTorch."""
    for peer in peers:
        for metric in peer["metrics"]:
            ours, theirs = ([run[metric] for run in peer[side]] for side in ("ours", "theirs"))
            cells = [f"{peer['task']}, {METRIC_LABELS[metric]}"]
            cells += [format_mean(ours), format_mean(theirs), format_gain(ours, theirs)]
            yield f"| {' | '.join(cells)} |"


def format_time_rows(peers: Iterable[Result]) -> Iterator[str]:
    """Yield a row for each task whose epochs were timed."""
    for peer in peers:
        turns_per_epoch = peer["epoch"] / peer["steps_of_a_turn"]
        wall, cpu = (
            {
                way: [turns_per_epoch * turn for turn in turns[key]]
                for way, turns in peer["times"].items()
            }
            for key in ("seconds", "cpu")
        )
        cells = [f"{peer['task']}, {peer['epoch']} steps of 32 x {peer['length']}"]
        for way in PROGRAMS:
            seconds = f"{statistics.median(wall[way]):.1f} ({min(wall[way]):.1f})"
            cells.append(f"{seconds}; {statistics.median(cpu[way]):.1f}")
        for way in PROGRAMS[1:]:
            ratios = [
                reduce(wall[way]) / reduce(wall["cloze"]) for reduce in (statistics.median, min)
            ]
            cpu_ratio = statistics.median(cpu[way]) / statistics.median(cpu["cloze"])
            cells.append(f"{ratios[0]:.2f} ({ratios[1]:.2f}); {cpu_ratio:.2f}")
        losses = [turns["loss"] for turns in peer["times"].values()]
        load = " to ".join(f"{load:.1f}" for load in peer["load"])
        cells += [f"{max(losses) - min(losses):.0e}", load]
        yield f"| {' | '.join(cells)} |"


def format_peer_section(peers: Sequence[Result]) -> list[str]:
    """Return the lines of the second part: the same fine-tuning in PyTorch."""
    dates, hardware = ", ".join(sorted({peer["date"] for peer in peers})), list_hardware(peers)
    scored, timed = ([peer for peer in peers if key in peer] for key in ("theirs", "times"))
    commands = "; ".join(f"`{peer['command']}`" for peer in peers)
    lines = [
        "## Comparison with the Trainer of transformers",
        "",
        f"{dates}, {hardware}, shared with other work. {commands}",
        "",
        PEER_TEXT,
        "",
    ]
    for peer in peers:
        if "apart" in peer:
            lines += [LOSSES_TEXT.format(**peer), ""]
    if scored:
        columns = ["task", "Cloze", "Trainer", "Cloze - Trainer"]
        lines += [*format_table(columns, format_score_rows(scored)), ""]
    if timed:
        columns = [
            "an epoch of",
            "Cloze, s",
            "Trainer, s",
            "tuned, s",
            "Trainer / Cloze",
            "tuned / Cloze",
            "step 0: difference of the losses",
            "load",
        ]
        layers = " or ".join(sorted({peer["layers"] for peer in timed}))
        lines += [
            TIMES_TEXT.format(versions=", ".join(timed[0]["versions"]), layers=layers),
            "",
            *format_table(columns, format_time_rows(timed)),
            "",
        ]
    return lines


def describe_encoder(encoder: Result) -> str:
    """Return a paragraph about the encoder."""
    values = {
        "made": ", then ".join(f"`{command}`" for command in encoder["made"]),
        "million": encoder["tokens"] / 1e6,
        "perplexity": math.exp(encoder["loss"]),
        "share": 100 * encoder["accuracy"],
    }
    text = ENCODER_TEXT.format(**{**encoder, **values})
    return f"{text} {encoder['note']}".strip()


def format_page(
    encoder: Result, results: Sequence[Result], peers: Sequence[Result], order: Sequence[str]
) -> str:
    """Return the text of the page.

    Args:
      encoder: the result of `downstream.describe_encoder`.
      results: the results of `downstream.measure_task`.
      peers: the results of `downstream_peer`.
      order: names of tasks.
    """
    dates = sorted({result["date"] for result in results})
    lines = list(format_rows(results, order))
    done = {line.split(",")[0].removeprefix("| ") for line in lines}
    text = [
        "# Fine-tuning with and without pretraining",
        "",
        f"{', '.join(dates)}, {list_hardware(results)}, shared with other work. "
        "`python -m benchmarks.papers.downstream --corpora ../shared/corpora`",
        "",
        describe_encoder(encoder),
        "",
        "## Pretrained and random weights",
        "",
        METHOD_TEXT.format(settings=describe_settings(results), rates=RATES_TEXT)
        if results
        else "",
        "",
        *format_table(COLUMNS, lines),
        "",
        *(
            [f"Not measured: {', '.join(name for name in order if name not in done)}.", ""]
            if set(order) - done
            else []
        ),
        *describe_truncation(results),
        "Commands, pretrained and random:",
        "",
        "```",
        *(
            result["command"]
            for result in sorted(
                results,
                key=lambda result: (order.index(result["task"]), result["start"] != "head"),
            )
        ),
        "```",
        "",
    ]
    return "\n".join([*text, *(format_peer_section(peers) if peers else [])])
