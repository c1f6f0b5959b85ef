"""Features of words for WNUT-17's entities: ELMo's layers and their mix, and random word vectors.

    python -m benchmarks.papers.elmo_tagger --corpora ../shared/corpora --write-words words.jsonl
    python -m pretrain prepare words.jsonl --algorithm words --vocab-size 200000
      --sample-size 1000000000 --output runs/elmo_words
    python -m pretrain train elmo_tiny --workdir runs/elmo_books data.store=runs/elmo_words ...
    python -m benchmarks.papers.elmo_tagger --corpora ../shared/corpora --from runs/elmo_books
      [--layers] [--bert runs/bert_mini] [--seeds 3] [--again]

The first form writes the books with blanks between words and punctuation. The tagger follows
`lstm_tagger`, on fixed features of each word: a random vector of each different word;
the mean of the layers of an ELMo with random parameters; the ELMo's mean, and the mix with weights
that the tagger learns (Peters et al. 2018, equation 1); with --layers each layer alone; with --bert
the last layer of a BERT, at each word's first token. A dated section is appended to
benchmarks/results/elmo_tagger.md.

S words of all sentences   D width of a state
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks.cached_results import require_settings, write_result
from benchmarks.harness import (
    ROOT,
    format_command,
    format_title,
    int_at_least,
    report_errors,
    require_paths,
)
from benchmarks.papers.downstream_page import format_mean
from benchmarks.papers.feature_layers import FILES, list_files
from benchmarks.papers.feature_states import load_or_make, open_and_extract, open_untrained
from benchmarks.papers.lstm_tagger import BATCH, RATE, WIDTH, TaggedWords, train_taggers
from benchmarks.results_pages import add_result
from data.corpus.json_lines import format_json_lines, read_json_lines
from data.examples import tag_schemes, tagged_sentences
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir

EPOCHS, RANDOM_WIDTH = 8, 128
# A word, one that begins with an apostrophe, or a mark.
WORDS = re.compile(r"['’]\w+|\w+(?:-\w+)*|[^\w\s]")
QUOTES = str.maketrans("’‘“”", "''\"\"")
NAME = "elmo_tagger"

States = Mapping[str, np.ndarray]  # {layer_n: float32 [S, D]}


def split_words(text: str) -> str:
    """Return a text with blanks between words and marks, and plain quotation marks."""
    paragraphs = (" ".join(WORDS.findall(paragraph)) for paragraph in text.split("\n"))
    return "\n".join(paragraphs).translate(QUOTES)


def write_words(corpora: pathlib.Path, output: pathlib.Path) -> int:
    """Write the books as JSON lines of separated words; return the number of words."""
    records = [
        {"text": split_words(record["text"])}
        for path in sorted((corpora / "books" / "train").glob("*.jsonl"))
        for _, record in read_json_lines(path)
    ]
    output.write_text(format_json_lines(records, ensure_ascii=False))
    return sum(len(record["text"].split()) for record in records)


def draw_vectors(words: Sequence[str]) -> np.ndarray:
    """Return a random vector of each word, float32 [S, D]; equal words have equal vectors."""
    vectors = {
        word: np.random.default_rng(zlib.crc32(word.encode())).standard_normal(RANDOM_WIDTH)
        for word in set(words)
    }
    return np.stack([vectors[word] for word in words]).astype(np.float32)


def list_layers(states: States) -> list[np.ndarray]:
    """Return the states of each layer, in order."""
    return [states[f"layer_{i}"] for i in range(len(states))]


def average_layers(states: States) -> np.ndarray:
    """Return the mean of the layers, which is the mix before it has learned."""
    return np.mean(list_layers(states), axis=0)


def join_layers(states: States) -> np.ndarray:
    """Return the layers side by side, of which the tagger learns the mix."""
    return np.concatenate(list_layers(states), axis=1)


class Row:
    """A row of the table.

    Attributes:
      title: what the features are.
      source: key of the states; None: random word vectors.
      combine: (states of a file) -> the tagger's input.
      layers: how many layers are side by side in it.
    """

    def __init__(
        self, title: str, source: str | None, combine: Callable[[States], Any], layers: int = 1
    ) -> None:
        self.title, self.source, self.combine, self.layers = title, source, combine, layers


def list_rows(args: argparse.Namespace) -> list[Row]:
    """Return the rows of the table."""
    depth: int = getattr(Workdir.open(args.encoder).run.model, "depth")  # noqa: B009 - any model's
    layers = [
        Row(f"ELMo, layer {i}", "elmo", lambda states, i=i: states[f"layer_{i}"])
        for i in range(depth + 1)
    ]
    rows = [
        Row("random vectors of words", None, lambda states: states),
        Row("ELMo with random parameters, mean of the layers", "random", average_layers),
        *(layers if args.layers else ()),
        Row("ELMo, mean of the layers", "elmo", average_layers),
        Row("ELMo, learned mix of the layers", "elmo", join_layers, depth + 1),
    ]
    if args.bert:
        rows.append(Row("BERT, last layer", "bert", lambda states: list_layers(states)[-1]))
    return rows


def measure_rows(args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Return {title: result of `train_taggers`} of all rows."""
    sentences = {
        name: tagged_sentences.read_sentences(str(path))
        for name, path in zip(FILES, list_files(args.corpora), strict=True)
    }
    names = tag_schemes.list_tags(
        {tag for sentence in sentences["train"] for tag in sentence.tags}, "bio"
    )
    starts = {
        "elmo": partial(open_and_extract, open_trained, args.encoder),
        "random": partial(open_and_extract, open_untrained, args.encoder),
        "bert": partial(open_and_extract, open_trained, args.bert),
    }
    results = {}
    for row in list_rows(args):
        stem = re.sub("[^a-zA-Z0-9]+", "_", row.title)
        path = args.work / f"{stem}-{args.seeds}x{args.epochs}.json"
        if args.again or not path.exists():
            print(row.title, file=sys.stderr, flush=True)
            parts = {}
            for name, part in sentences.items():
                if row.source:
                    states, _ = load_or_make(
                        args.work / f"{row.source}-{name}.npz",
                        partial(starts[row.source], part),
                        False,
                    )
                    x_SD = row.combine(states)
                else:
                    x_SD = draw_vectors([word for sentence in part for word in sentence.words])
                parts[name] = TaggedWords(
                    x_SD,
                    np.concatenate(tagged_sentences.encode_tags(list(part), names)),
                    np.cumsum([0, *(len(sentence.words) for sentence in part)]),
                )
            write_result(path, train_taggers(parts, names, args.seeds, args.epochs, row.layers))
        results[row.title] = json.loads(path.read_text())
    return results


def format_section(
    results: Mapping[str, Sequence[Mapping[str, Any]]], args: argparse.Namespace
) -> list[str]:
    """Return the lines of a section after its heading."""
    trained = open_trained(args.encoder)
    run: Any = trained.run
    seen = trained.step * run.data.batch_size * run.data.objective.length
    rows = [
        f"| {title} | "
        + " | ".join(format_mean([seed[split] for seed in seeds]) for split in ("dev", "test"))
        + f" | {', '.join(str(seed['epoch']) for seed in seeds)} |"
        for title, seeds in results.items()
    ]
    return [
        f"`{format_command()}`",
        "",
        f"The ELMo: {args.encoder}, {run.model.depth} layers of {run.model.cells} cells and "
        f"{run.model.width} numbers in each direction, {run.model.vocab:,} targets, frozen. It was "
        f"trained for {trained.step:,} steps on {seen:,} words; the released models read "
        f"800 million words ten times. The random vectors have {RANDOM_WIDTH} numbers. The tagger: "
        f"two bidirectional LSTM layers of width {WIDTH} in each direction and a classification "
        f"layer, batches of {BATCH} sentences of similar length, Adam at {RATE:g}, {args.epochs} "
        f"epochs, no dropout. Entity F1 in hundredths, mean ± sample standard deviation of "
        f"{args.seeds} seeds of the tagger's weights and of the order. The epoch is the best on "
        "dev, whose figures are therefore optimistic; test was not used to choose it.",
        "",
        "| features | dev | test | best epochs |",
        "|---|---|---|---|",
        *rows,
        "",
    ]


def main() -> None:
    """Write the words of the books, or measure the rows and add a section to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, default=pathlib.Path("../shared/corpora"))
    parser.add_argument("--write-words", type=pathlib.Path, help="write the books' words and end")
    parser.add_argument(
        "--from",
        dest="encoder",
        type=pathlib.Path,
        default=pathlib.Path("runs/elmo_books"),
        help="workdir of the pretrained ELMo",
    )
    parser.add_argument("--layers", action="store_true", help="measure each layer alone, too")
    parser.add_argument("--bert", type=pathlib.Path, help="workdir of a pretrained BERT")
    parser.add_argument("--seeds", type=int_at_least(1), default=3)
    parser.add_argument("--epochs", type=int_at_least(1), default=EPOCHS)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("runs/elmo_tagger"))
    parser.add_argument("--again", action="store_true", help="train the taggers again")
    args = parser.parse_args()
    os.chdir(ROOT)
    if args.write_words:
        print(f"{args.write_words}: {write_words(args.corpora, args.write_words):,} words")
        return
    require_paths(parser, "--from", args.encoder)
    require_paths(parser, "--corpora", *list_files(args.corpora))
    with report_errors(parser):
        _ = Workdir.open(args.encoder).run  # Raises for a folder that is not a workdir.
        settings = {"encoder": str(args.encoder), "bert": args.bert and str(args.bert)}
        has_results = any(args.work.glob("*.npz"))
        require_settings(args.work / "settings.json", settings, has_results)
    load = os.getloadavg()[0]
    results = measure_rows(args)
    title = format_title(load, f"JAX {jax.__version__}")
    add_result(NAME, [title, "", *format_section(results, args)], "Features of words for WNUT-17")


if __name__ == "__main__":
    main()
