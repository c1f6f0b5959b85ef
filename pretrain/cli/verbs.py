"""The table of verbs, and how the arguments of each are parsed."""

from __future__ import annotations

import argparse
import difflib
import importlib
import keyword
from collections.abc import Sequence
from typing import Any

from pretrain.host.command import PREFIX, PROGRAM

# {group: {verb: help text}}, in the order of `--help`. A verb's module is imported when the verb is
# called, so that `--help` needs neither JAX nor TensorFlow.
GROUPS = {
    "Start": {
        "prepare": "turn text into a token store",
        "prepare-music": "turn chorales or MIDI files into a token store",
        "prepare-images": "turn labelled images into a store",
        "prepare-captions": "turn pictures with captions into a store",
        "describe": "list the configurations; show one with its size and FLOPs",
        "inspect": "show what a store holds, or a batch as text, and check it",
        "doctor": "show versions, devices and missing libraries",
    },
    "Train": {
        "train": "start or resume a run",
        "finetune": "fine-tune a pretrained model on GLUE or your own data",
        "import": "start a run from a Hugging Face model",
        "distil": "start a run that distils a trained model to a smaller one",
        "sweep": "train with several values of some settings, and compare",
        "average": "average the last checkpoints of a run into a new run",
    },
    "Use": {
        "evaluate": "score a checkpoint on the whole held-out part",
        "score": "score texts and minimal pairs by their probability",
        "predict": "fill masks, generate text or predict labels",
        "compose": "continue a piece of music, as MIDI and as a piano roll",
        "embed": "write the vectors of texts",
        "search": "rank texts by their vectors, and score the ranking",
        "mine": "find hard negatives for an embedder, by its own vectors",
        "glue": "make the GLUE table of fine-tuned runs, and a submission",
        "export": "write a checkpoint as a Hugging Face folder",
        "push": "upload a checkpoint to the Hugging Face Hub",
    },
    "Look inside": {
        "report": "draw the loss curves of one or more runs",
        "features": "write hidden states of any layers for a file of texts",
        "attention": "draw the attention weights of every layer and head",
        "contacts": "find the residues of a protein that touch, by an ESM-2",
        "senses": "draw one word in many sentences, by PCA and t-SNE",
        "cells": "colour a text by the most telling cells of an LSTM",
    },
    "Clusters": {
        "plan": "plan memory and speed of a TPU slice that you do not have",
        "pod": "create a TPU pod, run on it, and replace it when it is lost",
        "local": "run a verb in N processes on this machine, as a pod does",
    },
}
VERBS = {verb: text for group in GROUPS.values() for verb, text in group.items()}

# Verbs for which the settings of JAX do not matter, or which report on them.
WITHOUT_JAX = (
    *("prepare", "prepare-music", "prepare-images", "prepare-captions", "pod", "local", "doctor"),
)
# Without `--output` these print their result, so they end when nobody can read it. The others write
# files, and go on without what they print (pretrain/host/lost_output.py).
PRINTING = ("inspect", "describe", "plan", "evaluate", "score", "predict", "doctor")


def format_help() -> str:
    """Return the text of `--help`: a first run, then the verbs in groups."""
    first_run = importlib.import_module(f"{PREFIX}configs").FIRST_RUN
    lines = [
        f"usage: {PROGRAM} VERB ...",
        "",
        "Pretrain and fine-tune language models in JAX.",
        "",
        "Start here, with four commands (minutes on a CPU):",
        *(f"  {PROGRAM} {words}" for words in first_run),
    ]
    for group, verbs in GROUPS.items():
        lines += ["", group, *(f"  {verb:<18}{text}" for verb, text in verbs.items())]
    lines += [
        "",
        f"`{PROGRAM} describe --list` lists all configurations.",
        f"`{PROGRAM} VERB --help` explains the arguments of a verb.",
    ]
    return "\n".join(lines)


def describe_unknown(verb: str) -> str:
    """Return the text of the error about a verb that does not exist."""
    close = difflib.get_close_matches(verb, VERBS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"no verb {verb!r}: {hint}There are {', '.join(VERBS)}"


def is_result_printed(argv: Sequence[str]) -> bool:
    """Return whether what a command prints is its result; also for wrong arguments and --help."""
    if not argv or argv[0] not in VERBS:
        return True
    has_file = any(word.partition("=")[0] == "--output" for word in argv)
    return argv[0] in PRINTING and not has_file


def explain_disk_error(error: Exception, args: argparse.Namespace) -> str:
    """Return a line for a full or broken disk whose error names no file; "" for any other error.

    Libraries that draw and pack write to open files, whose errors have no names.
    """
    from data.store.atomic import DISK_ERRORS  # `data` may be a file of the caller

    if not isinstance(error, OSError) or error.filename or error.errno not in DISK_ERRORS:
        return ""
    given = (vars(args).get(name) for name in ("output", "images", "workdir"))
    place = next((place for place in given if isinstance(place, str)), "the result")
    return f"{place}: {error.strerror}, while it was written"


def import_verb(verb: str) -> Any:
    """Return the module of a verb, with `add_arguments(parser)` and `run(args) -> exit status`."""
    name = verb.replace("-", "_")
    return importlib.import_module(f"{__package__}.{name}{'_' * keyword.iskeyword(name)}")


def parse_arguments(verb: str, argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a verb.

    Raises:
      SystemExit: with status 2 for invalid arguments, and 0 for --help, both after printing.
    """
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {verb}", description=VERBS[verb], allow_abbrev=False
    )
    import_verb(verb).add_arguments(parser)
    # After `local N` all arguments belong to another verb. Elsewhere path=value may follow options.
    parse = parser.parse_args if verb == "local" else parser.parse_intermixed_args
    return parse(argv)
