"""Submission files of GLUE (Wang et al. 2019): predictions of fine-tuned runs for its test sets."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from data.store.atomic import write_atomically
from pretrain.finetune.text2text_task import NUMBERED

# {workdir: (best step, {metric: score})} of the runs of one task, one per seed.
SeedScores = dict[str, tuple[int, dict[str, float]]]
# The file names of a submission and their tasks, in the order of the paper's table.
FILES = {
    "CoLA": "cola",
    "SST-2": "sst2",
    "MRPC": "mrpc",
    "STS-B": "stsb",
    "QQP": "qqp",
    "MNLI-m": "mnli",
    "MNLI-mm": "mnli",
    "QNLI": "qnli",
    "RTE": "rte",
    "WNLI": "wnli",
    "AX": "mnli",
}
# Tasks whose submission has the names of the classes; the others have their numbers.
IN_WORDS = ("mnli", "qnli", "rte")
INDEX = ("index", "id", "idx")  # columns with the index of a test example


def write_submission(
    best: SeedScores,
    name: str,
    file: str,
    folder: str,
    batch_size: int,
    report: Callable[[str], Any] = print,
) -> None:
    """Write the predictions of the best run of a task to FOLDER/NAME.tsv, as GLUE accepts them.

    Args:
      best: the scores of the task's runs.
      name: a key of FILES.
      file: the unlabelled test set.
      folder: folder of the submission; created if it does not exist.
      batch_size: texts per batch.
      report: receives a line about the file.
    """
    from data.examples.labelled_examples import read_records
    from pretrain.finetune.tasks import TASKS
    from pretrain.inference.answering import make_answerer
    from pretrain.workdir.trained import check_finite_params, open_trained

    task = FILES[name]
    metric = TASKS[task].metrics[0]
    workdir = max(best, key=lambda workdir: best[workdir][1][metric])
    trained = open_trained(
        workdir, best[workdir][0], report=lambda text: print(text, file=sys.stderr)
    )
    check_finite_params(trained, remedy="leave this run out, or train it again")
    objective = trained.run.data.objective
    several = {part.task: part for part in objective.tasks}
    *text_columns, _ = several.get(task, objective).columns
    ways = [tuple(text_columns), *(columns.texts for columns in TASKS[task].columns)]
    rows = list(read_records(file))
    if not rows:
        raise ValueError(f"{file}: contains no examples")
    texts = [
        ((task,) if several else ()) + find_texts(record, place, ways) for place, record in rows
    ]
    numbers = [
        next((record[column] for column in INDEX if column in record), i)
        for i, (_, record) in enumerate(rows)
    ]
    answers = make_answerer(trained, batch_size=batch_size)(texts, [place for place, _ in rows], 0)
    lines = [format_prediction(task, result) for result in answers]
    unlabelled = sum(result["score" if task == "stsb" else "label"] is None for result in answers)
    os.makedirs(folder, exist_ok=True)
    path = locate_submission(folder, name)
    rows = [("index", "prediction"), *zip(numbers, lines)]
    write_atomically(path, "".join(f"{number}\t{line}\n" for number, line in rows))
    note = f", {unlabelled:,} of them without a label" if unlabelled else ""
    report(f"{path}: {len(lines):,} predictions of {workdir}{note}")


def locate_submission(folder: str, name: str) -> str:
    """Return the path of the submission file of a test set."""
    return os.path.join(folder, f"{name}.tsv")


def find_texts(
    record: Mapping[str, Any], place: str, ways: Iterable[tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the texts of a record, by the first of several tuples of column names that it has.

    Raises:
      ValueError: if it has none of them; names the place.
    """
    ways = list(dict.fromkeys(ways))
    for names in ways:
        if all(isinstance(record.get(column), str) for column in names):
            return tuple(record[column] for column in names)
    expected = " or ".join(",".join(names) for names in ways)
    raise ValueError(
        f"{place}: expected the columns {expected}; found {', '.join(map(repr, record))}"
    )


def format_prediction(task: str, result: Mapping[str, Any]) -> str:
    """Return a result of `predict` as a submission has it: a score from 0 to 5, or a class.

    A class is a name or a number, see IN_WORDS. A result without a label becomes the first class,
    or 0.
    """
    if task == "stsb":
        return f"{min(max(result['score'] or 0.0, 0.0), 5.0):.3f}"
    names, label = NUMBERED[task], result["label"]
    if label is not None and label not in (*names, *map(str, range(len(names)))):
        raise ValueError(
            f"the run predicts the label {label!r}; GLUE's are {', '.join(names)}, or their "
            "numbers from 0"
        )
    number = 0 if label is None else int(label) if label.isdecimal() else names.index(label)
    return names[number] if task in IN_WORDS else str(number)
