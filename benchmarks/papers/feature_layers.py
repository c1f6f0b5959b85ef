"""BERT's feature-based experiment on WNUT-17 (Devlin et al. 2018, section 5.3 and table 7).

    python -m benchmarks.papers.feature_layers --corpora ../shared/corpora [--from runs/bert_mini]
      [--seeds 3] [--again]

The hidden states of each word's first token are computed once, as `python -m pretrain features`
does, and kept in WORK as .npz. Each combination of layers then is the input of a two-layer
bidirectional LSTM with random initial weights and a classification layer over BIO tags, trained
with Adam. The epoch with the best entity F1 on dev is reported, with its F1 on test. The same is
done for an encoder with random weights. Sentences longer than the encoder's rows are encoded in
parts, split between words, and tagged as a whole. A dated section is appended to
benchmarks/results/feature_layers.md.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

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
from benchmarks.papers.feature_states import (
    combine_layers,
    load_or_make,
    open_and_extract,
    open_untrained,
)
from benchmarks.papers.lstm_tagger import BATCH, RATE, WIDTH, TaggedWords, train_taggers
from benchmarks.results_pages import add_result
from data.examples import tag_schemes, tagged_sentences
from pretrain.inference.hidden_states import COMBINATIONS
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir

if TYPE_CHECKING:
    from data.examples.tagged_sentences import Sentence
    from pretrain.config import Run

FILES = ("train", "dev", "test")  # of ner_wnut17/
ROWS = {
    "pretrained": tuple(COMBINATIONS),
    "random weights": ("embeddings", "last", "concat_last_four"),
}
EPOCHS = 8


STARTS = {"pretrained": open_trained, "random weights": open_untrained}


# ---- the program -------------------------------------------------------------


def measure_rows(
    args: argparse.Namespace,
) -> tuple[dict[tuple[str, str], list[dict[str, Any]]], dict[str, dict[str, Any]]]:
    """Measure all rows of the table that have no result yet.

    Returns:
      ({(start, combination): result of `train_taggers`}, {file: counts of `extract_states`}).
    """
    sentences = {
        name: tagged_sentences.read_sentences(str(path))
        for name, path in zip(FILES, list_files(args.corpora), strict=True)
    }
    names = tag_schemes.list_tags(
        {tag for sentence in sentences["train"] for tag in sentence.tags}, "bio"
    )
    results, facts = {}, {}
    for start, opened in STARTS.items():
        stem, states = start.split()[0], {}
        for name, file_sentences in sentences.items():
            path = args.work / f"{stem}-{name}.npz"
            states[name], facts[name] = load_or_make(
                path, partial(open_and_extract, opened, args.encoder, file_sentences), args.again
            )
        for combination in ROWS[start]:
            first = resolve_combination(combination, len(states["train"]) - 1)
            path = args.work / f"{stem}-{first}-{args.seeds}x{args.epochs}.json"
            if args.again or not path.exists():
                print(f"{start}, {combination}", file=sys.stderr, flush=True)
                parts = {
                    name: make_words(states[name], combination, file_sentences, names)
                    for name, file_sentences in sentences.items()
                }
                write_result(path, train_taggers(parts, names, args.seeds, args.epochs))
            results[start, combination] = json.loads(path.read_text())
    return results, facts


def list_files(corpora: pathlib.Path) -> list[pathlib.Path]:
    """Return the file of each part of `FILES`."""
    return [corpora / "ner_wnut17" / f"{name}.conll" for name in FILES]


def make_words(
    states: Mapping[str, np.ndarray],
    combination: str,
    sentences: Sequence[Sentence],
    names: Sequence[str],
) -> TaggedWords:
    """Return the tagger's input: the combined states of the sentences' words, and their tags."""
    starts = np.cumsum([0, *(len(sentence.words) for sentence in sentences)])
    return TaggedWords(
        combine_layers(states, combination),
        np.concatenate(tagged_sentences.encode_tags(list(sentences), names)),
        starts,
    )


def resolve_combination(combination: str, depth: int) -> str:
    """Return the first of the combinations that are equal in a model of `depth` layers."""
    return "sum_last_four" if combination == "sum_all" and depth == 4 else combination


def format_table(
    results: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]], depth: int
) -> list[str]:
    """Return the lines of the table.

    Args:
      results: the results of `measure_rows`.
      depth: layers of the encoder.
    """
    lines = ["| features | encoder | dev | test | best epochs |", "|---|---|---|---|---|"]
    for (start, combination), seeds in results.items():
        same = (
            ""
            if resolve_combination(combination, depth) == combination
            else f" (here the same as {resolve_combination(combination, depth)})"
        )
        scores = [format_mean([seed[split] for seed in seeds]) for split in ("dev", "test")]
        epochs = ", ".join(str(seed["epoch"]) for seed in seeds)
        lines.append(f"| {combination}{same} | {start} | {' | '.join(scores)} | {epochs} |")
    return lines


def format_section(
    results: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]],
    facts: Mapping[str, Mapping[str, Any]],
    run: Run,
    args: argparse.Namespace,
) -> list[str]:
    """Return the lines of a section after its heading.

    Args:
      results, facts: the results of `measure_rows`.
      run: the encoder's configuration.
    """
    sizes = "; ".join(
        f"{name} {counts['sentences']:,} of {counts['words']:,} words, in {counts['parts']:,} parts"
        for name, counts in facts.items()
    )
    cut, empty = (sum(counts[key] for counts in facts.values()) for key in ("cut", "empty"))
    objective: Any = run.data.objective
    model: Any = run.model
    length = objective.length
    text = f"""
The encoder: {args.encoder}, {model.depth} layers of width {model.width}, rows of {length} tokens,
frozen. Sentences: {sizes}; longer than {length - 2} tokens, they are encoded in parts. {cut} of
the parts are one word longer than a row, whose first token is used; {empty} words have no token.
The tagger: two bidirectional LSTM layers of width {WIDTH} in each direction and a classification
layer, batches of {BATCH} sentences of similar length, Adam at {RATE:g}, {args.epochs} epochs, no
dropout. Entity F1 in hundredths, mean ± sample standard deviation of {args.seeds} seeds of the
tagger's weights and of the order; there is one encoder with random weights. The epoch is the best
on dev, whose figures are therefore optimistic; test was not used to choose it."""
    return [
        f"`{format_command()}`",
        text,
        "",
        *format_table(results, model.depth),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, default=pathlib.Path("../shared/corpora"))
    parser.add_argument(
        "--from",
        dest="encoder",
        type=pathlib.Path,
        default=pathlib.Path("runs/bert_mini"),
        help="workdir of the pretrained encoder",
    )
    parser.add_argument("--seeds", type=int_at_least(1), default=3)
    parser.add_argument("--epochs", type=int_at_least(1), default=EPOCHS)
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        default=pathlib.Path("runs/feature_layers"),
        help="folder of the features and scores",
    )
    parser.add_argument(
        "--again", action="store_true", help="measure again even if there is a result"
    )
    args = parser.parse_args()
    os.chdir(ROOT)
    require_paths(parser, "--from", args.encoder)
    require_paths(parser, "--corpora", *list_files(args.corpora))
    with report_errors(parser):
        run = Workdir.open(args.encoder).run
        settings = {"encoder": str(args.encoder)}
        has_results = any(args.work.glob("*.npz"))
        require_settings(args.work / "settings.json", settings, has_results)
    load = os.getloadavg()[0]
    results, facts = measure_rows(args)
    add_result(
        "feature_layers",
        [
            format_title(load, f"JAX {jax.__version__}"),
            "",
            *format_section(results, facts, run, args),
        ],
    )


if __name__ == "__main__":
    main()
