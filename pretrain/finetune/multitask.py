"""Several tasks in one run of a generative model (Raffel et al. 2019, section 2.4).

    --task cola=cola.tsv --task sst2=sst2.jsonl --heldout sst2=dev.jsonl

Each task is a source of the store, whose rows start with the task's prefix. They are mixed in
proportion to their examples, with a limit (section 3.5.2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from data.examples.text_pairs import write_sources
from data.objectives.text2text import Text2Text
from pretrain.finetune.finetune_options import GENERATIVE_MODELS, FinetuneOptions, TaskOptions
from pretrain.finetune.labelled_task import digest_facts
from pretrain.finetune.text2text_task import TextExamples, can_generate_answers, convert_to_text

if TYPE_CHECKING:
    from data.vocabulary.load import Vocabulary
    from pretrain.workdir.trained import Trained

OF_EACH = ("heldout", "columns", "prefix", "labels")  # options that each task may have


def split_task_arguments(args: FinetuneOptions) -> list[TaskOptions]:
    """Return the options of each task.

    With one task `--task NAME` or `--task NAME=FILE`, options have plain values; with several tasks
    each value is NAME=VALUE.

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
    options = {option: _parse_task_options(option, vars(args)[option], names) for option in OF_EACH}
    separate = []
    for name, file in given:
        own: dict[str, Any] = {option: values.get(name) for option, values in options.items()}
        # With several tasks, the share is for those without a held-out file.
        held_out = None if len(given) > 1 and own["heldout"] else args.held_out
        own |= {"train": file or args.train, "held_out": held_out, "scheme": args.scheme}
        own |= {"on_bad_example": args.on_bad_example, "file_format": args.file_format}
        separate.append(TaskOptions(name, **own))
    return separate


def _parse_task_options(
    option: str, values: Sequence[str] | None, names: Sequence[str]
) -> dict[str, str]:
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


def combine_examples(
    args: FinetuneOptions,
    names: Sequence[str],
    gathered: Sequence[tuple[Any, Any]],
    pretrained: Trained,
) -> tuple[Any, Any]:
    """Return one task and its examples, as the pretrained model learns them.

    Args:
      gathered: (task, examples) of each task.

    Raises:
      ValueError: if the model cannot learn the tasks.
    """
    if can_generate_answers(pretrained.run.model):
        gathered = [
            (task, convert_to_text(name, examples, pretrained))
            for name, (task, examples) in zip(names, gathered)
        ]
    elif len(names) > 1:
        raise ValueError(
            f"--task {', '.join(names)}: only {' and '.join(GENERATIVE_MODELS)} can learn several "
            f"tasks in one run; {pretrained.workdir} learns one"
        )
    if len(names) == 1:
        return gathered[0]
    return gathered[0][0], MultitaskExamples(
        {name: texts for name, (_, texts) in zip(names, gathered)}, args.limit
    )


class MultitaskExamples:
    """Several tasks as one set of examples, see `labelled_task.TaskExamples`.

    Attributes:
      tasks: {name: examples}.
      limit: the maximal number of examples of each task in an epoch, or None.
    """

    metrics = ("mean",)

    def __init__(self, tasks: Mapping[str, TextExamples], limit: int | None) -> None:
        self.tasks, self.limit = tasks, limit
        task_objectives = (
            dataclasses.replace(texts.spec, task=name, metrics=texts.metrics)
            for name, texts in tasks.items()
        )
        self.spec = Text2Text(tasks=tuple(task_objectives))

    @property
    def mixing_rates(self) -> list[float]:
        """The number of examples of each task in an epoch."""
        counts = [len(texts.parts["train"]) for texts in self.tasks.values()]
        return [float(count if self.limit is None else min(count, self.limit)) for count in counts]

    def count_rows(self, objective: Text2Text, vocabulary: Vocabulary) -> int:
        """Return the number of rows of an epoch."""
        return int(sum(self.mixing_rates))

    def digest_examples(self) -> str:
        """Return a fingerprint of the examples and their rates."""
        digests = [texts.digest_examples() for texts in self.tasks.values()]
        return digest_facts(self.spec.describe_pairs(), self.mixing_rates, digests)

    def make_model_config(self, pretrained: Trained) -> Any:
        """Return the configuration of the pretrained model."""
        return next(iter(self.tasks.values())).make_model_config(pretrained)

    def make_objective(self, model: Any) -> Text2Text:
        """Return the objective for a model, whose rows fit the longest of the tasks."""
        task_objectives = [texts.make_objective(model) for texts in self.tasks.values()]
        return dataclasses.replace(
            self.spec,
            start_of_text=task_objectives[0].start_of_text,
            length=max(objective.length for objective in task_objectives),
            target_length=max(objective.target_length for objective in task_objectives),
        )

    def write_store(self, path: str, vocabulary: Vocabulary) -> None:
        """Write the store and print the share of each task."""
        sources: dict[str, dict] = {name: texts.parts for name, texts in self.tasks.items()}
        write_sources(
            path, vocabulary, self.spec, sources, self.mixing_rates, digest=self.digest_examples()
        )
        shares = ", ".join(
            f"{name} {rate / sum(self.mixing_rates):.1%}"
            for name, rate in zip(sources, self.mixing_rates)
        )
        print(f"{path}: {shares} of the rows")
