"""Tasks for a generative model: pairs of texts, and every labelled task as text.

See Raffel et al. 2019, section 2.4 and appendix D. Each text of a labelled example follows its
name, after the name of the task: "mrpc sentence1: ... sentence2: ...". The target is the name of
the class, or the score, rounded so that few different ones remain.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from data.examples import labelled_examples, labelled_store
from data.examples.labelled_examples import Columns
from data.examples.tagged_sentences import USUAL_KEYS
from data.examples.tags_as_text import list_entity_types
from data.examples.text_pairs import (
    ScorePair,
    decode_output,
    find_step,
    make_answer_reader,
    make_pairs,
    make_question_pairs,
    make_tag_pairs,
    parse_answer,
    write_pairs,
)
from data.objectives.text2text import Text2Text
from models.config.heads import LIMITLESS
from pretrain.families import find_family
from pretrain.finetune.finetune_options import GENERATIVE_MODELS, TaskOptions
from pretrain.finetune.labelled_task import digest_facts, make_bad_examples
from pretrain.finetune.multiple_choice_task import ChoiceExamples
from pretrain.finetune.qa_task import QuestionExamples
from pretrain.finetune.tagging_task import TaggedExamples

if TYPE_CHECKING:
    from data.vocabulary.load import Vocabulary
    from pretrain.finetune.labelled_task import LabelledExamples
    from pretrain.workdir.trained import Trained

LONGEST = 64  # maximal tokens of an answer to a question
# The paper's step between scores; for other tasks see data/examples/text_pairs.py.
SCORE_STEPS = {"stsb": 0.2}
# The classes of the numbers in GLUE's files, in the paper's words.
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


def can_generate_answers(model: Any) -> bool:
    """Return whether a pretrained model can learn tasks as text."""
    return type(model).__name__ in GENERATIVE_MODELS


class PairTask(NamedTuple):
    """Generate a text for a text, e.g. a translation or summary.

    The fields are as in `tasks.LabelTask`.
    """

    metrics: tuple[str, ...]
    tfds: None = None

    def read_examples(
        self, args: TaskOptions, train: str, heldout: str | None, share: float
    ) -> TextExamples:
        """Return the examples; see `gather_labelled_examples` for the arguments."""
        names = (args.columns or "source,target").split(",")
        if len(names) != 2 or not all(names):
            raise ValueError(
                f"--columns {args.columns}: expected the names of the source and of the target, "
                "separated by a comma"
            )
        if args.labels:
            raise ValueError("--labels names classes; the targets of text2text are any text")
        spec = Text2Text(columns=tuple(names), prefix=args.prefix or "")
        columns = Columns((names[0],), names[1])
        bad, bad_heldout = make_bad_examples(args, train), make_bad_examples(args, heldout or "")
        read = functools.partial(
            labelled_examples.read_examples,
            columns=columns,
            label=parse_answer,
            file_format=args.file_format,
        )
        examples = read(train, bad=bad)
        labelled_examples.check_label_variety(examples)
        splits = (
            (examples, read(heldout, bad=bad_heldout))
            if heldout
            else labelled_store.split_examples(examples, share)
        )
        bad.report()
        bad_heldout.report()
        parts = {split: make_pairs(spec, part) for split, part in zip(("train", "heldout"), splits)}
        return TextExamples(spec, parts, self.metrics)


class TextExamples:
    """Pairs (source, target), see `labelled_task.TaskExamples`.

    Attributes:
      spec: the objective, which records how the texts were made.
      parts: {split: pairs}.
      metrics: the names of the metrics.
    """

    def __init__(
        self, spec: Text2Text, parts: dict[str, list[Any]], metrics: tuple[str, ...]
    ) -> None:
        self.spec, self.parts, self.metrics = spec, parts, metrics

    def digest_examples(self) -> str:
        """Return a fingerprint of the pairs; of a score only its text counts."""
        parts = {
            split: [pair[:2] if isinstance(pair, ScorePair) else pair for pair in part]
            for split, part in self.parts.items()
        }
        return digest_facts(self.spec.describe_pairs(), parts)

    def make_model_config(self, pretrained: Trained) -> Any:
        """Return the configuration of the pretrained model."""
        model = pretrained.run.model
        if not can_generate_answers(model):
            raise ValueError(
                f"{pretrained.workdir} is a run of a {type(model).__name__}; only "
                f"{' and '.join(GENERATIVE_MODELS)} can learn to generate answers"
            )
        return model

    def make_objective(self, model: Any) -> Text2Text:
        """Return the objective for a model, whose rows are no longer than its positions."""
        framed = "bos" in find_family(model).token_roles
        most = model.length or LIMITLESS
        return dataclasses.replace(
            self.spec,
            start_of_text=framed,
            length=min(self.spec.length, most),
            target_length=min(self.spec.target_length + framed, most - framed),
        )

    def write_store(self, path: str, vocabulary: Vocabulary) -> None:
        """Write the store."""
        write_pairs(path, vocabulary, self.spec, self.parts, digest=self.digest_examples())


def convert_to_text(task: str, examples: Any, pretrained: Trained) -> TextExamples:
    """Return the examples of a task as pairs of texts, for a generative model.

    Args:
      examples: the examples, see `labelled_task.TaskExamples`.

    Raises:
      ValueError: if the vocabulary cannot represent the targets.
    """
    if isinstance(examples, TextExamples):
        return examples
    if isinstance(examples, QuestionExamples):
        return convert_questions(task, examples, pretrained.vocabulary)
    if isinstance(examples, ChoiceExamples):
        return convert_choices(task, examples, pretrained.vocabulary)
    if isinstance(examples, TaggedExamples):
        return convert_tags(task, examples, pretrained.vocabulary)
    return convert_labels(task, examples, pretrained)


def convert_labels(task: str, examples: LabelledExamples, pretrained: Trained) -> TextExamples:
    """Return labelled texts as pairs of texts; the target is a class or a score."""
    columns = examples.columns
    labels: list[Any] = [example.label for part in examples.parts.values() for example in part]
    spec = Text2Text(
        columns=(*columns.texts, columns.label),
        prefix=f"{task} ",
        names=examples.task.columns[0].texts[: len(columns.texts)],
        labels=examples.names,
        words=find_label_words(task, examples.names),
        step=0.0 if examples.names else SCORE_STEPS.get(task) or find_step(labels),
    )
    parts = {split: make_pairs(spec, part) for split, part in examples.parts.items()}
    targets = sorted({pair[1] for part in parts.values() for pair in part} | set(spec.words))
    ids = pretrained.vocabulary.encode_batch(targets)
    parse = make_answer_reader(spec, pretrained.vocabulary)
    for target, target_ids in zip(targets, ids):
        if spec.step and parse(decode_output(pretrained.vocabulary, target_ids)) != float(target):
            raise ValueError(
                f"{pretrained.workdir}: its vocabulary cannot represent the score {target}; "
                "regression needs digits and a point"
            )
    longest = max(map(len, ids))
    return TextExamples(
        dataclasses.replace(spec, target_length=longest + 1), parts, examples.task.metrics
    )


def convert_questions(
    task: Any, examples: QuestionExamples, vocabulary: Vocabulary
) -> TextExamples:
    """Return questions as pairs of texts: "question: ... context: ..." and the answer.

    This is the form of SQuAD in the paper's appendix D. It starts with the task's name if some
    questions have no answer.
    """
    names = ("question", "context")
    spec = Text2Text(
        length=512,
        columns=(*names, "answers"),
        prefix=f"{task} " if examples.task.unanswerable else "",
        names=names,
        questions=task,
    )
    parts = {split: make_question_pairs(spec, part) for split, part in examples.parts.items()}
    longest = max(map(len, vocabulary.encode_batch([pair.target for pair in parts["train"]])))
    # Generated answers have no scores that a threshold could be compared with.
    metrics = tuple(name for name in examples.task.metrics if name != "null_threshold")
    return TextExamples(
        dataclasses.replace(spec, target_length=min(longest + 1, LONGEST)), parts, metrics
    )


def convert_choices(task: str, examples: ChoiceExamples, vocabulary: Vocabulary) -> TextExamples:
    """Return questions with choices as pairs of texts.

    The source is "choice1: ... choice2: ... context: ...", as COPA in the paper's appendix D, the
    target "choice2".
    """
    words = tuple(f"choice{number}" for number in range(1, examples.num_choices + 1))
    names = ("context", *words)
    labels = tuple(map(str, range(examples.num_choices)))
    spec = Text2Text(
        columns=(*names, "label"),
        prefix=f"{task} ",
        names=names,
        labels=labels,
        words=words,
        choices=examples.num_choices,
    )
    longest = max(map(len, vocabulary.encode_batch(words)))
    make_answer_reader(
        spec, vocabulary
    )  # raises for targets that the vocabulary cannot distinguish
    parts = {split: make_pairs(spec, part) for split, part in examples.parts.items()}
    return TextExamples(dataclasses.replace(spec, target_length=longest + 1), parts, ("accuracy",))


def convert_tags(task: str, examples: TaggedExamples, vocabulary: Vocabulary) -> TextExamples:
    """Return tagged sentences as pairs of texts: "tagging sentence: ..." and its entities.

    Each entity follows its type. The paper has no such task.
    """
    kinds = list_entity_types(examples.names, examples.scheme)
    columns = examples.columns or USUAL_KEYS[0]
    spec = Text2Text(
        columns=columns, prefix=f"{task} ", names=("sentence",), scheme=examples.scheme, kinds=kinds
    )
    make_answer_reader(spec, vocabulary)  # raises for types that could not be parsed
    parts = {split: make_tag_pairs(spec, part) for split, part in examples.parts.items()}
    longest = max(map(len, vocabulary.encode_batch([pair.target for pair in parts["train"]])))
    # In truncated sentences, all entities count.
    metrics = tuple(name for name in examples.metrics if name != "unread_words")
    return TextExamples(dataclasses.replace(spec, target_length=longest + 1), parts, metrics)


def find_label_words(task: str, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the target of each class: its name, or what a number in GLUE's files stands for."""
    words = NUMBERED.get(task, ())
    return words if labels == tuple(map(str, range(len(words)))) else labels
