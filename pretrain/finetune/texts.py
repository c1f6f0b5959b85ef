"""Examples for a model that writes: pairs of texts, and every labelled task as text (Raffel et al. 2019, section 2.4 and appendix D).

Each text of a labelled example stands behind its name, the task's name in front of all: "mrpc sentence1: ... sentence2: ...". What is to be
written is the word of the class, or the score, rounded so that few different ones are left.
"""

import dataclasses
import hashlib
import json
from typing import NamedTuple

from data import labelled
from data.labelled import Columns
from data.objectives.text2text import Text2Text
from data.text2text import answer_of, described, pairs, reading, spelt, step_for, write_pairs
from models.config import BartConfig, T5Config
from pretrain.finetune.examples import Labelled

WRITERS = (T5Config, BartConfig)
FIXED = {"stsb": 0.2}  # the paper's step of a score; of other tasks as data/text2text.py says
# What the numbers in GLUE's own files stand for; the paper's words are these.
ENTAILED = ("entailment", "not_entailment")
NUMBERED = {
    "cola": ("unacceptable", "acceptable"),
    "sst2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
    "mnli": ("entailment", "neutral", "contradiction"),
    "qnli": ENTAILED,
    "rte": ENTAILED,
    "wnli": ("not_entailment", "entailment"),
}


class PairTask(NamedTuple):
    """A text for a text, as translations and summaries are. The fields are those of `tasks.LabelTask`."""

    metrics: tuple[str, ...]
    tfds: None = None

    def read(self, args, train, heldout, share):
        """`Texts`; the arguments are those of `examples.gather`."""
        names = (args.columns or "source,target").split(",")
        if len(names) != 2 or not all(names):
            raise ValueError(f"--columns {args.columns}: the name of the source and that of the target, with a comma between them")
        if args.labels:
            raise ValueError("--labels are names of classes; the answers of text2text are any text")
        spec, columns = Text2Text(columns=tuple(names), prefix=args.prefix or ""), Columns((names[0],), names[1])
        read = labelled.read(train, columns, answer_of)
        labelled.check_several(read)
        parts = (read, labelled.read(heldout, columns, answer_of)) if heldout else labelled.part(read, share)
        return Texts(spec, {split: pairs(spec, part) for split, part in zip(("train", "heldout"), parts)})


class Texts:
    """Pairs (what is read, what is to be written). spec: how they were written, a `Text2Text`; examples.py tells of the methods."""

    def __init__(self, spec, parts):
        self.spec, self.parts = spec, parts

    def digest(self):
        text = json.dumps([described(self.spec), self.parts])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def model(self, pretrained):
        model = pretrained.run.model
        if not isinstance(model, WRITERS):
            raise ValueError(f"{pretrained.workdir} is a run of a {type(model).__name__}; what learns to write answers is T5 and BART")
        return model

    def objective(self, model):
        framed, most = isinstance(model, BartConfig), getattr(model, "length", 128)
        lengths = {"length": min(128, most), "target_length": min(self.spec.target_length + framed, most - framed)}
        return dataclasses.replace(self.spec, start_of_text=framed, **lengths)

    def write(self, path, vocabulary):
        write_pairs(path, vocabulary, self.spec, self.parts, digest=self.digest())


def as_text(task, examples, pretrained):
    """The examples of the task of that name as `Texts`, for a run that writes. Raises ValueError for a kind that cannot be written."""
    if isinstance(examples, Texts):
        return examples
    if not isinstance(examples, Labelled):
        raise ValueError(f"--task {task} is for encoders; {type(pretrained.run.model).__name__} learns classes, scores and text2text")
    columns = examples.columns
    spec = Text2Text(
        columns=(*columns.texts, columns.label),
        prefix=f"{task} ",
        names=examples.task.columns[0].texts[: len(columns.texts)],
        labels=examples.names,
        words=words_of(task, examples.names),
        step=0.0 if examples.names else FIXED.get(task) or step_for([example.label for part in examples.parts.values() for example in part]),
    )
    parts = {split: pairs(spec, part) for split, part in examples.parts.items()}
    answers = sorted({target for part in parts.values() for _, target in part} | set(spec.words))
    ids, read = pretrained.vocabulary.encode_batch(answers), reading(spec, pretrained.vocabulary)
    for answer, each in zip(answers, ids):
        if spec.step and read(spelt(pretrained.vocabulary, each)) != float(answer):
            raise ValueError(f"{pretrained.workdir}: its vocabulary cannot spell the score {answer}; regression needs digits and a point")
    longest = max(map(len, ids))
    return Texts(dataclasses.replace(spec, target_length=longest + 1), parts)


def words_of(task, labels):
    """What is written for each class: its name, or what a number of GLUE's stands for."""
    words = NUMBERED.get(task, ())
    return words if labels == tuple(map(str, range(len(words)))) else labels
