"""import FOLDER --workdir W: start a run from a Hugging Face model, or from released HDF5 weights.

hf://USER/NAME[@REVISION] instead of the folder downloads the model from the Hugging Face Hub.

A pretrained model becomes step 0 of a run; a fine-tuned model is ready for `predict`.
"""

from __future__ import annotations

import argparse
import pathlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from data.corpus.paths import is_remote
from data.images.encoding import ImageEncoding
from models.config.classifier import ClassifierConfig
from models.config.embedder import EmbedderConfig
from models.config.heads import HeadedConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.api.importing import ImportOptions, import_folder
from pretrain.config import Run
from pretrain.host.command import PROGRAM
from pretrain.settings.verb_options import add_options, read_options

if TYPE_CHECKING:
    from pretrain.convert.read_write import OpenedModel

FINE_TUNED = (  # commands that a fine-tuned model can be used with
    "predict --workdir {} --input FILE",
    "evaluate --workdir {} --labelled FILE",
    "finetune --from {} --task TASK --train FILE --workdir NEW",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `import` to a parser."""
    add_options(parser, ImportOptions)


def run(args: argparse.Namespace) -> int:
    """Write the workdir and print a summary; return 0."""
    imported = import_folder(**vars(read_options(ImportOptions, args)))
    print(format_summary(args, *imported))
    return 0


def format_summary(
    args: argparse.Namespace,
    opened: OpenedModel,
    run: Run,
    missing: Sequence[str],
    unused: Sequence[str],
) -> str:
    """Return what was imported, what was missing, and the commands to run next."""
    workdir = shlex.quote(args.workdir)  # in commands
    model: Any = run.model
    kind = ", ".join(opened.architectures) or type(model).__name__
    count = len(opened.tensors) - len(unused)
    lines = [f"{args.workdir}: {kind} from {args.folder}, {count} tensors"]
    if stored := [name for name in opened.tensors.list_formats() if name != "F32"]:
        lines.append(
            f"  stored as {', '.join(stored)}; converted exactly to float32, and exported as such"
        )
    if missing:
        lines.append(
            f"  not in the folder, initialized at random (train.seed={run.train.seed}): "
            f"{', '.join(missing)}"
        )
    if unused:
        lines.append(f"  not part of pretraining, ignored: {', '.join(unused)}")
    if isinstance(model, HeadedConfig):
        lines += [
            *(f"  {line}" for line in describe_head(model, run.data.objective)),
            "next:",
            *(f"  {PROGRAM} {command.format(workdir)}" for command in FINE_TUNED),
        ]
        return "\n".join(lines)
    if isinstance(opened.encoding, ImageEncoding):
        return "\n".join([*lines, *describe_images(run, workdir)])
    vocabulary = opened.vocabulary
    if model.characters:
        lines += [
            f"  reads words by {model.characters} characters; targets: {model.vocab:,} words",
            "next:",
            f"  {PROGRAM} features --workdir {workdir} --input TEXT --layers all --output FILE.npz",
            f"  {PROGRAM} finetune --from {workdir} --task TASK --train FILE --workdir NEW",
        ]
        return "\n".join(lines)
    document = " --document pair" if run.data.objective.name == "seq2seq" else ""
    lines += [
        f"  vocabulary: {vocabulary.kind}, {vocabulary.size:,} ids; model rows: {model.vocab:,}",
        "next:",
    ]
    if not has_store(run):
        store = shlex.quote(run.data.store or "STORE")
        lines.append(
            f"  {PROGRAM} prepare TEXT{document} --output {store} --vocabulary {workdir}/vocabulary"
        )
    return "\n".join([*lines, *list_commands(run, workdir)])


def has_store(run: Run) -> bool:
    """Return whether the store of a run is there, or in a bucket, which is not asked."""
    store = run.data.store
    return is_remote(store) or (bool(store) and pathlib.Path(store).is_dir())


def list_commands(run: Run, workdir: str) -> list[str]:
    """Return the commands that score and train an imported model; they name a store to be made."""
    path = shlex.quote(run.data.store or "STORE")
    store, data = ("", "") if has_store(run) else (f" --store {path}", f" data.store={path}")
    return [
        f"  {PROGRAM} evaluate --workdir {workdir}{store}",
        f"  {PROGRAM} train {workdir}/config.json --workdir {workdir}{data} train.steps=N",
    ]


def describe_images(run: Run, workdir: str) -> list[str]:
    """Return lines on what a model of images reads, and the commands to run next."""
    model: Any = run.model
    size = f"{model.image_size} x {model.image_size}"
    return [
        f"  reads images of {size} pixels, {model.channels} channels; {model.classes:,} classes",
        "next:",
        *list_commands(run, workdir),
    ]


def describe_head(model: Any, objective: Any) -> list[str]:
    """Return lines on what a fine-tuned model predicts, and on what the folder does not say."""
    if isinstance(model, ClassifierConfig):
        return [
            f"predicts {', '.join(model.labels) or 'a score'} from the columns "
            f"{','.join(objective.columns)}",
            "for pairs of texts, add data.objective.columns=text,text2,label",
        ]
    if isinstance(model, TaggerConfig):
        return [
            f"predicts the tags {', '.join(model.labels)}, of the scheme {model.scheme}",
            "for another scheme, add model.scheme=bio, iob1, iobes, bilou or plain",
        ]
    if isinstance(model, SpanReaderConfig):
        return [
            "predicts the span of a context that answers a question",
            "if a question may have no answer, as in SQuAD 2.0, add model.unanswerable=true",
        ]
    if isinstance(model, EmbedderConfig):
        return [
            f"gives each text a vector: the pooling is {model.pooling}",
            "to train it further, `finetune --task embedding`; its prompts are not read",
        ]
    return [
        f"predicts the right one of several texts, {objective.choices} in `evaluate`",
        "for another number, add data.objective.choices=C",
    ]
