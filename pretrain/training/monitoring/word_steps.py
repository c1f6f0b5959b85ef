"""The steps of a run by the words that it has read (`checkpoint.words`).

A word is what blanks separate in the text that `prepare` read, as BabyLM's rules count, and counts
each time that it is read. An epoch of a source reads each of its words once. Within an epoch, whose
rows are shuffled, the words are in proportion to the rows. Rows of all parts of a mixture count.

S sources of the store
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from data.mixed_stream import MixedStream, count_examples
from data.pipeline import Stream
from data.source import Source
from data.store.reader import Store
from pretrain.config import Run
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.checkpoints import Checkpoints


class Rows(Protocol):
    """The rows of a phase, which trains the steps start + 1 to stop."""

    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    @property
    def stream(self) -> Stream | MixedStream: ...


def plan_word_steps(
    run: Run,
    phases: Sequence[Any],
    source: Source,
    checkpoints: Checkpoints,
    start: int,
    log: Any,
) -> dict[int, list[int]]:
    """Return {step after `start`: the numbers of words that it is the first to have read}.

    Steps that checkpoints record for earlier words stay as they are, and so do the checkpoints.

    Raises:
      ConfigError: the words of the source are not known, or the rows are not read from it.
    """
    if any(phase.batches is not phase.stream for phase in phases):
        raise ConfigError(
            "checkpoint.words: the words of a dataset of your own are not known; save by steps, "
            "with checkpoint.keep_every"
        )
    words_S, last = list_source_words(source), run.train.last_step
    done = find_word_steps(checkpoints.list_steps(), checkpoints.load_record)
    found: dict[int, list[int]] = {}
    for words in sorted(set(run.checkpoint.words) - done.keys()):
        step = find_step(phases, words_S, words, start, last)
        if step is not None:
            found.setdefault(step, []).append(words)
    if checkpoints.retention:
        checkpoints.retention.word_steps = {*done.values(), *found}
    log.log_message(describe_plan(count_words(phases, words_S, last), words_S, last, found))
    return found


def list_source_words(source: Source) -> np.ndarray:
    """Return the words of each source's training part: int64 [S].

    Raises ConfigError if they are not known.
    """
    manifest: Mapping[str, Any] = source.manifest if isinstance(source, Store) else {}
    counts = manifest.get("text_by_source", ())
    if len(counts) == 1:
        return np.array([manifest["sizes"]["train"]["words"]])
    if not counts or not all("train_words" in count for count in counts):
        raise ConfigError(
            f"checkpoint.words: {source.path} does not record the words of its sources; prepare "
            "it from text, with this version (--overwrite)"
        )
    return np.array([count["train_words"] for count in counts])


def count_words(phases: Sequence[Rows], words_S: np.ndarray, step: int) -> float:
    """Return how many words a run has read after `step` steps."""
    total = 0.0
    for phase in phases:
        if phase is phases[0] or phase.start < step:
            total += _count_in_order(phase.stream, words_S, min(step, phase.stop))
            if phase is not phases[0]:  # It goes on where the phase before it has ended.
                total -= _count_in_order(phase.stream, words_S, phase.start)
    return total


def _count_in_order(stream: Stream | MixedStream, words_S: np.ndarray, step: int) -> float:
    """Return how many words the order of a stream has before the batch of `step`."""
    total = 0.0
    for part in stream.streams.values():
        if part.lane_order:
            raise ConfigError(
                "checkpoint.words: rows on lanes are not counted by words; save by steps, with "
                "checkpoint.keep_every"
            )
        repeats = part.objective.repeats
        rows_S = count_examples(part, part.locate_rows(step) // repeats)
        total += repeats * float((rows_S / np.maximum(part.rows_S, 1) * words_S).sum())
    return total


def find_step(
    phases: Sequence[Rows], words_S: np.ndarray, words: int, start: int, last: int
) -> int | None:
    """Return the first step after `start` that has read so many words; None past the last step."""
    steps = range(start + 1, last + 1)
    index = bisect.bisect_left(steps, words, key=lambda step: count_words(phases, words_S, step))
    return steps[index] if index < len(steps) else None


def find_word_steps(
    steps: Sequence[int], load_record: Callable[[int], Mapping[str, Any]]
) -> dict[int, int]:
    """Return {number of words: step} of the checkpoints that record one."""
    return {
        int(words): step for step in sorted(steps) for words in load_record(step).get("words", ())
    }


def name_revision(words: int) -> str:
    """Return the name of a number of words in BabyLM's evaluation: chck_1M for a million."""
    millions, rest = divmod(words, 1_000_000)
    return f"chck_{words}" if rest else f"chck_{millions}M"


def describe_plan(
    total: float, words_S: np.ndarray, last: int, found: Mapping[int, Sequence[int]]
) -> str:
    """Return a line on the words of the text, of the run and of its checkpoints."""
    own = int(words_S.sum())
    names = [f"{name_revision(words)} at {step:,}" for step in found for words in found[step]]
    return (
        f"words: {own:,} in the training part, {total:,.0f} read by step {last:,} "
        f"({total / max(own, 1):.3g} epochs); checkpoints by words: {', '.join(names) or 'none'}"
    )
