"""Train a translation Transformer, average its last checkpoints, and score it by BLEU.

    python benchmarks/papers/translate.py CORPUS [--work runs/translate] [--averaged 5] [--beams 4]
      [--note TEXT] [path=value ...]

CORPUS is a folder with train.en, train.de, test_2016_flickr.en and test_2016_flickr.de, one
sentence a line: Multi30k, task 1, raw (Elliott et al. 2016). Files that exist in the work folder
are not made again. BLEU is sacrebleu's (Post 2018, `pip install -e '.[metrics]'`) on raw text,
with its signature. A dated section is appended to benchmarks/results/translate.md.
"""

# sacrebleu is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import sys
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import numpy as np  # noqa: E402
from sacrebleu.metrics.bleu import BLEU  # noqa: E402

from benchmarks.harness import (  # noqa: E402
    format_command,
    get_processor_name,
    int_at_least,
    require_paths,
)
from benchmarks.results_pages import add_result  # noqa: E402
from models.generation.decoding import BeamSearch, Greedy  # noqa: E402
from pretrain.__main__ import main as cloze  # noqa: E402
from pretrain.api.evaluating import evaluate_checkpoint  # noqa: E402
from pretrain.inference.text_generation import TranslationWriter  # noqa: E402
from pretrain.workdir import metrics_file  # noqa: E402
from pretrain.workdir.trained import Trained, open_trained  # noqa: E402

CONFIG, TEST = "transformer_multi30k", "test_2016_flickr"
LENGTH = 64  # tokens of a translation at most


def read_lines(path: pathlib.Path) -> list[str]:
    """Return the lines of a file; only "\\n" ends a line, other separators occur in this corpus."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def run_verb(*arguments: object) -> None:
    """Run a verb of Cloze; exit if it fails."""
    print("python -m pretrain", *arguments, flush=True)
    if status := cloze([str(word) for word in arguments]):
        sys.exit(status)


def list_files(corpus: pathlib.Path, languages: Sequence[str]) -> list[pathlib.Path]:
    """Return the files of the training and test pairs."""
    return [corpus / f"{part}.{language}" for part in ("train", TEST) for language in languages]


def prepare_store(
    corpus: pathlib.Path, work: pathlib.Path, languages: Sequence[str], vocab_size: int = 6000
) -> None:
    """Prepare the store of the training pairs."""
    pairs = work / "train.jsonl"
    if not pairs.exists():
        sides = [read_lines(corpus / f"train.{language}") for language in languages]
        with open(pairs, "w", encoding="utf-8") as file:
            for source, target in zip(*sides, strict=True):
                file.write(
                    json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n"
                )
    options = [
        "--document",
        "pair",
        "--layout",
        "transformer",
        "--algorithm",
        "bpe",
        "--vocab-size",
        str(vocab_size),
        "--held-out",
        "0.01",
    ]
    run_verb("prepare", pairs, "--output", work / "store", *options)


def score_translations(
    trained: Trained, sources: Sequence[str], references: Sequence[str], strategy: Any
) -> tuple[float, Any, float]:
    """Translate `sources` and return (BLEU, its signature, seconds without compilation).

    Args:
      strategy: `Greedy` or `BeamSearch`.
    """
    translate = TranslationWriter(trained, LENGTH, 32, strategy)
    positions: Any = [None] * len(sources)
    translate(sources, positions)
    start = time.monotonic()
    translations = [answer["written"] for answer in translate(sources, positions)]
    seconds = time.monotonic() - start
    bleu = BLEU()
    result = bleu.corpus_score(translations, [references])
    return result.score, bleu.get_signature(), seconds


def append_results(
    args: argparse.Namespace,
    run: pathlib.Path,
    params: Any,
    table: Sequence[str],
    signature: Any,
    count: int,
) -> None:
    """Add the table to benchmarks/results/translate.json, and print it.

    Args:
      run: workdir of the training.
      signature: sacrebleu's.
      count: sentences of the test set.
    """
    rows = metrics_file.read_metrics(run / "metrics.jsonl")
    tokens = sum(row["tokens"] for row in rows) / 1e6
    minutes = sum(row["seconds"] for row in rows) / 60
    median_rate = np.median([row["tokens_per_second"] for row in rows])
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    cores, python = len(os.sched_getaffinity(0)), f"Python {platform.python_version()}"
    machine = f"{datetime.date.today()}, {get_processor_name()}, {cores} cores, {python}"
    text = f"""## {machine}

`{format_command()}`, {"-".join(args.languages)}: {CONFIG}, {size:,} parameters,
{rows[-1]["step"]:,} steps, {tokens:.1f} M tokens of both sides, {minutes:.0f} minutes of steps
(median {median_rate:,.0f} tokens/s). {TEST}, {count:,} sentences; sacrebleu `{signature}`.
{args.note}

| parameters | nats a held-out token | decoding | BLEU | sentences/s |
|---|---|---|---|---|
{chr(10).join(table)}
"""
    add_result("translate", text.splitlines(), "Translation by a small Transformer")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("overrides", nargs="*", metavar="path=value")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("runs/translate"))
    parser.add_argument("--averaged", type=int_at_least(1), default=5)
    parser.add_argument("--beams", type=int_at_least(1), default=4)
    parser.add_argument("--languages", nargs=2, default=("en", "de"), metavar=("FROM", "TO"))
    parser.add_argument(
        "--note", default="", help="a remark for the page, such as other load on the machine"
    )
    args = parser.parse_intermixed_args()
    require_paths(parser, "corpus", *list_files(args.corpus, args.languages))
    args.work.mkdir(parents=True, exist_ok=True)
    run, mean = args.work / "run", args.work / f"mean_{args.averaged}"
    prepare_store(args.corpus, args.work, args.languages)
    run_verb(
        "train", CONFIG, "--workdir", run, f"data.store={args.work / 'store'}", *args.overrides
    )
    if not mean.exists():
        run_verb("average", "--workdir", run, "--last", args.averaged, "--output", mean)

    sources, references = (
        read_lines(args.corpus / f"{TEST}.{language}") for language in args.languages
    )
    table = []
    for name, workdir in (
        ("the last checkpoint", run),
        (f"the mean of the last {args.averaged}", mean),
    ):
        trained, (_, _, scores) = open_trained(workdir), evaluate_checkpoint(workdir)
        for decoding, strategy in (
            ("greedy", Greedy()),
            (f"beam {args.beams}", BeamSearch(args.beams)),
        ):
            bleu, signature, seconds = score_translations(trained, sources, references, strategy)
            table.append(
                f"| {name} | {scores['seq2seq']:.3f} | {decoding} | {bleu:.2f} "
                f"| {len(sources) / seconds:.0f} |"
            )
            print(table[-1], flush=True)

    append_results(args, run, trained.params, table, signature, len(sources))


if __name__ == "__main__":
    main()
