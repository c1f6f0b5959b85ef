"""benchmarks/downstream.md out of what was measured: two tables, of plain values."""

import math
import pathlib
import statistics

PAGE = pathlib.Path(__file__).resolve().parent / "downstream.md"
# The metrics that are told.
NAMES = {
    "matthews": "Matthews",
    "accuracy": "accuracy",
    "f1": "F1",
    "pearson": "Pearson",
    "spearman": "Spearman",
}
NAMES |= {"entity_f1": "entity F1", "span_f1": "F1 of answers", "exact_match": "exact match"}

ENCODER = """The encoder: `{name}` at step {step:,}, {depth} layers of {width} with {vocab:,} words, which has read {million:.1f} M
tokens. On its own held-out part: {loss:.3f} nats a masked word, perplexity {perplexity:.0f}, {share:.1f} % right. Its last rows were
{length} tokens long and no pairs: positions behind these, the pooler and the second segment, which pairs use, have learned nothing.
It was made by {made}."""
MANNER = """The same command from the encoder and, with `--fresh all`, from random weights of the same model: {settings}. Dropout is in
the head alone. Three seeds, 0 to 2, of what is new, of the order of the examples and of the dropout. Figures are in hundredths, mean ±
sample standard deviation. Float32, where the commands below do not say bfloat16.

**The epoch of each run is the best of them on the very part that is reported**: optimistic, for both alike, where there are several. Where there is a further
file, a second row scores the checkpoint that was so chosen on that file, which chose nothing. "Commonest class" is one answer for all,
that of most examples learned from; scores have none. A gain "within the spreads" is no larger than the two standard deviations together:
it shows nothing.

How the rates were chosen: {rates}. SST-2 learns from the 6,920 whole sentences, which are a tenth of what GLUE's file of phrases has: a tenth of the time."""
RATES_CHOSEN = """one look at SST-2, rows of 32, one epoch, seed 0, the accuracy on the part that is reported: from the encoder 68.2, 72.7
and 49.1 at 1e-4, 3e-4 and 1e-3, from random weights 72.4 and 49.1 at 3e-4 and 1e-3; 49.1 is one answer for all"""
PEER = """`transformers.Trainer` over `AutoModelForSequenceClassification` from what `export` writes of a run before its first step (so the new head is the same too),
the same batches in the same order, AdamW, warm-up and linear decay, clipping, float32, no decay of biases and norms, dropout in the head
alone, whose draws differ. Scores: the best of the epochs, as above, mean ± sample standard deviation of the same three seeds."""
ALIKE = """Without dropout nothing is drawn, and the two learn alike: the losses of {task}'s first {steps:,} steps, an epoch, are no further than
{apart:.0e} apart. What scores differ by is the draws, and what rounding grows to."""
TIMES = """{versions}. Three programs in turns of a quarter of an epoch: the median of the turns and in brackets the best, as seconds of a
whole epoch; behind them the CPU seconds of both cores together, which other work on the machine disturbs less. Ratios likewise. Cloze's
are with its input pipeline and with layers {layers}, PyTorch's with batches that lie ready as tensors. *tuned* is no Trainer but a loop written
by hand, for which glibc keeps its pages and MKL takes its AVX-512 path."""
COLUMNS = (
    "task",
    "pretrained",
    "random weights",
    "gain",
    "commonest class",
    "learned from",
    "measured on",
    "row",
    "best epochs",
)
WAYS = ("cloze", "trainer", "tuned")


def spelt(values):
    """Mean and spread (the sample standard deviation), in hundredths."""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{spread}"


def gain(ours, theirs):
    """The difference of the means, in hundredths; where it is smaller than both spreads together, it says so."""
    difference = statistics.fmean(ours) - statistics.fmean(theirs)
    within = len(ours) > 1 and abs(difference) <= statistics.stdev(ours) + statistics.stdev(theirs)
    return f"{100 * difference:+.1f}" + (" (within the spreads)" if within else "")


def on(results):
    """What they were measured on, each once."""
    return "; ".join(
        sorted(
            {
                result["hardware"].removesuffix(" 1 cores")
                + " one core" * result["hardware"].endswith(" 1 cores")
                for result in results
            }
        )
    )


def epochs(runs):
    return ", ".join(f"{run['epoch']:.0f}" for run in runs)


def where(head, fresh, part):
    """The last cells of a row: the files with the numbers of their rows, the length of a row of tokens, the best epochs of each."""
    train, heldout = head["files"]
    near, far = (
        f"{heldout or 'a tenth of it'} ({head['examples']['heldout']:,})",
        f"{head['also_file']} (it chose nothing)",
    )
    learned = f"{train} ({head['examples']['train']:,})"
    best = " / ".join(epochs(result["runs"]) for result in (head, fresh) if result)
    return [learned, near if part == "runs" else far, str(head["length"]), best]


def rows(results, order):
    """A row for each task and metric that is measured from the encoder, then those of the further files."""
    found = {(result["task"], result["start"]): result for result in results}
    for part in ("runs", "also"):
        for task in order:
            head, fresh = found.get((task, "head")), found.get((task, "all"))
            for metric in head["metrics"] if head and head[part] else ():
                ours, theirs = (
                    [run[metric] for run in result[part]] if result else []
                    for result in (head, fresh)
                )
                base = head["examples"]["baseline"].get(metric) if part == "runs" else None
                cells = [f"{task}, {NAMES[metric]}", spelt(ours)]
                cells += [spelt(theirs), gain(ours, theirs)] if theirs else ["not measured", "-"]
                cells.append("-" if base is None else f"{100 * base:.1f}")
                yield f"| {' | '.join([*cells, *where(head, fresh, part)])} |"


def table(columns, lines):
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *lines]


def settings(results):
    """What all of them were run with, each way said once."""
    origins = {"head": "from the encoder", "all": "from random weights"}
    ways = [
        f"{rate} {origins[start]}"
        for start, rate in sorted({(one["start"], one["rate"]) for one in results}, reverse=True)
    ]
    most = " or ".join(map(str, sorted({one["epochs"] for one in results})))
    return f"batches of 32, {most} epochs, AdamW with a peak rate of {' and of '.join(ways)} after a tenth of the steps, linear decay"


def cut(results):
    """A line on rows that are too short for some, where there are any."""
    told = [
        f"{one['task']} {one['examples']['cut']:,}"
        for one in results
        if one["start"] == "head" and one["examples"]["cut"]
    ]
    return (
        [
            f"Learned from without their ends, for they are longer than a row: {', '.join(told)} examples.",
            "",
        ]
        if told
        else []
    )


def score_rows(peers):
    """A row for each task and metric that PyTorch has learned too."""
    for peer in peers:
        for metric in peer["metrics"]:
            ours, theirs = ([run[metric] for run in peer[side]] for side in ("ours", "theirs"))
            yield f"| {peer['task']}, {NAMES[metric]} | {spelt(ours)} | {spelt(theirs)} | {gain(ours, theirs)} |"


def time_rows(peers):
    """A row for each task whose epochs were timed."""
    for peer in peers:
        whole = peer["epoch"] / peer["steps_of_a_turn"]
        wall, cpu = (
            {way: [whole * turn for turn in told[key]] for way, told in peer["times"].items()}
            for key in ("seconds", "cpu")
        )
        cells = [f"{peer['task']}, {peer['epoch']} steps of 32 x {peer['length']}"]
        cells += [
            f"{statistics.median(wall[way]):.1f} ({min(wall[way]):.1f}); {statistics.median(cpu[way]):.1f}"
            for way in WAYS
        ]
        for way in WAYS[1:]:
            ratios = [f(wall[way]) / f(wall["cloze"]) for f in (statistics.median, min)]
            cells.append(
                f"{ratios[0]:.2f} ({ratios[1]:.2f}); {statistics.median(cpu[way]) / statistics.median(cpu['cloze']):.2f}"
            )
        losses = [told["loss"] for told in peer["times"].values()]
        cells += [
            f"{max(losses) - min(losses):.0e}",
            " to ".join(f"{load:.1f}" for load in peer["load"]),
        ]
        yield f"| {' | '.join(cells)} |"


def peer_section(peers):
    """Lines of the second part: the same fine-tuning in PyTorch."""
    dates, hardware = ", ".join(sorted({peer["date"] for peer in peers})), on(peers)
    scored, timed = ([peer for peer in peers if key in peer] for key in ("theirs", "times"))
    commands = "; ".join(f"`{peer['command']}`" for peer in peers)
    lines = [
        "## Beside the Trainer of transformers",
        "",
        f"{dates}, {hardware}, shared with other work. {commands}",
        "",
        PEER,
        "",
    ]
    for peer in peers:
        if "apart" in peer:
            lines += [ALIKE.format(**peer), ""]
    if scored:
        lines += [*table(["task", "Cloze", "Trainer", "Cloze - Trainer"], score_rows(scored)), ""]
    if timed:
        columns = [
            "an epoch of",
            "Cloze, s",
            "Trainer, s",
            "tuned, s",
            "Trainer / Cloze",
            "tuned / Cloze",
            "step 0: loss apart by",
            "load",
        ]
        layers = " or ".join(sorted({peer["layers"] for peer in timed}))
        lines += [
            TIMES.format(versions=", ".join(timed[0]["versions"]), layers=layers),
            "",
            *table(columns, time_rows(timed)),
            "",
        ]
    return lines


def told(encoder):
    """A paragraph on the encoder."""
    ways = {
        "made": ", then ".join(f"`{command}`" for command in encoder["made"]),
        "million": encoder["tokens"] / 1e6,
    }
    text = ENCODER.format(
        **encoder | ways, perplexity=math.exp(encoder["loss"]), share=100 * encoder["accuracy"]
    )
    return f"{text} {encoder['note']}".strip()


def page(encoder, results, peers, order):
    """The text of the page.

    encoder: what `downstream.encoder_facts` gives; results: [what `downstream.measure` gives]; peers: [what `downstream_peer.scores` and
    `times` give]; order: names of tasks.
    """
    dates = sorted({result["date"] for result in results})
    lines = list(rows(results, order))
    done = {line.split(",")[0].removeprefix("| ") for line in lines}
    text = [
        "# What pretraining is worth downstream",
        "",
        f"{', '.join(dates)}, {on(results)}, shared with other work. `python -m benchmarks.downstream --corpora ../shared/corpora`",
        "",
        told(encoder),
        "",
        "## Pretrained against random weights",
        "",
        MANNER.format(settings=settings(results), rates=RATES_CHOSEN) if results else "",
        "",
        *table(COLUMNS, lines),
        "",
        *(
            [f"Not measured: {', '.join(name for name in order if name not in done)}.", ""]
            if set(order) - done
            else []
        ),
        *cut(results),
        "Commands, pretrained and random:",
        "",
        "```",
        *(
            result["command"]
            for result in sorted(
                results, key=lambda one: (order.index(one["task"]), one["start"] != "head")
            )
        ),
        "```",
        "",
    ]
    return "\n".join([*text, *(peer_section(peers) if peers else [])])
