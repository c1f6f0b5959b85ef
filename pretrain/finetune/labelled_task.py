"""Labelled examples as `finetune` learns from them. What another kind of task reads has the same attributes and methods:

parts        {split: examples}, of which `train` tells how long an epoch is
digest()     a fingerprint of all that is learned: whether a store was made of the same
model(pretrained)       the configuration that learns from them; pretrained: an opened run (pretrain/inference/trained.py)
objective(model)        how rows are made of them
write(path, vocabulary) the store, with the digest in its manifest
rows(objective, vocabulary)   of tasks where an example may be several rows: how many there are of `train`, an epoch
metrics      of tasks where these follow from what was read: names in the place of the task's
"""

import hashlib
import json
import sys

from data.examples import labelled, labelled_store
from data.examples.labelled import records


class Labelled:
    """Texts, or pairs, with a class or a score. names: of the classes, () for scores; columns: where they were found."""

    def __init__(self, task, parts, names, columns):
        self.task, self.parts, self.names, self.columns = task, parts, names, columns

    def digest(self):
        text = json.dumps(
            [
                self.names,
                {split: [example[:2] for example in part] for split, part in self.parts.items()},
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def model(self, pretrained):
        from models.config.heads import ClassifierConfig
        from pretrain.finetune.encoders import encoder_of

        return ClassifierConfig(encoder=encoder_of(pretrained), labels=self.names)

    def objective(self, model):
        from pretrain.finetune.encoders import separators

        columns = (*self.columns.texts, self.columns.label)
        return self.task.objective(
            length=min(128, model.length), separators=separators(model.encoder), columns=columns
        )

    def write(self, path, vocabulary):
        labelled_store.write_labelled(
            path, vocabulary, self.parts, self.names, digest=self.digest()
        )


def gather(task, args, train, heldout, share):
    """The `Labelled` examples of a `tasks.LabelTask`; share: of `train`, held out where `heldout` is None. Raises ValueError that names the line."""
    columns = labelled_columns(args.columns) if args.columns else columns_of(task, train)
    unread = frozenset() if args.columns else further(task, columns)
    read = labelled.read(train, columns, task.label, unread)
    if task.words and not args.labels:
        check_known(args.task, task.words, read)
    labelled.check_several(read)
    names = ()
    if task.label is labelled.class_of:
        names = (
            tuple(args.labels.split(",")) if args.labels else ordered(task, labelled.classes(read))
        )
    elif args.labels:
        raise ValueError(f"--labels are names of classes; {args.task} has scores")
    labelled.numbered(read, names)
    parts = dict(
        zip(
            ("train", "heldout"),
            (read, labelled.read(heldout, columns, task.label, unread))
            if heldout
            else labelled_store.part(read, share),
        )
    )
    labelled.numbered(parts["heldout"], names)
    if told := labelled.alike(parts["heldout"]):
        print(f"held out: {told}, of which scores tell little", file=sys.stderr)
    return Labelled(task, parts, names, columns)


def labelled_columns(text):
    *texts, label = text.split(",")
    if len(texts) not in (1, 2) or not all((*texts, label)):
        raise ValueError(
            f"--columns {text}: the name of a text, or of two, and that of the label, with commas between them"
        )
    return labelled.Columns(tuple(texts), label)


def columns_of(task, source):
    """The task's columns as the first record of a source names them. Raises ValueError, which tells all the ways, where none is there."""
    place, record = next(iter(records(source)), (source, None))
    if record is None:
        raise ValueError(f"{source}: no examples in it")
    for columns in task.columns:
        if {*columns.texts, columns.label} <= record.keys():
            return columns
    ways = " or ".join(",".join((*columns.texts, columns.label)) for columns in task.columns)
    raise ValueError(
        f"{place}: has the columns {', '.join(map(repr, record))}; expected {ways}. --columns TEXT[,TEXT],LABEL names others"
    )


def further(task, columns):
    """The names of texts that the task would read beside those of `columns`, were they there."""
    ways = [set(way.texts) for way in task.columns]
    return frozenset().union(*(way for way in ways if way > set(columns.texts))) - set(
        columns.texts
    )


def ordered(task, names):
    """The names of classes as the task orders them, or as they are."""
    return next((order for order in task.orders if set(order) == set(names)), names)


def check_known(name, words, examples):
    """Raise ValueError, which names the line, for a label that the task of that name has not: `words`, or in all lines the numbers of these."""
    numbers = tuple(map(str, range(len(words))))
    allowed = numbers if examples[0].label in numbers else words
    for example in examples:
        if example.label not in allowed:
            told = f"{', '.join(map(repr, words))}, or in all lines {', '.join(numbers)}"
            remedy = "leave such lines out, name other classes by --labels, or take --task classification"
            raise ValueError(
                f"{example.place}: the label {example.label!r} is none of {name}, whose labels are {told}: {remedy}"
            )
