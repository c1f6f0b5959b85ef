"""Several tasks in one run of a generative model (Raffel et al. 2019, section 2.4).

    --task cola=cola.tsv --task sst2=sst2.jsonl --heldout sst2=dev.jsonl

Each task is a source of the store, whose rows start with the task's prefix. They are mixed in
proportion to their examples, with a limit (section 3.5.2).
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from data.examples.text2text import write_sources
from data.objectives.text2text import Text2Text
from pretrain.finetune.text2text_task import WRITERS, Texts, as_text, writes_answers

if TYPE_CHECKING:
    from data.vocabulary.load import Vocabulary
    from pretrain.inference.trained import Trained

OF_EACH = ("heldout", "columns", "prefix", "labels")  # options that each task may have


def separated(args: argparse.Namespace) -> list[argparse.Namespace]:
    """Return the command line of each task.

    In each, `task` is a name, and `train` and the options of OF_EACH are texts or None. With one
    task `--task NAME` or `--task NAME=FILE`, options have plain values; with several tasks each
    value is NAME=VALUE.

    Raises:
      ValueError: for options that contradict each other or name another task.
    """
    given = [task.partition("=")[::2] for task in args.task]
    names = [name for name, _ in given]
    for name, file in given:
        if names.count(name) > 1:
            raise ValueError(
                f"--task {name} is given twice; tasks differ by their prefix, which is the name. "
                "Join the files"
            )
        if file and args.train:
            raise ValueError(f"--train {args.train} and --task {name}={file}: give one of them")
        if len(given) > 1 and args.train:
            raise ValueError(
                f"--task {', '.join(names)}: several tasks need one file each: --task NAME=FILE "
                "instead of --train"
            )
    if len(given) == 1 and args.limit is not None:
        raise ValueError("--limit needs several tasks: it is the maximal number of examples each")
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit {args.limit}: must be at least 1")
    options = {option: _of_each(option, getattr(args, option), names) for option in OF_EACH}
    separate = []
    for name, file in given:
        own = {"task": name, "train": file or args.train} | {
            option: values.get(name) for option, values in options.items()
        }
        if len(given) > 1 and own["heldout"]:
            own["held_out"] = None  # the share is for tasks without a held-out file
        separate.append(argparse.Namespace(**vars(args) | own))
    return separate


def _of_each(option: str, values: Sequence[str] | None, names: Sequence[str]) -> dict[str, str]:
    """Return the values of an option by the names of the tasks."""
    if len(names) == 1:
        return {names[0]: values[-1]} if values else {}
    by_name = {}
    for value in values or ():
        name, equals, text = value.partition("=")
        if name not in names or not equals:
            raise ValueError(
                f"--{option} {value}: several tasks need NAME=VALUE, where NAME is one of "
                f"{', '.join(names)}"
            )
        by_name[name] = text
    return by_name


def together(
    args: argparse.Namespace,
    names: Sequence[str],
    gathered: Sequence[tuple[Any, Any]],
    pretrained: Trained,
) -> tuple[Any, Any]:
    """Return one task and its examples, as the pretrained model learns them.

    Args:
      args: the command line of all tasks.
      names: the names of the tasks.
      gathered: (task, examples) of each task.
      pretrained: the pretrained model. A generative one learns all tasks as text.

    Raises:
      ValueError: if the model cannot learn the tasks.
    """
    if writes_answers(pretrained.run.model):
        gathered = [
            (task, as_text(name, examples, pretrained))
            for name, (task, examples) in zip(names, gathered)
        ]
    elif len(names) > 1:
        raise ValueError(
            f"--task {args.task}: only {' and '.join(WRITERS)} can learn several tasks in one run; "
            f"{pretrained.workdir} learns one"
        )
    if len(names) == 1:
        return gathered[0]
    return gathered[0][0], Several(
        {name: texts for name, (_, texts) in zip(names, gathered)}, args.limit
    )


class Several:
    """Several tasks as one set of examples, see `labelled_task.TaskExamples`.

    Attributes:
      tasks: {name: examples}.
      limit: the maximal number of examples of each task in an epoch, or None.
      spec: the objective of all tasks.
    """

    metrics = ("mean",)

    def __init__(self, tasks: Mapping[str, Texts], limit: int | None) -> None:
        self.tasks, self.limit = tasks, limit
        task_objectives = (
            dataclasses.replace(texts.spec, task=name, metrics=texts.metrics)
            for name, texts in tasks.items()
        )
        self.spec = Text2Text(tasks=tuple(task_objectives))

    @property
    def rates(self) -> list[float]:
        """The number of examples of each task in an epoch."""
        counts = [len(texts.parts["train"]) for texts in self.tasks.values()]
        return [float(count if self.limit is None else min(count, self.limit)) for count in counts]

    def rows(self, objective: Text2Text, vocabulary: Vocabulary) -> int:
        """Return the number of rows of an epoch."""
        return int(sum(self.rates))

    def digest(self) -> str:
        """Return a fingerprint of the examples and their rates."""
        text = json.dumps(
            [
                self.spec.describe_pairs(),
                self.rates,
                [texts.digest() for texts in self.tasks.values()],
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def model(self, pretrained: Trained) -> Any:
        """Return the configuration of the pretrained model."""
        return next(iter(self.tasks.values())).model(pretrained)

    def objective(self, model: Any) -> Text2Text:
        """Return the objective for a model, whose rows fit the longest of the tasks."""
        task_objectives = [texts.objective(model) for texts in self.tasks.values()]
        longest = {
            key: max(getattr(each, key) for each in task_objectives)
            for key in ("length", "target_length")
        }
        return dataclasses.replace(
            self.spec, start_of_text=task_objectives[0].start_of_text, **longest
        )

    def write(self, path: str, vocabulary: Vocabulary) -> None:
        """Write the store and print the share of each task."""
        sources: dict[str, dict] = {name: texts.parts for name, texts in self.tasks.items()}
        write_sources(path, vocabulary, self.spec, sources, self.rates, digest=self.digest())
        shares = ", ".join(
            f"{name} {rate / sum(self.rates):.1%}" for name, rate in zip(sources, self.rates)
        )
        print(f"{path}: {shares} of the rows")
