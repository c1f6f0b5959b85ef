"""Metrics of tasks: numbers of all predictions of a split, which sums over batches cannot give.

They use scikit-learn, SciPy and sacreBLEU. Higher is better.
"""

# The libraries that compute scores are optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.util
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from data.objectives.text2text import Text2Text
from data.vocabulary.word_boundaries import is_without_blanks
from pretrain.evaluation import ner_metrics, qa_spans
from pretrain.evaluation.rouge import compute_rouge_l, make_rouge_n
from pretrain.host.extras import how_to_install
from pretrain.settings.overrides import ConfigError

# What text2text generates, in the place of an objective's name in `Metric.objectives`.
GENERATED_ANSWERS = "generated answers"  # to questions: compared by generated_answers.py
GENERATED_TAGS = "generated tags"  # entities as text: parsed by generated_answers.py
WRITTEN_TEXTS = ("text2text", "seq2seq")  # the objectives of models that write any text
SCORED = ("regression", "similarity")  # the objectives whose labels are numbers
SEVERAL_TASKS = "several tasks"  # each of which has metrics of its own

# (labels of the rows [N], predictions of the rows [N]) -> a number
CompareLabels = Callable[[np.ndarray, np.ndarray], Any]


class Metric(NamedTuple):
    """A metric of a task.

    Attributes:
      objectives: names of the objectives whose predictions it measures.
      compute_score: a function (rows, configuration of the model, split) -> a number, or {name:
        number} of all metrics that are computed together and of numbers that are reported with
        them. `rows` come from `losses.Loss.row_predictions`. For text2text it is a function
        (generated texts, reference texts) -> a number.
    """

    objectives: tuple[str, ...]
    library: str
    compute_score: Callable[..., Any]


def _compute_f1(right: np.ndarray, predicted: np.ndarray) -> Any:
    """Return the F1 of the second of two classes."""
    from sklearn.metrics import f1_score

    # scikit-learn accepts a number; a type checker sees only its default, a string.
    return f1_score(right, predicted, pos_label=1, zero_division=0.0)  # pyright: ignore[reportArgumentType]


def _compute_macro_f1(right: np.ndarray, predicted: np.ndarray) -> Any:
    """Return the mean F1 of the classes."""
    from sklearn.metrics import f1_score

    # As in `_compute_f1`.
    return f1_score(right, predicted, average="macro", zero_division=0.0)  # pyright: ignore[reportArgumentType]


def _compute_matthews(right: np.ndarray, predicted: np.ndarray) -> Any:
    """Return the Matthews correlation coefficient."""
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(right, predicted)


def _make_correlation(name: str) -> CompareLabels:
    """Return a function that computes a correlation of SciPy; 0 if one side is constant."""

    def compute_correlation(right: np.ndarray, predicted: np.ndarray) -> Any:
        from scipy import stats

        if np.ptp(right) == 0 or np.ptp(predicted) == 0:
            return 0.0
        return getattr(stats, name)(right, predicted).statistic

    return compute_correlation


def _make_bleu(tokenizer: str) -> Callable[[list[str], list[str]], float]:
    """Return a function that computes sacreBLEU (Post 2018) with a tokenizer of its, out of 100."""

    def compute_bleu(written: list[str], answers: list[str]) -> float:
        import sacrebleu

        # `force` changes no score; without it each evaluation prints advice on tokenized texts.
        return sacrebleu.corpus_bleu(written, [answers], tokenize=tokenizer, force=True).score

    return compute_bleu


def _compute_bleu(written: list[str], answers: list[str]) -> dict[str, float]:
    """Return BLEU by the tokenizer of the references' script, also under its name unless 13a."""
    name = f"bleu_{choose_bleu_tokenizer(answers)}"
    score = METRICS[name].compute_score(written, answers)
    return {"bleu": score} | ({} if name == "bleu_13a" else {name: score})


def choose_bleu_tokenizer(references: Iterable[str]) -> str:
    """Return sacreBLEU's tokenizer for the script of most letters of the references.

    `zh` for ideographs, `char` for Japanese, Korean, Thai and other scripts without blanks, `13a`
    for the others. sacreBLEU's own choice for Japanese and Korean needs MeCab.
    """
    letters = [character for text in references for character in text if character.isalpha()]
    names = [unicodedata.name(letter, "") for letter in letters]
    ideographs = sum(name.startswith("CJK") for name in names)
    joined = sum(map(is_without_blanks, letters)) - ideographs
    joined += sum(name.startswith("HANGUL") for name in names)
    if 2 * (ideographs + joined) <= len(letters):
        return "13a"
    return "zh" if 10 * joined < ideographs else "char"


def score_written_texts(
    names: Iterable[str], written: Sequence[str], answers: Sequence[Any]
) -> dict[str, float]:
    """Return the metrics of generated texts by name, and what is reported with them."""
    scores: dict[str, float] = {}
    for name in names:
        score = METRICS[name].compute_score(written, answers)
        scores |= score if isinstance(score, dict) else {name: float(score)}
    return scores


def _make_label_metric(score: CompareLabels) -> Callable[..., Any]:
    """Return a metric that compares the predictions and labels in rows [N, 3]."""
    return lambda rows_N3, config, split: score(rows_N3[:, 1], rows_N3[:, 0])


METRICS = {
    "accuracy": Metric(
        ("classification", "multiple_choice"),
        "numpy",
        _make_label_metric(lambda right, predicted: (right == predicted).mean()),
    ),
    "f1": Metric(("classification",), "sklearn", _make_label_metric(_compute_f1)),
    "macro_f1": Metric(("classification",), "sklearn", _make_label_metric(_compute_macro_f1)),
    "matthews": Metric(("classification",), "sklearn", _make_label_metric(_compute_matthews)),
    "entity_f1": Metric(("tagging", GENERATED_TAGS), "numpy", ner_metrics.compute_entity_metrics),
    "entity_precision": Metric(
        ("tagging", GENERATED_TAGS), "numpy", ner_metrics.compute_entity_metrics
    ),
    "entity_recall": Metric(
        ("tagging", GENERATED_TAGS), "numpy", ner_metrics.compute_entity_metrics
    ),
    "tag_accuracy": Metric(("tagging", GENERATED_TAGS), "numpy", ner_metrics.compute_tag_accuracy),
    "unread_words": Metric(("tagging",), "numpy", ner_metrics.count_unread_words),  # not a score
    "pearson": Metric(SCORED, "scipy", _make_label_metric(_make_correlation("pearsonr"))),
    "spearman": Metric(SCORED, "scipy", _make_label_metric(_make_correlation("spearmanr"))),
    "bleu": Metric(WRITTEN_TEXTS, "sacrebleu", _compute_bleu),
    **{
        f"bleu_{tokenizer}": Metric(WRITTEN_TEXTS, "sacrebleu", _make_bleu(tokenizer))
        for tokenizer in ("13a", "zh", "char")
    },
    **{f"rouge{n}": Metric(WRITTEN_TEXTS, "numpy", make_rouge_n(n)) for n in (1, 2)},
    "rougeL": Metric(WRITTEN_TEXTS, "numpy", compute_rouge_l),
    "exact_match": Metric(
        ("answer_span", GENERATED_ANSWERS), "numpy", qa_spans.compute_span_metrics
    ),
    "span_f1": Metric(("answer_span", GENERATED_ANSWERS), "numpy", qa_spans.compute_span_metrics),
    "mean": Metric((SEVERAL_TASKS,), "numpy", np.mean),  # of the tasks
    # Not a score: the threshold at which the scores were computed.
    "null_threshold": Metric(("answer_span",), "numpy", qa_spans.compute_span_metrics),
}


def find_metric_kind(objective: Any, model: Any) -> tuple[str, int]:
    """Return the name of the objective whose metrics fit, and the number of classes.

    Generated classes, scores, tags and answers to questions have the metrics of those that a head
    predicts.

    Args:
      objective: the objective of a run, or of one of its tasks.
      model: the configuration of the model; None: no head is asked for its classes.
    """
    if isinstance(objective, Text2Text) and (
        objective.questions or objective.scheme or objective.tasks
    ):
        return (
            SEVERAL_TASKS
            if objective.tasks
            else GENERATED_TAGS
            if objective.scheme
            else GENERATED_ANSWERS,
            2,
        )
    if isinstance(objective, Text2Text) and (objective.labels or objective.step):
        return "classification" if objective.labels else "regression", len(objective.labels)
    return objective.name, 2 if model is None else model.num_outputs


def check_run_metrics(names: Iterable[str], objective: Any, model: Any) -> None:
    """Check that every metric applies to its objective, and each task's metrics to these."""
    names = tuple(names)
    check_metrics(names, *find_metric_kind(objective, model))
    for task in objective.tasks if names else ():
        check_metrics(task.metrics, *find_metric_kind(task, model))


def check_metrics(names: Iterable[str], objective: str, labels: int = 2) -> None:
    """Raise ConfigError for a metric of another objective, or one whose library is not installed.

    Args:
      labels: the number of classes.
    """
    for name in names:
        metric = METRICS[name]
        if objective not in metric.objectives:
            fitting = [other for other, metric in METRICS.items() if objective in metric.objectives]
            raise ConfigError(
                f"evaluate.metrics: {name} is a metric of {' and '.join(metric.objectives)}; the "
                f"metrics of {objective} are {', '.join(fitting) or 'none'}"
            )
        if name == "f1" and labels != 2:
            raise ConfigError(
                f"evaluate.metrics: f1 needs two classes, there are {labels}; use macro_f1"
            )
        if importlib.util.find_spec(metric.library) is None:
            raise ConfigError(
                f"evaluate.metrics: {name} needs {metric.library}: {how_to_install('metrics')}, or "
                f"remove {name}"
            )


def compute_metrics(
    names: Iterable[str], rows_NK: np.ndarray, config: Any = None, split: Any = None
) -> dict[str, float]:
    """Return the metrics of the rows of `losses.Loss.row_predictions`, by name.

    Rows that only fill a batch are ignored; their last column is 0.
    """
    names = tuple(names)
    rows_NK = rows_NK[rows_NK[:, -1] > 0].astype(np.float64)
    found: dict[str, Any] = {}
    for name in names:
        if name not in found:
            score = METRICS[name].compute_score(rows_NK, config, split)
            found |= score if isinstance(score, dict) else {name: score}
    return select_metrics(names, found)


def select_metrics(names: Iterable[str], found: Mapping[str, Any]) -> dict[str, float]:
    """Return the requested metrics, and the numbers that are not metrics but reported with them."""
    names = tuple(names)
    return {
        name: float(value) for name, value in found.items() if name in names or name not in METRICS
    }
