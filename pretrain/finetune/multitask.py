"""Several tasks in one run of a model that writes, so that one T5 does all (Raffel et al. 2019, section 2.4).

    --task cola=cola.tsv --task sst2=sst2.jsonl --heldout sst2=dev.jsonl

Each task is a source of the store, whose rows carry its prefix. They are mixed in proportion to their examples, with a limit (section 3.5.2).
"""

import argparse
import dataclasses
import hashlib
import json

from data.examples.text2text import write_sources
from data.objectives.text2text import Text2Text
from pretrain.finetune.text2text_task import WRITERS, as_text, writes_answers

OF_EACH = ("heldout", "columns", "prefix", "labels")  # options that each task may have


def separated(args):
    """The command line of each task: with `task` a name, and `train` and the options OF_EACH texts, or None. Raises ValueError.

    `--task NAME` and `--task NAME=FILE` are one task, whose options stand as they are; of several each is NAME=VALUE.
    """
    given = [task.partition("=")[::2] for task in args.task]
    names = [name for name, _ in given]
    for name, file in given:
        if names.count(name) > 1:
            raise ValueError(
                f"--task {name}, twice: a task is told from another by its prefix, which is its name; join the files"
            )
        if file and args.train:
            raise ValueError(f"--train {args.train} and --task {name}={file}: give one of them")
        if len(given) > 1 and args.train:
            raise ValueError(
                f"--task {', '.join(names)}: several tasks, of which each has a file of its own: --task NAME=FILE instead of --train"
            )
    if len(given) == 1 and args.limit is not None:
        raise ValueError("--limit is of several tasks: so many examples of each, at most")
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit {args.limit}: at least 1")
    options = {option: _of_each(option, getattr(args, option), names) for option in OF_EACH}
    each = []
    for name, file in given:
        own = {"task": name, "train": file or args.train} | {
            option: found.get(name) for option, found in options.items()
        }
        if len(given) > 1 and own["heldout"]:
            own["held_out"] = None  # the share is of the others
        each.append(argparse.Namespace(**vars(args) | own))
    return each


def _of_each(option, values, names):
    """{name: value} of an option that may have been given several times."""
    if len(names) == 1:
        return {names[0]: values[-1]} if values else {}
    found = {}
    for value in values or ():
        name, equals, text = value.partition("=")
        if name not in names or not equals:
            raise ValueError(
                f"--{option} {value}: of several tasks NAME=VALUE, and NAME is one of {', '.join(names)}"
            )
        found[name] = text
    return found


def together(args, names, gathered, pretrained):
    """(task, examples) of what was gathered of each task, as the pretrained model learns it. Raises ValueError where it cannot."""
    if writes_answers(pretrained.run.model):
        gathered = [
            (task, as_text(name, examples, pretrained))
            for name, (task, examples) in zip(names, gathered)
        ]
    elif len(names) > 1:
        raise ValueError(
            f"--task {args.task}: what learns several tasks in one run are {' and '.join(WRITERS)}; {pretrained.workdir} takes one"
        )
    if len(names) == 1:
        return gathered[0]
    return gathered[0][0], Several(
        {name: texts for name, (_, texts) in zip(names, gathered)}, args.limit
    )


class Several:
    """Tasks as one set of examples, as pretrain/finetune/labelled_task.py says.

    tasks: {name: `texts.Texts`}; limit: how many examples of each an epoch has at most, or None.
    """

    metrics = ("mean",)

    def __init__(self, tasks, limit):
        self.tasks, self.limit = tasks, limit
        forms = (
            dataclasses.replace(texts.spec, task=name, metrics=texts.metrics)
            for name, texts in tasks.items()
        )
        self.spec = Text2Text(tasks=tuple(forms))

    @property
    def rates(self):
        """How many examples of each task an epoch has."""
        counts = [len(texts.parts["train"]) for texts in self.tasks.values()]
        return [float(count if self.limit is None else min(count, self.limit)) for count in counts]

    def rows(self, objective, vocabulary):
        return int(sum(self.rates))

    def digest(self):
        text = json.dumps(
            [
                self.spec.describe_pairs(),
                self.rates,
                [texts.digest() for texts in self.tasks.values()],
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def model(self, pretrained):
        return next(iter(self.tasks.values())).model(pretrained)

    def objective(self, model):
        own = [texts.objective(model) for texts in self.tasks.values()]
        longest = {
            key: max(getattr(each, key) for each in own) for key in ("length", "target_length")
        }
        return dataclasses.replace(self.spec, start_of_text=own[0].start_of_text, **longest)

    def write(self, path, vocabulary):
        sources = {name: texts.parts for name, texts in self.tasks.items()}
        write_sources(path, vocabulary, self.spec, sources, self.rates, digest=self.digest())
        print(
            f"{path}: "
            + ", ".join(
                f"{name} {rate / sum(self.rates):.1%}" for name, rate in zip(sources, self.rates)
            )
            + " of the rows"
        )
