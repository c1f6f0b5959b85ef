"""Exports of a run's checkpoints by the words that it had read, named as BabyLM's evaluation asks.

A folder, or a branch of a repository, for each number of `checkpoint.words`: chck_1M, chck_2M, ...,
and `main` for the newest checkpoint.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from data.corpus.hub.address import MAIN
from pretrain.publish.export import Exported, export_run
from pretrain.publish.export_options import ExportOptions
from pretrain.publish.push import push_run
from pretrain.publish.upload import Pushed, Target
from pretrain.training.monitoring.word_steps import find_word_steps, name_revision
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.workdir import Workdir


class Revision(NamedTuple):
    """A checkpoint under the name by which the evaluation asks for it."""

    name: str
    step: int


def list_revisions(workdir: str | os.PathLike[str]) -> tuple[list[Revision], list[str]]:
    """Return the checkpoints by words read, `main` last, and the names that have none.

    Raises:
      FileNotFoundError: this is no workdir.
      ValueError: no checkpoint records words.
    """
    opened = Workdir.open(workdir)
    wanted, steps = opened.run.checkpoint.words, opened.list_steps()
    with Checkpoints(opened, read_only=True) as checkpoints:
        found = find_word_steps(steps, checkpoints.load_record)
    if not found:
        raise ValueError(
            f"{workdir}: no checkpoint records how many words it has read; train with "
            "checkpoint.words=1000000,2000000 or as many as you want to export"
        )
    revisions = [Revision(name_revision(words), found[words]) for words in sorted(found)]
    missing = [name_revision(words) for words in sorted({*wanted} - found.keys())]
    return [*revisions, Revision(MAIN, max(steps))], missing


def export_revisions(
    workdir: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: ExportOptions,
    report: Callable[[str], Any] = print,
) -> dict[str, Exported]:
    """Write a folder for each revision in `output`; return {name: export}.

    Raises: as `export_run` and `list_revisions`.
    """
    revisions, missing = list_revisions(workdir)
    exports = {}
    for name, step in revisions:
        own = dataclasses.replace(options, by_words=False, step=step)
        place = pathlib.Path(output, name)
        exports[name] = export_run(workdir, place, own)
        report(f"{place}: step {step:,}")
    report_missing(missing, report)
    return exports


def push_revisions(
    workdir: str | os.PathLike[str],
    target: Target,
    options: ExportOptions,
    report: Callable[[str], Any] = print,
) -> dict[str, Pushed]:
    """Upload each revision in a commit to a branch of its name; return {name: upload}.

    Raises: as `push_run` and `list_revisions`, and ValueError if a branch or a pull request is
    named.
    """
    if target.branch != MAIN or target.as_pull_request:
        raise ValueError("--by-words names the branches itself; name none")
    revisions, missing = list_revisions(workdir)
    pushed = {}
    # The newest first: a repository begins with its main branch.
    for name, step in revisions[::-1]:
        own = dataclasses.replace(options, by_words=False, step=step)
        pushed[name] = push_run(workdir, dataclasses.replace(target, branch=name), own, report)
    report_missing(missing, report)
    return pushed


def report_missing(names: list[str], report: Callable[[str], Any]) -> None:
    """Report the numbers of words that the run has not read, or whose step it did not save."""
    if names:
        report(f"no checkpoint for {', '.join(names)}")
