"""Labelled texts as examples of `finetune`, and the interface of the examples of all tasks."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from data.examples import labelled_examples, labelled_store
from data.examples.bad_examples import BadExamples, keep_good, raise_if_empty
from data.examples.labelled_examples import read_records
from pretrain.finetune.finetune_options import TaskOptions

if TYPE_CHECKING:
    from data.examples.labelled_examples import Columns, Example
    from data.vocabulary.load import Vocabulary
    from models.config.classifier import ClassifierConfig
    from pretrain.workdir.trained import Trained


class TaskExamples(Protocol):
    """The examples of a task.

    They have the attribute `parts`, {split: examples}, unless they are `CountsRows`. An attribute
    `metrics` replaces the task's.
    """

    def digest_examples(self) -> str:
        """Return a fingerprint of the examples, which shows whether a store was made of them."""
        ...

    def make_model_config(self, pretrained: Trained) -> Any:
        """Return the configuration of the model that learns from them."""
        ...

    def make_objective(self, model: Any) -> Any:
        """Return the objective that makes rows of them."""
        ...

    def write_store(self, path: str, vocabulary: Vocabulary) -> None:
        """Write the store, with the digest in its manifest."""
        ...


@runtime_checkable
class CountsRows(Protocol):
    """Examples whose epoch does not have one row per training example."""

    def count_rows(self, objective: Any, vocabulary: Vocabulary) -> int:
        """Return the number of rows of an epoch."""
        ...


def digest_facts(*facts: Any) -> str:
    """Return a fingerprint of JSON values, of 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def digest_parts(parts: Mapping[str, Sequence[Any]], width: int, *facts: Any) -> str:
    """Return a fingerprint of facts and of the first `width` fields of the examples of parts."""
    return digest_facts(
        *facts, {split: [example[:width] for example in part] for split, part in parts.items()}
    )


class LabelledExamples:
    """Texts, or pairs of texts, with a class or a score.

    Attributes:
      parts: {split: examples}.
      names: the names of the classes; () for scores.
    """

    def __init__(
        self, task: Any, parts: dict[str, list[Example]], names: tuple[str, ...], columns: Columns
    ) -> None:
        self.task, self.parts, self.names, self.columns = task, parts, names, columns

    def digest_examples(self) -> str:
        """Return a fingerprint of the examples and the names of the classes."""
        return digest_parts(self.parts, 2, self.names)

    def make_model_config(self, pretrained: Trained) -> ClassifierConfig:
        """Return the configuration of a classifier on the encoder of a pretrained model."""
        from models.config.classifier import ClassifierConfig
        from pretrain.finetune.encoders import find_encoder_config

        return ClassifierConfig(encoder=find_encoder_config(pretrained), labels=self.names)

    def make_objective(self, model: ClassifierConfig) -> Any:
        """Return the objective of the task for a model."""
        from pretrain.finetune.encoders import make_label_objective

        columns = (*self.columns.texts, self.columns.label)
        return make_label_objective(self.task.objective, model, columns=columns)

    def write_store(self, path: str, vocabulary: Vocabulary) -> None:
        """Write the store."""
        labelled_store.write_labelled(
            path, vocabulary, self.parts, self.names, digest=self.digest_examples()
        )


def gather_labelled_examples(
    task: Any, args: TaskOptions, train: str, heldout: str | None, share: float
) -> LabelledExamples:
    """Return the labelled examples of a task.

    Args:
      heldout: the source of the held-out examples, or None.
      share: the share of `train` to hold out if `heldout` is None.

    Raises:
      ValueError: for a bad example; names the line.
    """
    bad, bad_heldout = make_bad_examples(args, train), make_bad_examples(args, heldout or "")
    columns = (
        parse_columns(args.columns)
        if args.columns
        else find_columns(task, train, bad.skip, args.file_format)
    )
    unread = frozenset() if args.columns else list_unread_columns(task, columns)
    read_examples = functools.partial(
        labelled_examples.read_examples,
        columns=columns,
        label=task.label,
        extra_columns=unread,
        file_format=args.file_format,
    )
    examples = read_examples(train, bad=bad)
    if task.words and not args.labels:
        examples = keep_known_labels(args.task, task.words, examples, bad)
    labelled_examples.check_label_variety(examples)
    names = ()
    if task.label is labelled_examples.parse_class:
        names = (
            tuple(args.labels.split(","))
            if args.labels
            else order_labels(task, labelled_examples.list_classes(examples))
        )
    elif args.labels:
        raise ValueError(f"--labels names classes; {args.task} has scores")
    examples = keep_labelled(examples, names, bad)
    if heldout:
        read = read_examples(heldout, bad=bad_heldout)
        splits = examples, keep_labelled(read, names, bad_heldout)
    else:
        splits = labelled_store.split_examples(examples, share)
    parts: dict[str, Any] = dict(zip(("train", "heldout"), splits))
    bad.report()
    bad_heldout.report()
    if warning := labelled_examples.describe_single_label(parts["heldout"]):
        print(f"held out: {warning}, so its scores are not informative", file=sys.stderr)
    return LabelledExamples(task, parts, names, columns)


def make_bad_examples(args: TaskOptions, source: str) -> BadExamples:
    """Return what becomes of the bad examples of a source by --on-bad-example."""
    return BadExamples(source, args.on_bad_example == "skip")


def keep_labelled(
    examples: list[Example], names: tuple[str, ...], bad: BadExamples
) -> list[Example]:
    """Return the examples with a label among `names`; the others are bad."""
    good = keep_good(
        examples, lambda example: labelled_examples.encode_labels([example], names), bad
    )
    raise_if_empty(bad.source, "examples", good, bad)
    return good


def parse_columns(text: str) -> Columns:
    """Return the columns of --columns TEXT[,TEXT],LABEL."""
    *texts, label = text.split(",")
    if len(texts) not in (1, 2) or not all((*texts, label)):
        raise ValueError(
            f"--columns {text}: expected the names of one or two texts and of the label, separated "
            "by commas"
        )
    return labelled_examples.Columns(tuple(texts), label)


def find_columns(
    task: Any, source: str, skip: bool = False, file_format: str | None = None
) -> Columns:
    """Return those columns of a task that the first record of a source has.

    Args:
      skip: whether records before it that have none of them are skipped.
    """
    first = None
    # What is skipped is counted when the examples are read.
    for found in read_records(source, BadExamples(source, skip), file_format):
        first = first or found
        for columns in task.columns:
            if {*columns.texts, columns.label} <= found[1].keys():
                return columns
        if not skip:
            break
    if first is None:
        raise ValueError(f"{source}: contains no examples")
    place, record = first
    expected = " or ".join(",".join((*columns.texts, columns.label)) for columns in task.columns)
    raise ValueError(
        f"{place}: has the columns {', '.join(map(repr, record))}; expected {expected}. To name "
        "others, use --columns TEXT[,TEXT],LABEL"
    )


def list_unread_columns(task: Any, columns: Columns) -> frozenset[str]:
    """Return the columns of texts that the task would read in addition if the source had them."""
    ways = [set(way.texts) for way in task.columns]
    return frozenset().union(*(way for way in ways if way > set(columns.texts))) - set(
        columns.texts
    )


def order_labels(task: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of classes in the order of the task, if it has one for them."""
    return next((order for order in task.orders if set(order) == set(names)), names)


def keep_known_labels(
    name: str, label_names: Sequence[str], examples: Sequence[Example], bad: BadExamples
) -> list[Example]:
    """Return the examples with a label that a task has; the others are bad.

    Args:
      label_names: its labels. All examples may have their numbers instead.
    """
    numbers = tuple(map(str, range(len(label_names))))
    allowed = numbers if examples[0].label in numbers else label_names

    def check_label(example: Example) -> None:
        if example.label not in allowed:
            raise ValueError(
                f"{example.location}: the label {example.label!r} is not one of {name}, whose "
                f"labels are {', '.join(map(repr, label_names))}, or in all lines "
                f"{', '.join(numbers)}: remove such lines, name other classes with --labels, or "
                "use --task classification"
            )

    good = keep_good(examples, check_label, bad)
    raise_if_empty(bad.source, "examples", good, bad)
    return good
