"""What a task is measured by: a number of all predictions of a part, which no sum over batches would give.

By scikit-learn and SciPy. Each is the better the higher it is.
"""

# The libraries that score are optional.
# pyright: reportMissingImports=false

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from data.objectives.text2text import Text2Text
from pretrain.evaluation import ner_metrics, qa_spans
from pretrain.evaluation.rouge import rouge_l, rouge_n
from pretrain.extras import how_to_install
from pretrain.overrides import ConfigError

WRITTEN = "written answers"  # to questions: finetune/written.py compares them
TAGGED = "written tags"  # as texts of entities: finetune/written.py reads them
SEVERAL = "several tasks"  # that are written: each has metrics of its own


class Metric(NamedTuple):
    """objectives: whose predictions it is of; library: that it needs.

    score: (what `losses.Loss.row_predictions` gives of all rows, the model's configuration, the split that they are of) -> a number, or {name: number}
    of all metrics that are computed together and of what is told beside them; of text2text (the texts that were written, the answers) ->
    a number.
    """

    objectives: tuple[str, ...]
    library: str
    score: Callable


def _f1(right, predicted):
    from sklearn.metrics import f1_score

    # scikit-learn takes a number too; its default, a string, is all that a type checker sees.
    return f1_score(right, predicted, pos_label=1, zero_division=0.0)  # pyright: ignore[reportArgumentType]


def _macro_f1(right, predicted):
    from sklearn.metrics import f1_score

    # As in `_f1`.
    return f1_score(right, predicted, average="macro", zero_division=0.0)  # pyright: ignore[reportArgumentType]


def _matthews(right, predicted):
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(right, predicted)


def _correlation(name):
    def score(right, predicted):
        from scipy import stats

        if np.ptp(right) == 0 or np.ptp(predicted) == 0:  # the same score for all tells nothing
            return 0.0
        return getattr(stats, name)(right, predicted).statistic

    return score


def _bleu(written, answers):
    import sacrebleu

    return sacrebleu.corpus_bleu(written, [answers]).score


def _labels(score):
    """A metric of (right [N], predicted [N]), of rows [N, 3]."""
    return lambda rows_N3, config, split: score(rows_N3[:, 1], rows_N3[:, 0])


METRICS = {
    "accuracy": Metric(
        ("classification", "multiple_choice"),
        "numpy",
        _labels(lambda right, predicted: (right == predicted).mean()),
    ),
    "f1": Metric(
        ("classification",), "sklearn", _labels(_f1)
    ),  # of the second class, where there are two
    "macro_f1": Metric(
        ("classification",), "sklearn", _labels(_macro_f1)
    ),  # the mean over the classes
    "matthews": Metric(("classification",), "sklearn", _labels(_matthews)),
    "entity_f1": Metric(("tagging", TAGGED), "numpy", ner_metrics.scores),
    "entity_precision": Metric(("tagging", TAGGED), "numpy", ner_metrics.scores),
    "entity_recall": Metric(("tagging", TAGGED), "numpy", ner_metrics.scores),
    "tag_accuracy": Metric(("tagging", TAGGED), "numpy", ner_metrics.accuracy),
    "unread_words": Metric(("tagging",), "numpy", ner_metrics.unread),  # no score
    "pearson": Metric(("regression",), "scipy", _labels(_correlation("pearsonr"))),
    "spearman": Metric(("regression",), "scipy", _labels(_correlation("spearmanr"))),
    "bleu": Metric(("text2text",), "sacrebleu", _bleu),  # Post 2018, out of 100
    **{f"rouge{n}": Metric(("text2text",), "numpy", rouge_n(n)) for n in (1, 2)},
    "rougeL": Metric(("text2text",), "numpy", rouge_l),
    "exact_match": Metric(("answer_span", WRITTEN), "numpy", qa_spans.scores),
    "span_f1": Metric(("answer_span", WRITTEN), "numpy", qa_spans.scores),
    "mean": Metric((SEVERAL,), "numpy", np.mean),  # over the tasks
    "null_threshold": Metric(
        ("answer_span",), "numpy", qa_spans.scores
    ),  # no score: what the two were computed at
}


def judged_as(objective, model):
    """(the name of the objective whose metrics are fitting, how many labels are told apart) of an objective and a model's configuration.

    Classes, scores, tags and answers to questions that are written are measured as those that a head tells.
    """
    if isinstance(objective, Text2Text) and (
        objective.questions or objective.scheme or objective.tasks
    ):
        return SEVERAL if objective.tasks else TAGGED if objective.scheme else WRITTEN, 2
    if isinstance(objective, Text2Text) and (objective.labels or objective.step):
        return "classification" if objective.labels else "regression", len(objective.labels)
    return objective.name, getattr(model, "outputs", 2)


def check_measured(names, objective, model):
    """`check_metrics` of an objective and a model's configuration, and of each task of several."""
    check_metrics(names, *judged_as(objective, model))
    for each in getattr(objective, "tasks", ()) if names else ():
        check_metrics(each.metrics, *judged_as(each, model))


def check_metrics(names, objective, labels=2):
    """Raise ConfigError for a metric that is not of the objective (its name), or whose library is not there.

    labels: how many the model tells apart.
    """
    for name in names:
        metric = METRICS[name]
        if objective not in metric.objectives:
            fitting = [other for other, one in METRICS.items() if objective in one.objectives]
            raise ConfigError(
                f"evaluate.metrics: {name} is of {' and '.join(metric.objectives)}; {objective} has {', '.join(fitting) or 'none'}"
            )
        if name == "f1" and labels != 2:
            raise ConfigError(
                f"evaluate.metrics: f1 is of two classes, here are {labels}; take macro_f1"
            )
        if importlib.util.find_spec(metric.library) is None:
            raise ConfigError(
                f"evaluate.metrics: {name} needs {metric.library}: {how_to_install('metrics')}, or leave {name} out"
            )


def measured(names, rows_NK, config=None, split=None):
    """{name: number} of the rows that `losses.Loss.row_predictions` gives; those that only fill a batch, whose last column is 0, are left out."""
    rows_NK = rows_NK[rows_NK[:, -1] > 0].astype(np.float64)
    found = {}
    for name in names:
        if name not in found:
            score = METRICS[name].score(rows_NK, config, split)
            found |= score if isinstance(score, dict) else {name: score}
    return wanted(names, found)


def wanted(names, found):
    """{name: number} of what was asked for and of what is no metric but told beside these."""
    return {
        name: float(value) for name, value in found.items() if name in names or name not in METRICS
    }
