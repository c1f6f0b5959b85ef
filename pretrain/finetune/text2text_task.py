"""Examples for a model that writes: pairs of texts, and every labelled task as text (Raffel et al. 2019, section 2.4 and appendix D).

Each text of a labelled example stands behind its name, the task's name in front of all: "mrpc sentence1: ... sentence2: ...". What is to be
written is the word of the class, or the score, rounded so that few different ones are left.
"""

import dataclasses
import hashlib
import json
from typing import NamedTuple

from data.examples import labelled, labelled_store
from data.examples.labelled import Columns
from data.examples.tagging import USUAL
from data.examples.tags_as_text import kinds_of
from data.examples.text2text import (
    Scored,
    answer_of,
    asked,
    marked,
    pairs,
    reading,
    spelt,
    step_for,
    write_pairs,
)
from data.objectives.text2text import Text2Text
from pretrain.families import FAMILIES, family_of
from pretrain.finetune.multiple_choice_task import Choices
from pretrain.finetune.qa_task import Answered
from pretrain.finetune.tagging_task import Tagged

LIMITLESS = 1 << 20  # tokens of a row of a model whose positions are relative
# The families that learn to write answers.
WRITERS = [family.config.__name__ for family in FAMILIES.values() if Text2Text in family.objectives]


def writes_answers(model):
    """Whether a pretrained model can learn tasks as text."""
    return type(model).__name__ in WRITERS


LONGEST = 64  # tokens of an answer to a question, at most
FIXED = {
    "stsb": 0.2
}  # the paper's step of a score; of other tasks as data/examples/text2text.py says
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
            raise ValueError(
                f"--columns {args.columns}: the name of the source and that of the target, with a comma between them"
            )
        if args.labels:
            raise ValueError("--labels are names of classes; the answers of text2text are any text")
        spec, columns = (
            Text2Text(columns=tuple(names), prefix=args.prefix or ""),
            Columns((names[0],), names[1]),
        )
        read = labelled.read(train, columns, answer_of)
        labelled.check_several(read)
        parts = (
            (read, labelled.read(heldout, columns, answer_of))
            if heldout
            else labelled_store.part(read, share)
        )
        return Texts(
            spec,
            {split: pairs(spec, part) for split, part in zip(("train", "heldout"), parts)},
            self.metrics,
        )


class Texts:
    """Pairs (what is read, what is to be written). spec: how they were written, a `Text2Text`; examples.py tells of the methods."""

    def __init__(self, spec, parts, metrics):
        self.spec, self.parts, self.metrics = spec, parts, metrics

    def digest(self):
        parts = {
            split: [pair[:2] if isinstance(pair, Scored) else pair for pair in part]
            for split, part in self.parts.items()
        }
        text = json.dumps(
            [self.spec.describe_pairs(), parts]
        )  # of a score what is learned, as stores of before have it
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def model(self, pretrained):
        model = pretrained.run.model
        if not writes_answers(model):
            raise ValueError(
                f"{pretrained.workdir} is a run of a {type(model).__name__}; what learns to write answers is {' and '.join(WRITERS)}"
            )
        return model

    def objective(self, model):
        framed = "bos" in family_of(model).token_roles
        most = getattr(model, "length", LIMITLESS)
        lengths = {
            "length": min(self.spec.length, most),
            "target_length": min(self.spec.target_length + framed, most - framed),
        }
        return dataclasses.replace(self.spec, start_of_text=framed, **lengths)

    def write(self, path, vocabulary):
        write_pairs(path, vocabulary, self.spec, self.parts, digest=self.digest())


def as_text(task, examples, pretrained):
    """The examples of the task of that name as `Texts`, for a run that writes. Raises ValueError where its vocabulary cannot spell the answers."""
    if isinstance(examples, Texts):
        return examples
    if isinstance(examples, Answered):
        return as_questions(task, examples, pretrained.vocabulary)
    if isinstance(examples, Choices):
        return as_choices(task, examples, pretrained.vocabulary)
    if isinstance(examples, Tagged):
        return as_tags(task, examples, pretrained.vocabulary)
    columns = examples.columns
    spec = Text2Text(
        columns=(*columns.texts, columns.label),
        prefix=f"{task} ",
        names=examples.task.columns[0].texts[: len(columns.texts)],
        labels=examples.names,
        words=words_of(task, examples.names),
        step=0.0
        if examples.names
        else FIXED.get(task)
        or step_for([example.label for part in examples.parts.values() for example in part]),
    )
    parts = {split: pairs(spec, part) for split, part in examples.parts.items()}
    answers = sorted({pair[1] for part in parts.values() for pair in part} | set(spec.words))
    ids, read = pretrained.vocabulary.encode_batch(answers), reading(spec, pretrained.vocabulary)
    for answer, each in zip(answers, ids):
        if spec.step and read(spelt(pretrained.vocabulary, each)) != float(answer):
            raise ValueError(
                f"{pretrained.workdir}: its vocabulary cannot spell the score {answer}; regression needs digits and a point"
            )
    longest = max(map(len, ids))
    return Texts(dataclasses.replace(spec, target_length=longest + 1), parts, examples.task.metrics)


def as_questions(task, examples, vocabulary):
    """Questions as `Texts`: "question: ... context: ...", as the paper's appendix D has SQuAD; behind the task's name where some have no answer."""
    squad2 = examples.task.unanswerable
    names = ("question", "context")
    spec = Text2Text(
        length=512,
        columns=(*names, "answers"),
        prefix=f"{task} " if squad2 else "",
        names=names,
        questions=task,
    )
    parts = {split: asked(spec, part) for split, part in examples.parts.items()}
    longest = max(map(len, vocabulary.encode_batch([one.target for one in parts["train"]])))
    metrics = tuple(
        name for name in examples.task.metrics if name != "null_threshold"
    )  # no scores to compare
    return Texts(dataclasses.replace(spec, target_length=min(longest + 1, LONGEST)), parts, metrics)


def as_choices(task, examples, vocabulary):
    """Questions with choices as `Texts`: "choice1: ... choice2: ... context: ...", as the paper's appendix D has COPA; what is written is "choice2"."""
    words = tuple(f"choice{number}" for number in range(1, examples.count + 1))
    names = ("context", *words)
    labels = tuple(map(str, range(examples.count)))
    spec = Text2Text(
        columns=(*names, "label"),
        prefix=f"{task} ",
        names=names,
        labels=labels,
        words=words,
        choices=examples.count,
    )
    longest = max(map(len, vocabulary.encode_batch(words)))
    reading(spec, vocabulary)  # refuses words that are spelt alike
    parts = {split: pairs(spec, part) for split, part in examples.parts.items()}
    return Texts(dataclasses.replace(spec, target_length=longest + 1), parts, ("accuracy",))


def as_tags(task, examples, vocabulary):
    """Tagged words as `Texts`: "tagging sentence: ..."; what is written is the entities, each behind its type. The paper has no such task."""
    kinds = kinds_of(examples.names, examples.scheme)
    columns = examples.columns or USUAL[0]
    spec = Text2Text(
        columns=columns, prefix=f"{task} ", names=("sentence",), scheme=examples.scheme, kinds=kinds
    )
    reading(spec, vocabulary)  # refuses types that could not be read again
    parts = {split: marked(spec, part) for split, part in examples.parts.items()}
    longest = max(map(len, vocabulary.encode_batch([one.target for one in parts["train"]])))
    metrics = tuple(
        name for name in examples.metrics if name != "unread_words"
    )  # of sentences that are cut all entities count
    return Texts(dataclasses.replace(spec, target_length=longest + 1), parts, metrics)


def words_of(task, labels):
    """What is written for each class: its name, or what a number of GLUE's stands for."""
    words = NUMBERED.get(task, ())
    return words if labels == tuple(map(str, range(len(words)))) else labels
