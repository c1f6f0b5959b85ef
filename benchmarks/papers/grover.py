"""Generated bodies of books, and which detectors tell them from real ones.

    python -m benchmarks.papers.grover --corpora CORPORA --folder FOLDER --page

Zellers et al. (2019), sections 5 and 6. Passages of books are articles: the author, the title, the
section as headline, and the body. A generator (configs/grover_tiny.py, larger) is trained on most
sections of all authors. For the others it generates bodies from the metadata, by top-p with several
values. A detector learns real and generated bodies of some authors, and is scored on bodies of the
other authors, so that the topic of an author does not help it. Both kinds are cut to the same
number of words, in equal numbers, from the same metadata.

The detectors: the generator's own parameters with a head on the last token; a smaller Grover's;
 the generator's size from random parameters; fastText's bag of words and bigrams; and
scikit-learn's logistic regression on the counts of words. The last step of each is scored. FOLDER
has the articles, workdirs and finished runs, so that a second command adds what is missing.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.cached_results import require_settings
from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    format_command,
    format_title,
    int_at_least,
    report_errors,
    require_paths,
)
from benchmarks.papers.classifiers import Rows, train_floor
from benchmarks.program_turns import read_heldout_loss, run_to_end
from benchmarks.results_pages import add_result

NAME = "grover"
FIELDS = ("authors", "title", "headline", "body")
MIN_WORDS, MAX_WORDS = 80, 100  # of a passage
CUT_WORDS = 60  # of each body that a detector reads
NUM_TOKENS = 112  # generated for a body, which is more than 60 words
VOCAB = 4096
MAX_PASSAGES = 1_500  # of an author for the generator
DETECTED_SHARE, TEST_SHARE = 0.2, 0.3  # of the sections; of the authors
PARTS = ("train", "test")  # of the detectors
SIZES = {"base": (192, 4, 4), "small": (96, 2, 2)}  # width, depth, heads


class Detector(NamedTuple):
    """A detector: what it is, and the size of a Grover.

    fresh: its parameters that are random at first, a value of `finetune --fresh`.
    """

    title: str
    size: str = ""
    fresh: str = ""


DETECTORS = {
    "counts": Detector("logistic regression on the counts of words"),
    "fasttext": Detector("fastText: words and bigrams"),
    "grover": Detector("Grover, the generator's own parameters", "base", "head"),
    "small": Detector("a smaller Grover", "small", "head"),
    "random": Detector("the generator's size from random parameters", "base", "all"),
}


def draw_share(text: str) -> float:
    """Return a number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") / 2**32


def read_passages(books: pathlib.Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (book and section, article) of each passage of whole paragraphs of the books."""
    for path in sorted(books.glob("*.jsonl")):
        author, title, *_ = path.stem.split("_")
        for line in path.read_text(encoding="utf-8").split("\n"):
            if not line:
                continue
            record = json.loads(line)
            place = f"{path.stem} {record['section']}"
            texts = (author, title, record["section"])
            authors, title_, headline = (text.replace("-", " ").title() for text in texts)
            passage: list[str] = []
            for paragraph in record["text"].split("\n")[1:]:  # the first is the section's title
                passage += paragraph.split()
                if len(passage) >= MIN_WORDS:
                    body = " ".join(passage[:MAX_WORDS])
                    fields = (authors, title_, headline, body)
                    yield place, dict(zip(FIELDS, fields, strict=True))
                    passage = []


def write_articles(books: pathlib.Path, folder: pathlib.Path, pairs: dict[str, int]) -> None:
    """Write the articles of the generator and of the detectors unless they are written.

    pairs: the number of articles for training the detectors and for scoring them.
    """
    if (folder / "generator.jsonl").exists():
        return
    passages = sorted(read_passages(books), key=lambda item: draw_share(item[1]["body"]))
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    parts: dict[str, list[dict[str, str]]] = {"generator": [], "train": [], "test": []}
    authors = sorted({article["authors"] for _, article in passages}, key=draw_share)
    tested = {*authors[: round(TEST_SHARE * len(authors))]}
    most = {"generator": MAX_PASSAGES}
    most |= {"train": -(-pairs["train"] // (len(authors) - len(tested)))}
    most |= {"test": -(-pairs["test"] // len(tested))}
    for place, article in passages:
        author = article["authors"]
        part = "test" if author in tested else "train"
        part = part if draw_share(place) < DETECTED_SHARE else "generator"
        if counts[author, part] < most[part]:
            counts[author, part] += 1
            parts[part].append(article)
    for part in ("train", "test", "generator"):
        write_lines(folder / f"{part}.jsonl", parts[part])
    print({part: len(articles) for part, articles in parts.items()}, sorted(tested), flush=True)


def write_lines(path: pathlib.Path, records: list[Any]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def read_lines(path: pathlib.Path) -> list[Any]:
    """Return the values of JSON lines; [] without a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_verb(*words: Any) -> None:
    """Run a verb of the program to its end."""
    cache = {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "pretrain", *map(str, words)]
    run_to_end(command, MALLOC_ENVIRONMENT | cache)


def train_generator(folder: pathlib.Path, size: str, steps: int) -> None:
    """Train a Grover on the articles of the generator unless it is trained."""
    store, workdir, (width, depth, heads) = folder / "store", folder / size, SIZES[size]
    if not store.exists():
        words = ["--document", "fields", "--field", ",".join(FIELDS), "--layout", "gpt2"]
        words += ["--vocab-size", VOCAB, "--held-out", 0.02, "--output", store]
        run_verb("prepare", folder / "generator.jsonl", *words)
    if (workdir / "finished").exists():
        return
    words = [f"model.vocab={VOCAB}", f"model.width={width}", f"model.depth={depth}"]
    words += [f"model.num_heads={heads}", f"model.mlp={4 * width}", f"data.store={store}"]
    words += ["data.objective.length=176", "data.batch_size=24", f"train.steps={steps}"]
    words += [f"evaluate.every={steps}", f"checkpoint.every={steps // 4}"]
    run_verb("train", "grover_tiny", "--workdir", workdir, *words)
    (workdir / "finished").touch()


def generate_bodies(folder: pathlib.Path, part: str, top_p: float) -> Rows:
    """Return real and generated bodies of equal length, each of the same metadata."""
    path = folder / f"{part}_{top_p:g}.jsonl"
    if not path.exists():
        words = ["--input", folder / f"{part}.jsonl", "--output", path, "--field", "body"]
        words += ["--top-p", top_p, "--length", NUM_TOKENS, "--batch-size", 64]
        run_verb("predict", "--workdir", folder / "base", *words)
    rows: Rows = []
    for record in read_lines(path):
        real, written = (record[key].split()[:CUT_WORDS] for key in ("body", "written"))
        if len(written) == CUT_WORDS:
            rows.append({"text": " ".join(real), "label": "real"})
            rows.append({"text": " ".join(written), "label": "generated"})
    return rows


def train_detector(
    folder: pathlib.Path, name: str, top_p: float, train: Rows, test: Rows, epochs: int
) -> float:
    """Return the accuracy of the last step of a detector on the bodies of `test`."""
    from pretrain.workdir.metrics_file import read_metrics

    if name == "counts":
        return train_floor(train, test)["accuracy"]
    detector, root = DETECTORS[name], folder / "detectors" / f"{name}_{top_p:g}"
    root.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", train), ("test", test)):
        write_lines(root / f"{part}.jsonl", rows)
    words = ["finetune", "--task", "classification", "--workdir", root / "w"]
    words += ["--train", root / "train.jsonl", "--heldout", root / "test.jsonl"]
    if detector.size:
        words += ["--from", folder / detector.size, "--fresh", detector.fresh]
        words += ["optimizer.learning_rate=5e-4", "data.objective.length=104"]
    else:
        words += ["--config", name]
        epochs = 10
    steps = epochs * -(-len(train) // 32)
    words += ["data.batch_size=32", f"train.steps={steps}", f"evaluate.every={steps}"]
    run_verb(*words, f"checkpoint.every={steps}", "evaluate.samples=0")
    scores = read_metrics(root / "w" / "metrics.jsonl")
    return [row["heldout_accuracy"] for row in scores if "heldout_accuracy" in row][-1]


def measure_authors(folder: pathlib.Path) -> tuple[float, int]:
    """Return for what share of real bodies the author is generated, and the number of authors."""
    given, path = folder / "bodies.jsonl", folder / "authors.jsonl"
    if not path.exists():
        articles = [article for part in PARTS for article in read_lines(folder / f"{part}.jsonl")]
        write_lines(given, [{"body": a["body"], "expected": a["authors"]} for a in articles])
        words = ["--input", given, "--output", path, "--field", "authors", "--length", 16]
        run_verb("predict", "--workdir", folder / "base", *words)
    records = read_lines(path)
    right = sum(record["written"] == record["expected"] for record in records)
    return right / len(records), len({record["expected"] for record in records})


def format_table(runs: list[dict[str, Any]]) -> list[str]:
    """Return the accuracies in percent of each detector at each value of top-p."""
    values = sorted({run["top_p"] for run in runs}, reverse=True)
    scores = {(run["detector"], run["top_p"]): 100 * run["accuracy"] for run in runs}
    lines = [f"| detector | {' | '.join(f'top-p {value:g}' for value in values)} |"]
    lines.append("|---" * (1 + len(values)) + "|")
    for name, detector in DETECTORS.items():
        cells = [f"{scores[name, p]:.1f}" if (name, p) in scores else "" for p in values]
        lines.append(f"| {detector.title} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Train the generators and the detectors that are missing, and add the table to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True, help="has books/train")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int_at_least(4), default=800, help="of each generator")
    parser.add_argument("--pairs", type=int_at_least(2), default=900, help="to train a detector")
    parser.add_argument("--test-pairs", type=int_at_least(2), default=400)
    parser.add_argument("--epochs", type=int_at_least(1), default=3, help="of a Grover detector")
    parser.add_argument("--top-p", type=float, nargs="+", default=[0.94, 1.0, 0.8])
    parser.add_argument("--detectors", nargs="+", choices=DETECTORS, default=list(DETECTORS))
    parser.add_argument("--page", action="store_true", help="add the table of all finished runs")
    args = parser.parse_args()
    load_at_start, folder = os.getloadavg()[0], args.folder
    books = args.corpora / "books" / "train"
    require_paths(parser, "--corpora", books)
    if not any(books.glob("*.jsonl")):
        parser.error(f"argument --corpora: {books} has no *.jsonl")
    numbers = {"train": args.pairs, "test": args.test_pairs}
    with report_errors(parser):
        settings = {"steps": args.steps, "pairs": numbers, "epochs": args.epochs}
        has_results = (folder / "generator.jsonl").exists()
        require_settings(folder / "settings.json", settings, has_results)
    write_articles(books, folder, numbers)
    for size in SIZES:
        train_generator(folder, size, args.steps)
    runs = read_lines(folder / "runs.jsonl")
    done = {(run["detector"], run["top_p"]) for run in runs}
    for top_p in args.top_p:
        train, test = (generate_bodies(folder, part, top_p) for part in PARTS)
        for name in args.detectors:
            if (name, top_p) in done:
                continue
            accuracy = train_detector(folder, name, top_p, train, test, args.epochs)
            sizes = {"train": len(train), "test": len(test)}
            runs.append({"detector": name, "top_p": top_p, "accuracy": accuracy, **sizes})
            write_lines(folder / "runs.jsonl", runs)
            print(runs[-1], flush=True)
    if args.page:
        sizes = sorted({(run["train"], run["test"]) for run in runs})
        share, num_authors = measure_authors(folder)
        losses = ", ".join(f"{size} {read_heldout_loss(folder / size):.3f}" for size in SIZES)
        lines = [
            format_title(load_at_start),
            "",
            f"`{format_command()}`: accuracy in percent on real and generated bodies of "
            f"{CUT_WORDS} words, in equal numbers, of authors who are not in its training. "
            f"Bodies to learn from, and scored: {sizes}. Held-out loss of the generators in nats a "
            f"token after {args.steps} steps of 24 articles: {losses}. Widths, depths and heads: "
            f"{SIZES}.",
            "",
            *format_table(runs),
            "",
            f"The author that the base generator writes greedily, from a body alone, is the right "
            f"one of {num_authors} for {100 * share:.1f} % of the detectors' real bodies.",
        ]
        add_result(NAME, lines, "Grover: generated bodies and their detectors")


if __name__ == "__main__":
    main()
