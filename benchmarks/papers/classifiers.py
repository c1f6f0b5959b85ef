"""Classifiers of words on the sets and by the protocols of their papers, next to their figures.

    python -m benchmarks.papers.classifiers --corpora CORPORA --sets MR --models nbow,dan --folds 10

MR and CR have no split: ten folds, each of which is scored once (Kim 2014; Iyyer et al. 2015). SST
is trained on whole sentences, of which its own parts are scored; SST-phrases is GLUE's SST-2, whose
phrases are the training set of both papers. A run trains for a fixed number of epochs, and its last
step is scored: no score selects a step. Finished runs are in a file, so that a second command adds
the others.

The floor is scikit-learn's logistic regression on the counts of words, the ceiling a pretrained
encoder (`--encoder WORKDIR`), of which the head alone or everything is trained.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.cached_results import require_settings
from benchmarks.harness import (
    format_command,
    format_title,
    int_between,
    report_errors,
    require_paths,
    some_of,
)
from benchmarks.results_pages import add_result

NAME = "classifiers"


class Protocol(NamedTuple):
    """A set: its training file, and its test file or None for ten folds.

    text: the column of the text.
    epochs: of every model; None: the model's own.
    """

    train: str
    test: str | None = None
    text: str = "text"
    epochs: int | None = None


class Contender(NamedTuple):
    """A model, its overrides, its epochs, and the papers' figures in percent by set.

    config: its configuration; "": the pretrained encoder of the command.
    """

    config: str
    overrides: tuple[str, ...] = ()
    epochs: int = 5
    paper: dict[str, float] = {}


SETS = {
    "MR": Protocol("cls_sentconv/mr.jsonl"),
    "CR": Protocol("cls_sentconv/cr.jsonl"),
    "SST-fine": Protocol("cls_sentconv/sst5_train.jsonl", "cls_sentconv/sst5_test.jsonl"),
    "SST-binary": Protocol("cls_sentconv/sst2_train_sents.jsonl", "cls_sentconv/sst2_test.jsonl"),
    "SST-phrases": Protocol("glue_sst2/train.jsonl", "cls_sentconv/sst2_test.jsonl", "sentence", 2),
}
# Iyyer et al. 2015, table 1 (NBOW-RAND, DAN-RAND); Kim 2014, table 2 (CNN-rand). Their SST models
# are trained on phrases too.
MODELS = {
    "nbow": Contender(
        "dan",
        ("model.encoder.depth=0", "model.encoder.word_dropout=0"),
        8,
        {"MR": 76.2, "SST-fine": 42.3, "SST-binary": 81.4, "SST-phrases": 81.4},
    ),
    "dan": Contender(
        "dan", (), 5, {"MR": 77.3, "SST-fine": 45.4, "SST-binary": 83.2, "SST-phrases": 83.2}
    ),
    "textcnn": Contender(
        "textcnn",
        (),
        4,
        {"MR": 76.1, "CR": 79.8, "SST-fine": 45.0, "SST-binary": 82.7, "SST-phrases": 82.7},
    ),
    "cbow": Contender("cbow", (), 8),
    "deep_cbow": Contender("deep_cbow", (), 5),
    "fasttext": Contender("fasttext", (), 5),
    "tdnn": Contender("tdnn", (), 5),
    "elman_rnn": Contender("elman_rnn", (), 5),
    "lstm_classifier": Contender("lstm_classifier", (), 5),
    "bilstm_classifier": Contender("bilstm_classifier", (), 5),
    "encoder_frozen": Contender(
        "", ("train.trainable_layers=0", "optimizer.learning_rate=1e-3"), 5
    ),
    "encoder": Contender("", ("optimizer.learning_rate=5e-4",), 2),
}
NUM_FOLDS = 10  # of a set without a split
FLOOR = "counts"  # scikit-learn's logistic regression

Rows = list[dict[str, str]]


def read_rows(path: pathlib.Path, text: str) -> Rows:
    """Return the texts and labels of a file; texts without a word are left out."""
    with path.open(encoding="utf-8") as file:  # texts may hold other line breaks
        records = [json.loads(line) for line in file]
    return [
        {"text": record[text], "label": str(record["label"])}
        for record in records
        if record[text].strip()
    ]


def list_files(corpora: pathlib.Path, sets: Sequence[str]) -> list[pathlib.Path]:
    """Return the files of sets."""
    names = [name for one in sets for name in (SETS[one].train, SETS[one].test) if name]
    return [corpora / name for name in names]


def list_splits(corpora: pathlib.Path, protocol: Protocol, folds: int) -> list[tuple[Rows, Rows]]:
    """Return (training rows, test rows) of each fold, or of the set's own parts."""
    rows = read_rows(corpora / protocol.train, protocol.text)
    if protocol.test:
        return [(rows, read_rows(corpora / protocol.test, "text"))]
    random.Random(0).shuffle(rows)
    return [
        ([row for i, row in enumerate(rows) if i % NUM_FOLDS != fold], rows[fold::NUM_FOLDS])
        for fold in range(folds)
    ]


def train_floor(train: Rows, test: Rows) -> dict[str, float]:
    """Return the accuracy and the seconds of logistic regression on the counts of words."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    began = time.perf_counter()
    counter = CountVectorizer(token_pattern=r"\S+", lowercase=False)
    model = LogisticRegression(max_iter=200)
    model.fit(counter.fit_transform([r["text"] for r in train]), [r["label"] for r in train])
    seconds = time.perf_counter() - began
    counts = counter.transform([r["text"] for r in test])
    return {"accuracy": model.score(counts, [r["label"] for r in test]), "seconds": seconds}


def train_model(
    model: Contender, epochs: int, train: Rows, test: Rows, encoder: pathlib.Path | None
) -> dict[str, float]:
    """Return the accuracy of the last step by `finetune`, and the seconds of the command."""
    from pretrain.__main__ import main as run_verb
    from pretrain.workdir.metrics_file import read_metrics

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, rows in (("train", train), ("test", test)):
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (root / f"{name}.jsonl").write_text(lines)
        steps = epochs * -(-len(train) // 50)
        start = ["--config", model.config] if model.config else ["--from", str(encoder)]
        command = ["finetune", *start, "--task", "classification"]
        command += ["--train", str(root / "train.jsonl"), "--heldout", str(root / "test.jsonl")]
        command += ["--workdir", str(root / "w"), *model.overrides, "data.batch_size=50"]
        command += [f"train.steps={steps}", f"evaluate.every={steps}", f"checkpoint.every={steps}"]
        began = time.perf_counter()
        if status := run_verb([*command, "evaluate.samples=0"]):
            raise SystemExit(status)
        seconds = time.perf_counter() - began
        rows = read_metrics(root / "w" / "metrics.jsonl")
        scores = [row["heldout_accuracy"] for row in rows if "heldout_accuracy" in row]
        return {"accuracy": scores[-1], "seconds": seconds}


def format_rows(finished: list[dict[str, Any]], names: list[str], sets: list[str]) -> list[str]:
    """Return the table of accuracies in percent, with the papers', and the seconds of one run."""
    head = [f"{name} | paper | s" for name in sets]
    lines = [f"| | {' | '.join(head)} |", "|---" * (1 + 3 * len(sets)) + "|"]
    for name in names:
        cells = []
        for one in sets:
            runs = [run for run in finished if (run["model"], run["set"]) == (name, one)]
            values = [100 * run["accuracy"] for run in runs]
            mean = f"{statistics.fmean(values):.1f}" if values else ""
            if len(values) > 1:
                mean += f" ± {statistics.stdev(values):.1f}"
            if values and not SETS[one].test:
                mean += f" ({len(values)})"
            paper = MODELS[name].paper.get(one, "") if name in MODELS else ""
            seconds = f"{statistics.fmean(run['seconds'] for run in runs):.0f}" if runs else ""
            cells += [mean, str(paper), seconds]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def require_encoder(args: argparse.Namespace, finished: list[dict[str, Any]]) -> None:
    """Raise ValueError where the finished runs are of another encoder than the command's."""
    if args.encoder:
        path = args.runs.with_name(f"{args.runs.name}.settings.json")
        encoders = {name for name, model in MODELS.items() if not model.config}
        has_results = any(run["model"] in encoders for run in finished)
        require_settings(path, {"encoder": str(args.encoder)}, has_results)


def main() -> None:
    """Train what is not finished and add the table to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True, help="folder of the sets")
    parser.add_argument("--sets", type=some_of(SETS), default=["MR"])
    parser.add_argument("--models", type=some_of([FLOOR, *MODELS]), default=[FLOOR, "nbow", "dan"])
    parser.add_argument("--encoder", type=pathlib.Path, help="workdir of a pretrained encoder")
    parser.add_argument("--folds", type=int_between(1, NUM_FOLDS), default=10, help="of MR and CR")
    parser.add_argument("--runs", type=pathlib.Path, required=True, help="file of finished runs")
    parser.add_argument("--page", action="store_true", help="add the table of all finished runs")
    args = parser.parse_args()
    if args.encoder is None and not all(n == FLOOR or MODELS[n].config for n in args.models):
        parser.error("encoder and encoder_frozen need --encoder WORKDIR")
    if args.encoder:
        require_paths(parser, "--encoder", args.encoder)
    require_paths(parser, "--corpora", *list_files(args.corpora, args.sets))
    load_at_start = os.getloadavg()[0]
    finished = (
        [json.loads(line) for line in args.runs.read_text().splitlines()]
        if args.runs.exists()
        else []
    )
    with report_errors(parser):
        require_encoder(args, finished)
    done = {(run["set"], run["model"], run["fold"]) for run in finished}
    for one in args.sets:
        for fold, (train, test) in enumerate(list_splits(args.corpora, SETS[one], args.folds)):
            for name in args.models:
                if (one, name, fold) in done:
                    continue
                if name == FLOOR:
                    found = train_floor(train, test)
                else:
                    model = MODELS[name]
                    epochs = SETS[one].epochs or model.epochs
                    found = train_model(model, epochs, train, test, args.encoder)
                finished.append({"set": one, "model": name, "fold": fold, **found})
                with args.runs.open("a") as file:
                    file.write(json.dumps(finished[-1]) + "\n")
                print(finished[-1], flush=True)
    if args.page:
        sets = [one for one in SETS if any(run["set"] == one for run in finished)]
        names = [name for name in (FLOOR, *MODELS) if any(run["model"] == name for run in finished)]
        lines = [
            format_title(load_at_start),
            "",
            f"`{format_command()}`: accuracy in percent on the held-out texts, mean ± sample "
            "standard deviation (number of folds); the papers' figures; seconds of a whole "
            "`finetune`, its start and compilation included, with other programs running.",
            "",
            *format_rows(finished, names, sets),
        ]
        add_result(NAME, lines, "Classifiers of words")


if __name__ == "__main__":
    main()
