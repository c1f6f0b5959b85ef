"""The tasks by name: which columns hold the texts and the label, what a label is, what is learned, and by what it is measured.

The nine of GLUE (Wang et al. 2019, table 1) with the names that their columns have in GLUE's own files, in TensorFlow Datasets, and in
JSON lines that are about; `classification` and `regression` are for any text, or pair of texts, of one's own. The head follows from the
encoder (models/heads/classifier.py), the loss from the objective (pretrain/training/losses.py).
"""

from collections.abc import Callable
from typing import NamedTuple

from data.examples.labelled import Columns, class_of, score_of
from data.objectives.classification import Classification
from data.objectives.regression import Regression
from pretrain.finetune.labelled_task import gather
from pretrain.finetune.multiple_choice_task import ChoiceTask
from pretrain.finetune.qa_task import SpanTask
from pretrain.finetune.tagging_task import TagTask
from pretrain.finetune.text2text_task import NUMBERED, PairTask


class LabelTask(NamedTuple):
    """A class or a score for a text, or for a pair.

    columns: ways in which they may be named, the first one that is there counts; label: makes one of a value.

    metrics: names of finetune.metrics.METRICS, the first of which tells the best step. orders: of classes, where neither the numbers nor the
    alphabet put them as they are meant (the second of two is what `f1` is of). tfds: the dataset that is read where no file is named.

    words: the names of all classes that there are, in the order of the numbers that stand for them; () where any may be.
    """

    columns: tuple[Columns, ...]
    label: Callable
    objective: type
    metrics: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...] = ()
    tfds: tuple[str, str] | None = None  # to train on, held out
    words: tuple[str, ...] = ()

    def read(self, *where):
        """The examples; where: as `examples.gather` takes it."""
        return gather(self, *where)


PAIR = ("sentence1", "sentence2")


def glue(
    name,
    columns,
    metrics,
    orders=(),
    label=class_of,
    objective: type = Classification,
    heldout="validation",
):
    parts = f"tfds:glue/{name}:train", f"tfds:glue/{name}:{heldout}"
    return LabelTask(columns, label, objective, metrics, orders, parts, NUMBERED.get(name, ()))


def similarity(value):
    """A score of GLUE's pairs. Raises ValueError outside 0 to 5: the test parts have -1."""
    if not 0 <= (score := score_of(value)) <= 5:
        raise ValueError(
            f"{value!r} is no score from 0 to 5, as GLUE's are; --task regression takes others"
        )
    return score


OWN = (Columns(("text", "text2"), "label"), Columns(("text",), "label"))
TASKS = {
    "classification": LabelTask(OWN, class_of, Classification, ("accuracy",)),
    "regression": LabelTask(OWN, score_of, Regression, ("pearson", "spearman")),
    "text2text": PairTask(("bleu", "rouge1", "rouge2", "rougeL")),
    "cola": glue(
        "cola", (Columns(("sentence",), "label"),), ("matthews",), (("unacceptable", "acceptable"),)
    ),
    "sst2": glue(
        "sst2", (Columns(("sentence",), "label"),), ("accuracy",), (("negative", "positive"),)
    ),
    "mrpc": glue(
        "mrpc",
        (Columns(PAIR, "label"), Columns(("#1 String", "#2 String"), "Quality")),
        ("f1", "accuracy"),
        (("not_equivalent", "equivalent"),),
    ),
    "stsb": glue(
        "stsb",
        (Columns(PAIR, "label"), Columns(PAIR, "score")),
        ("pearson", "spearman"),
        label=similarity,
        objective=Regression,
    ),
    "qqp": glue(
        "qqp",
        (
            Columns(("question1", "question2"), "label"),
            Columns(("question1", "question2"), "is_duplicate"),
        ),
        ("f1", "accuracy"),
        (("not_duplicate", "duplicate"),),
    ),
    "mnli": glue(
        "mnli",
        (Columns(("premise", "hypothesis"), "label"), Columns(PAIR, "gold_label")),
        ("accuracy",),
        heldout="validation_matched",
    ),
    "qnli": glue("qnli", (Columns(("question", "sentence"), "label"),), ("accuracy",)),
    "rte": glue(
        "rte", (Columns(PAIR, "label"), Columns(("premise", "hypothesis"), "label")), ("accuracy",)
    ),
    "wnli": glue("wnli", (Columns(PAIR, "label"),), ("accuracy",)),
    "tagging": TagTask(),
    "multiple_choice": ChoiceTask(),
    "squad": SpanTask(
        False, ("span_f1", "exact_match"), ("tfds:squad/v1.1:train", "tfds:squad/v1.1:validation")
    ),
    "squad2": SpanTask(
        True,
        ("span_f1", "exact_match", "null_threshold"),
        ("tfds:squad/v2.0:train", "tfds:squad/v2.0:validation"),
    ),
}
