"""The tasks of `finetune` by name: columns of texts and label, parsing, objective and metrics.

The nine tasks of GLUE (Wang et al. 2019, table 1) have the column names of GLUE's own files, of
TensorFlow Datasets and of common JSON lines; `classification` and `regression` are for any texts or
pairs of texts. The head follows from the encoder (models/heads/classifier.py), the loss from the
objective (pretrain/training/losses).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from data.examples.labelled_examples import Columns, parse_class, parse_score
from data.objectives.classification import Classification
from data.objectives.regression import Regression
from pretrain.finetune.embedding_task import EmbeddingTask
from pretrain.finetune.finetune_options import TaskOptions
from pretrain.finetune.labelled_task import LabelledExamples, gather_labelled_examples
from pretrain.finetune.multiple_choice_task import ChoiceTask
from pretrain.finetune.qa_task import SpanTask
from pretrain.finetune.tagging_task import TaggedExamples, TagTask
from pretrain.finetune.text2text_task import NUMBERED, PairTask

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained


class LabelTask(NamedTuple):
    """Predict a class or a score of a text, or of a pair of texts.

    Attributes:
      columns: possible names of the columns; the first that a source has are used.
      metrics: names of task_metrics.METRICS, of which the first selects the best step.
      orders: orders of the classes where neither their numbers nor the alphabet give the right one;
        `f1` is the second class's of two.
      tfds: the sources for training and evaluation if no file is given.
      words: the names of all classes, in the order of their numbers; () if any are allowed.
    """

    columns: tuple[Columns, ...]
    label: Callable[[Any], Any]
    objective: Callable[..., Any]
    metrics: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...] = ()
    tfds: tuple[str, str] | None = None
    words: tuple[str, ...] = ()

    def read_examples(
        self, args: TaskOptions, train: str, heldout: str | None, share: float
    ) -> LabelledExamples:
        """Return the examples; see `gather_labelled_examples` for the arguments."""
        return gather_labelled_examples(self, args, train, heldout, share)


PAIR = ("sentence1", "sentence2")


def make_glue_task(
    name: str,
    columns: tuple[Columns, ...],
    metrics: tuple[str, ...],
    orders: tuple[tuple[str, ...], ...] = (),
    label: Callable[[Any], Any] = parse_class,
    objective: Callable[..., Any] = Classification,
    heldout: str = "validation",
) -> LabelTask:
    """Return a task of GLUE, which is read from TFDS if no file is given."""
    parts = f"tfds:glue/{name}:train", f"tfds:glue/{name}:{heldout}"
    return LabelTask(columns, label, objective, metrics, orders, parts, NUMBERED.get(name, ()))


def parse_similarity(value: Any) -> float:
    """Return a similarity score of GLUE."""
    if not 0 <= (score := parse_score(value)) <= 5:
        raise ValueError(
            f"{value!r} is not a score from 0 to 5, as in GLUE; --task regression accepts others"
        )
    return score


OWN_COLUMNS = (Columns(("text", "text2"), "label"), Columns(("text",), "label"))
TASKS = {
    "classification": LabelTask(OWN_COLUMNS, parse_class, Classification, ("accuracy",)),
    "regression": LabelTask(OWN_COLUMNS, parse_score, Regression, ("pearson", "spearman")),
    "text2text": PairTask(("bleu", "rouge1", "rouge2", "rougeL")),
    "cola": make_glue_task(
        "cola", (Columns(("sentence",), "label"),), ("matthews",), (("unacceptable", "acceptable"),)
    ),
    "sst2": make_glue_task(
        "sst2", (Columns(("sentence",), "label"),), ("accuracy",), (("negative", "positive"),)
    ),
    "mrpc": make_glue_task(
        "mrpc",
        (Columns(PAIR, "label"), Columns(("#1 String", "#2 String"), "Quality")),
        ("f1", "accuracy"),
        (("not_equivalent", "equivalent"),),
    ),
    "stsb": make_glue_task(
        "stsb",
        (Columns(PAIR, "label"), Columns(PAIR, "score")),
        ("pearson", "spearman"),
        label=parse_similarity,
        objective=Regression,
    ),
    "qqp": make_glue_task(
        "qqp",
        (
            Columns(("question1", "question2"), "label"),
            Columns(("question1", "question2"), "is_duplicate"),
        ),
        ("f1", "accuracy"),
        (("not_duplicate", "duplicate"),),
    ),
    "mnli": make_glue_task(
        "mnli",
        (Columns(("premise", "hypothesis"), "label"), Columns(PAIR, "gold_label")),
        ("accuracy",),
        heldout="validation_matched",
    ),
    "qnli": make_glue_task("qnli", (Columns(("question", "sentence"), "label"),), ("accuracy",)),
    "rte": make_glue_task(
        "rte", (Columns(PAIR, "label"), Columns(("premise", "hypothesis"), "label")), ("accuracy",)
    ),
    "wnli": make_glue_task("wnli", (Columns(PAIR, "label"),), ("accuracy",)),
    "tagging": TagTask(),
    "multiple_choice": ChoiceTask(),
    "embedding": EmbeddingTask(),
    "squad": SpanTask(
        False, ("span_f1", "exact_match"), ("tfds:squad/v1.1:train", "tfds:squad/v1.1:validation")
    ),
    "squad2": SpanTask(
        True,
        ("span_f1", "exact_match", "null_threshold"),
        ("tfds:squad/v2.0:train", "tfds:squad/v2.0:validation"),
    ),
}


def open_to_examples(trained: Trained, gathered: Sequence[Any]) -> Trained:
    """Return a model with the vocabulary that reads the texts of examples: see `Trained.open_to`.

    Raises:
      ValueError: a model of characters, and examples that are neither labelled texts nor tagged
        words.
    """
    if not trained.run.model.characters:
        return trained
    if not all(isinstance(examples, LabelledExamples | TaggedExamples) for examples in gathered):
        raise ValueError(
            f"{trained.workdir} reads words by their characters: it learns labels of texts and "
            "tags of words, and no other task"
        )
    parts = [part for examples in gathered for part in examples.parts.values()]
    return trained.open_to(text for part in parts for example in part for text in example.texts)
