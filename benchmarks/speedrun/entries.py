"""The entries of the speedrun: a configuration, its overrides and its stages.

A stage is a phase of the run. Its length is a share of all steps, so one entry can be tried for
several numbers of steps, and its decay ends with them.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

VOCAB = 8192
TRAINER = "trainer"  # the entry that `transformers.Trainer` runs, with the words of the baseline
BASELINE = "adamw"
CHECKPOINTS = 20  # of a run, unless it asks for others


class Stage(NamedTuple):
    """A phase: its name, its share of the steps, and its overrides.

    In an override, `{half}` is half of the stage's steps.
    """

    name: str
    share: float
    words: tuple[str, ...] = ()


class Entry(NamedTuple):
    """An entry of the speedrun.

    Attributes:
      title: in tables and pictures.
      config: configuration that the words change.
      steps: number of steps unless the command gives another.
      warmup: steps of the warmup, as a share of all.
      words: overrides of all stages.
      stages: of the training, in order.
      parameters: what is scored: "raw" parameters or their moving average, "ema".
    """

    title: str
    config: str
    steps: int
    warmup: float
    words: tuple[str, ...]
    stages: tuple[Stage, ...]
    parameters: str = "raw"


def make_row_words(length: int, tokens: int = 1_024) -> tuple[str, ...]:
    """Return the overrides of rows of a length, with so many tokens a step."""
    return (
        f"data.objective.length={length}",
        f"data.objective.max_predictions={length * 5 // 16}",
        f"data.batch_size={tokens // length}",
    )


# Without TensorFlow, whose import is on the clock.
THREADS = "data.feed=threads"
ADAMW = ("optimizer=adamw", "optimizer.learning_rate=0.001", "optimizer.beta2=0.98")
MUON = ("optimizer=muon", "optimizer.learning_rate=0.002", "optimizer.beta2=0.98", THREADS)
# A stage after the first: no warmup, and a line from the peak to 0.
LAST = ("optimizer.warmup_steps=0", "optimizer.decay=linear")
SHORT, LONG = make_row_words(16), make_row_words(64)
CONSTANT = "optimizer.decay=constant"
# Of bert_mini's one line from the peak to 0, what is left where the rows of 64 begin.
LEFT = 0.352
ONE_LINE = (
    Stage("short", 2 / 3, (*SHORT, f"optimizer.end_lr_ratio={LEFT}")),
    Stage("long", 1 / 3, (*LONG, *LAST, f"optimizer.learning_rate={1e-3 * LEFT:g}")),
)
TWO_LINES = (Stage("short", 2 / 3, (*SHORT, CONSTANT)), Stage("long", 1 / 3, (*LONG, *LAST)))
# Rows of 64 for as long as the positions above 16, or the context, need.
LITTLE_LONG = (Stage("short", 0.85, (*SHORT, CONSTANT)), Stage("long", 0.15, (*LONG, *LAST)))
# Rows of 64 cost an eighth more than the same tokens in rows of 16.
LONG_ALONE = (Stage("short", 2 / 3, (*LONG, CONSTANT)), Stage("long", 1 / 3, (*LONG, *LAST)))
RAMPED_MASKS = (
    Stage("short", 2 / 3, (*SHORT, CONSTANT)),
    Stage("long", 1 / 3, (*LONG, *LAST, "data.objective.mask_rate=0.15")),
)
RAMPED_BATCH = (
    Stage(
        "short",
        2 / 3,
        (
            *SHORT,
            CONSTANT,
            "data.batch_ramp.start=16",
            "data.batch_ramp.rise=48",
            "data.batch_ramp.steps={half}",
        ),
    ),
    TWO_LINES[1],
)
# Muon's iterations cost as much for 2,048 tokens as for 1,024.
WIDE = (
    Stage("short", 2 / 3, (*make_row_words(16, 2_048), CONSTANT)),
    Stage("long", 1 / 3, (*make_row_words(64, 2_048), *LAST)),
)
AVERAGED = (
    Stage("short", 2 / 3, (*SHORT, CONSTANT)),
    Stage("long", 1 / 3, (*LONG, "optimizer.warmup_steps=0", CONSTANT)),
)
DEEP = ("model.depth=8", "model.width=192", "model.num_heads=3", "model.mlp=288")
BFLOAT16 = ("train.compute_dtype=bfloat16", "model.scan=false")

ENTRIES = {
    BASELINE: Entry("BERT, AdamW (bert_mini)", "bert_mini", 7_500, 0.053, ADAMW, ONE_LINE),
    "adamw_4000": Entry("BERT, AdamW, a shorter line", "bert_mini", 4_000, 0.053, ADAMW, ONE_LINE),
    "muon": Entry("BERT, Muon", "bert_mini", 2_400, 0.05, MUON, TWO_LINES),
    "modern": Entry(
        "ModernBERT, Muon (bert_mini_modern)", "bert_mini_modern", 2_400, 0.05, MUON, TWO_LINES
    ),
    "modern_unrolled": Entry(
        "ModernBERT, Muon, layers unrolled",
        "bert_mini_modern",
        2_400,
        0.05,
        (*MUON, "model.scan=false"),
        TWO_LINES,
    ),
    "modern_long": Entry(
        "ModernBERT, Muon, layers unrolled, rows of 64 alone",
        "bert_mini_modern",
        900,
        0.05,
        (*MUON, "model.scan=false"),
        LONG_ALONE,
    ),
    "modern_long_deep": Entry(
        "ModernBERT of 8 x 192, Muon, layers unrolled, rows of 64 alone",
        "bert_mini_modern",
        900,
        0.05,
        (*MUON, "model.scan=false", *DEEP),
        LONG_ALONE,
    ),
    "modern_bfloat16": Entry(
        "ModernBERT, Muon, bfloat16", "bert_mini_modern", 2_400, 0.05, (*MUON, *BFLOAT16), TWO_LINES
    ),
    "modern_little_long": Entry(
        "ModernBERT, Muon, 15 % in rows of 64",
        "bert_mini_modern",
        2_400,
        0.05,
        MUON,
        LITTLE_LONG,
    ),
    "modern_masks": Entry(
        "ModernBERT, Muon, masks 30 then 15 %",
        "bert_mini_modern",
        2_400,
        0.05,
        MUON,
        RAMPED_MASKS,
    ),
    "modern_batch": Entry(
        "ModernBERT, Muon, 16 rows, then 64",
        "bert_mini_modern",
        3_000,
        0.05,
        MUON,
        RAMPED_BATCH,
    ),
    "modern_wide": Entry(
        "ModernBERT, Muon, 2,048 tokens a step",
        "bert_mini_modern",
        1_500,
        0.05,
        (*MUON, "optimizer.learning_rate=0.003"),
        WIDE,
    ),
    "modern_average": Entry(
        "ModernBERT, Muon, an average, no decay",
        "bert_mini_modern",
        2_400,
        0.05,
        (*MUON, "train.ema_decay=0.99"),
        AVERAGED,
        "ema",
    ),
    "modern_deep": Entry(
        "ModernBERT of 8 x 192, Muon", "bert_mini_modern", 2_400, 0.05, (*MUON, *DEEP), TWO_LINES
    ),
}


def split_steps(entry: Entry, steps: int) -> list[int]:
    """Return the steps of each stage; the last one has what rounding leaves.

    Raises ValueError where a stage has no step.
    """
    lengths = [round(steps * stage.share) for stage in entry.stages[:-1]]
    lengths.append(steps - sum(lengths))
    if min(lengths) < 1:
        raise ValueError(f"--steps {steps}: a stage of the entry has no step; give more")
    return lengths


def list_words(
    entry: Entry,
    store: pathlib.Path,
    steps: int,
    seed: int,
    every: int,
    overrides: Sequence[str] = (),
) -> list[str]:
    """Return the configuration and all overrides of a training.

    Args:
      every: steps between two checkpoints, all of which stay.
      overrides: after the entry's own: of all stages that do not set the key, or of one stage,
        `phases.NAME.key=value`.
    """
    words = [
        entry.config,
        f"model.vocab={VOCAB}",
        f"data.store={store}",
        f"train.seed={seed}",
        "train.stop_at_step=0",
        "train.compute_dtype=float32",
        "evaluate.every=0",
        "evaluate.samples=0",
        f"checkpoint.every={every}",
        "checkpoint.keep=1000000",
        *entry.words,
        f"optimizer.warmup_steps={max(1, round(steps * entry.warmup))}",
    ]
    for stage, length in zip(entry.stages, split_steps(entry, steps), strict=True):
        words.append(f"phases.{stage.name}.steps={length}")
        words += [f"phases.{stage.name}.{word.format(half=length // 2)}" for word in stage.words]
    return [*words, *overrides]
