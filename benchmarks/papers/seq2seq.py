"""Compare LSTM encoder-decoders, without attention and with each score, with a Transformer.

    python -m benchmarks.papers.seq2seq CORPUS [--work runs/seq2seq] [--steps 900] [--beams 4]
      [--models NAME ...] [--note TEXT]

CORPUS is as of `translate`: Multi30k, English to German. All models are trained on the
same rows of the same store, for as many steps, one after the other; a run that exists is continued.
BLEU is sacrebleu's on raw text, of the whole test set and of its sentences by the number of words
of the source. A dated section is added to benchmarks/results/seq2seq.md, and next to it the
alignment of one sentence is drawn, seq2seq_alignment.png.
"""

# sacrebleu is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from sacrebleu.metrics.bleu import BLEU

from benchmarks.cached_results import require_settings
from benchmarks.harness import (
    RESULTS,
    format_command,
    format_title,
    int_at_least,
    report_errors,
    require_paths,
)
from benchmarks.papers.translate import (
    LENGTH,
    TEST,
    list_files,
    prepare_store,
    read_lines,
    run_verb,
)
from benchmarks.results_pages import add_result
from models.generation.decoding import BeamSearch, Greedy
from pretrain.api.evaluating import evaluate_checkpoint
from pretrain.inference.text_generation import TranslationWriter
from pretrain.workdir import metrics_file
from pretrain.workdir.trained import open_trained

NAME, LANGUAGES, VOCAB = "seq2seq", ("en", "de"), 2000
EDGES = (0, 9, 12, 16)  # words of a source; the last group has no end
SMALL_TRANSFORMER = (
    *(f"model.vocab={VOCAB}", "model.width=128", "model.depth=2", "model.decoder_depth=2"),
    *("model.num_heads=4", "model.mlp=256", "data.batch_size=48", "data.objective.length=48"),
    *("data.objective.target_length=48", "optimizer.warmup_steps=200", "checkpoint.keep=2"),
)


class TranslationModel(NamedTuple):
    """A row of the table: its title, its configuration, and the overrides of that."""

    title: str
    config: str
    overrides: tuple[str, ...] = ()


MODELS = {
    "plain": TranslationModel("LSTM, no attention", "seq2seq_plain"),
    "additive": TranslationModel("LSTM, additive (Bahdanau)", "seq2seq_bahdanau"),
    "dot": TranslationModel("LSTM, dot (Luong)", "seq2seq_luong", ("model.score=dot",)),
    "general": TranslationModel("LSTM, general (Luong)", "seq2seq_luong"),
    "general_both": TranslationModel(
        "LSTM, general (Luong), bidirectional encoder",
        "seq2seq_luong",
        ("model.direction=bidirectional",),
    ),
    "concat": TranslationModel(
        "LSTM, concat (Luong)", "seq2seq_luong", ("model.score=concat", "model.mlp=128")
    ),
    "transformer": TranslationModel("Transformer", "transformer_multi30k", SMALL_TRANSFORMER),
}


def train_model(
    model: TranslationModel, work: pathlib.Path, workdir: pathlib.Path, steps: int
) -> None:
    """Train a model for so many steps."""
    every = max(1, steps // 3)
    run_verb(
        *("train", model.config, "--workdir", workdir, f"data.store={work / 'store'}"),
        *(f"train.steps={steps}", f"evaluate.every={every}", f"checkpoint.every={every}"),
        *model.overrides,
    )


def group_by_length(sources: Sequence[str]) -> dict[str, list[int]]:
    """Return {"at most 8 words": the sentences of that length}, and so on."""
    groups = {}
    for low, high in itertools.zip_longest(EDGES, EDGES[1:]):
        if high is None:
            name = f"{low} words and more"
        else:
            name = f"{low} to {high - 1} words" if low else f"up to {high - 1} words"
        groups[name] = [
            i
            for i, source in enumerate(sources)
            if low <= len(source.split()) < (high or len(source) + 1)
        ]
    return groups


def score_model(
    workdir: pathlib.Path, sources: Sequence[str], references: Sequence[str], beams: int
) -> dict[str, Any]:
    """Return what the tables have of a trained model."""
    trained, (_, _, scores) = open_trained(workdir), evaluate_checkpoint(str(workdir))
    bleu, places = BLEU(), [None] * len(sources)
    found = {}
    for name, strategy in (("greedy", Greedy()), ("beam", BeamSearch(beams))):
        translate = TranslationWriter(trained, LENGTH, 64, strategy)
        written = [answer["written"] for answer in translate(sources, places)]
        found[name] = bleu.corpus_score(written, [references]).score
    by_length = {
        name: BLEU().corpus_score([written[i] for i in rows], [[references[i] for i in rows]]).score
        for name, rows in group_by_length(sources).items()
    }
    rows = metrics_file.read_metrics(workdir / "metrics.jsonl")
    return found | {
        "by_length": by_length,
        "nats": scores["seq2seq"],
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(trained.params)),
        "minutes": sum(row["seconds"] for row in rows) / 60,
        "tokens": sum(row["tokens"] for row in rows) / 1e6,
        "signature": str(bleu.get_signature()),
    }


def draw_alignment(workdir: pathlib.Path, source: str, target: str, work: pathlib.Path) -> None:
    """Draw the weights of the attention to a source while its reference is read."""
    pair, images = work / "pair.jsonl", work / "images"
    pair.write_text(json.dumps({"text": source, "target": target}, ensure_ascii=False))
    where = ("--input", pair, "--output", work / "page.html", "--images", images, "--overwrite")
    run_verb("attention", "--workdir", workdir, *where)
    shutil.copy(images / "text_1_cross_layer_1.png", RESULTS / f"{NAME}_alignment.png")


def format_tables(
    found: dict[str, dict[str, Any]], groups: dict[str, list[int]], beams: int
) -> list[str]:
    """Return the tables of all models, and of BLEU by the length of the source."""
    lines = [
        f"| model | parameters | minutes of steps | nats a held-out token | BLEU, greedy | BLEU, "
        f"beam {beams} |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        lines.append(
            f"| {MODELS[name].title} | {one['parameters']:,} | {one['minutes']:.1f} "
            f"| {one['nats']:.3f} | {one['greedy']:.1f} | {one['beam']:.1f} |"
        )
    titles = " | ".join(f"{name} ({len(rows)})" for name, rows in groups.items())
    lines += ["", f"| BLEU, beam {beams}, by words of the source | {titles} |"]
    lines.append("|---" * (len(groups) + 1) + "|")
    for name, one in found.items():
        cells = " | ".join(f"{score:.1f}" for score in one["by_length"].values())
        lines.append(f"| {MODELS[name].title} | {cells} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("runs/seq2seq"))
    parser.add_argument("--steps", type=int_at_least(3), default=900)
    parser.add_argument("--beams", type=int_at_least(1), default=4)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--note", default="", help="a remark for the page, such as other load")
    args = parser.parse_args()
    require_paths(parser, "corpus", *list_files(args.corpus, LANGUAGES))
    with report_errors(parser):
        has_results = any((args.work / name).exists() for name in MODELS)
        settings = {"steps": args.steps, "beams": args.beams}
        require_settings(args.work / "settings.json", settings, has_results)
    load = os.getloadavg()[0]
    args.work.mkdir(parents=True, exist_ok=True)
    prepare_store(args.corpus, args.work, LANGUAGES, VOCAB)
    sources, references = (read_lines(args.corpus / f"{TEST}.{language}") for language in LANGUAGES)
    found = {}
    for name in args.models:
        train_model(MODELS[name], args.work, args.work / name, args.steps)
        scores = args.work / f"{name}.json"
        if not scores.exists():
            one = score_model(args.work / name, sources, references, args.beams)
            scores.write_text(json.dumps(one, indent=1))
        found[name] = json.loads(scores.read_text())
    first = next(iter(found.values()))
    text = [
        format_title(load),
        "",
        f"`{format_command()}`: {first['tokens']:.2f} M tokens of both sides in {args.steps} steps",
        f"each. {TEST}, {len(sources):,} sentences; sacrebleu `{first['signature']}`.",
        *filter(None, [args.note]),
        "",
        *format_tables(found, group_by_length(sources), args.beams),
    ]
    drawn = next((name for name in ("additive", "general") if name in found), None)
    if drawn:
        i = max(range(100), key=lambda i: (len(sources[i].split()) == 12, -i))
        draw_alignment(args.work / drawn, sources[i], references[i], args.work)
        caption = f"What the {drawn} score attends to, row by row, while the reference is read:"
        text += ["", f"{caption} ![alignment]({NAME}_alignment.png)"]
    add_result(NAME, text, "LSTM encoder-decoders and a Transformer: translation")


if __name__ == "__main__":
    main()
