"""prepare SOURCE... --output STORE: turn text into a token store."""

from __future__ import annotations

import argparse
import importlib.util
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from data.corpus.sources import DOCUMENT_KINDS, list_formats
from data.vocabulary import layouts
from pretrain.host.extras import how_to_install

if TYPE_CHECKING:
    from data.prepare.beam_runner import BeamRunner

HELP = {
    "sources": "builtin (English text from Python's own library, needs no download), a .txt or "
    '.jsonl file (also .gz), a folder or "pattern" of such files, tfds:NAME[/CONFIG][:SPLIT], or '
    "any of the file forms in a bucket (gs://...); several sources are a mixture",
    "output": "folder for the store, on this machine",
    "document": "what is a document in .txt files: the file, a block between blank lines, or a "
    "line (record); pair: each line of a .tsv file, JSON record or TFDS example is a source and "
    "its target; fields: each JSON record is an article of several fields (default: {default})",
    "as": "format of all files, whatever their names: txt or jsonl, and tsv or jsonl for pairs; a "
    "name that ends in .gz is unpacked (default: the end of a name decides)",
    "field": "field of JSON records and TFDS examples that holds the text, or two fields for "
    "pairs, or all fields of articles in order (default: text; for pairs source,target; for "
    "articles domain,date,authors,headline,body)",
    "on_bad_record": "what to do with a line of a .jsonl or .tsv file that is no record: stop with "
    "an error that names it, or skip and count it (default: refuse)",
    "held_out": "share of the documents in the held-out split, chosen by hash "
    "(default: 0.01; with --validation 0)",
    "validation": "sources whose documents are the held-out split; the other sources are then for "
    "training alone",
    "rates": "relative sampling rate of each source",
    "temperature": "sample a source in proportion to (its tokens)^S: 1 is in proportion to the "
    "tokens (default), 0.7 raises the share of small sources, 0 is uniform",
    "vocabulary": "vocab.txt, vocab.json (with merges.txt), *.model, tokenizer.json, a folder of "
    "them, or hf://USER/NAME[@REVISION], a repository of the Hugging Face Hub",
    "vocab_size": "number of ids, special tokens and sentinels included (default: 32768)",
    "layout": layouts.LAYOUT_HELP,
    "algorithm": "unigram or bpe of SentencePiece, byte-level BPE, or words: what blanks "
    "separate, the most frequent first (default: unigram)",
    "lowercase": "fold case (nmt_nfkc_cf instead of nmt_nfkc)",
    "character_coverage": "share of the characters of the sample that have an id, 0.98 to 1; other "
    "characters are unknown (default: all that occur 3 times, as long as they take at most half of "
    "the ids, and printable ASCII)",
    "byte_fallback": "write other characters by 256 ids for bytes, so that none is unknown",
    "split_digits": "make each digit a token of its own",
    "sample_size": "maximal bytes of text to train on, sampled evenly from all of it "
    "(default: 10000000)",
    "workers": "number of processes, at most 64 a core; the result does not depend on it (default: "
    "one per core)",
    "overwrite": "replace an existing store",
    "runner": "Apache Beam runner to use instead of local processes: DirectRunner (on this "
    "machine, for a trial), DataflowRunner, FlinkRunner, SparkRunner, ... or the full name of a "
    "class; the resulting store is the same",
    "runner_option": "option of the Beam pipeline, e.g. region=us-east5; repeatable",
    "scratch": "folder that the workers and this machine can access, e.g. gs://BUCKET/scratch; "
    "temporary files in it are removed",
}
# Fields of `PrepareRequest` that arguments of the same names set.
OPTIONS = (
    *("vocabulary", "vocab_size", "layout", "algorithm", "lowercase", "character_coverage"),
    *("byte_fallback", "split_digits", "sample_size"),
    *("held_out", "validation", "document", "field", "file_format", "rates", "temperature"),
    "on_bad_record",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prepare` to a parser."""

    add_option(parser, "sources", nargs="+", metavar="SOURCE")
    add_option(parser, "output", required=True, metavar="STORE")
    text = parser.add_argument_group("text")
    add_reading_arguments(text, document="file")
    add_option(text, "on_bad_record", choices=("refuse", "skip"))
    add_option(text, "held_out", type=float, metavar="SHARE")
    add_option(text, "validation", nargs="+", metavar="SOURCE")
    mixture = parser.add_argument_group("mixture").add_mutually_exclusive_group()
    add_option(mixture, "rates", type=_parse_rates, metavar="R,R,...")
    add_option(mixture, "temperature", type=float, metavar="S")
    vocabulary = parser.add_argument_group(
        "vocabulary", "a finished one (--vocabulary), or one that is trained on the sources"
    )
    add_option(vocabulary, "vocabulary", metavar="PATH")
    add_option(vocabulary, "vocab_size", type=int, metavar="N")
    add_option(
        vocabulary,
        "layout",
        choices=dict.fromkeys(name for names in layouts.LAYOUTS.values() for name in names),
    )
    add_option(vocabulary, "algorithm", choices=tuple(layouts.LAYOUTS))
    add_option(vocabulary, "lowercase", action="store_true", default=None)
    add_option(vocabulary, "character_coverage", type=float, metavar="SHARE")
    add_option(vocabulary, "byte_fallback", action="store_true", default=None)
    add_option(vocabulary, "split_digits", action="store_true", default=None)
    add_option(vocabulary, "sample_size", type=int, metavar="BYTES")
    add_option(parser, "workers", type=int, metavar="N")
    add_option(parser, "overwrite", action="store_true")
    beam = parser.add_argument_group(
        "Apache Beam, for more than one machine", f"needs {how_to_install('beam')}"
    )
    add_option(beam, "runner", metavar="NAME")
    add_option(beam, "runner_option", action="append", default=[], metavar="KEY[=VALUE]")
    add_option(beam, "scratch", metavar="FOLDER")


def add_option(group: argparse._ActionsContainer, name: str, **options: Any) -> None:
    """Add an argument with its help to a group."""
    flag = name if name == "sources" else "--" + name.replace("_", "-")
    default = options.get("default") or "what the run reads"
    group.add_argument(flag, help=HELP[name].replace("{default}", default), **options)


def add_reading_arguments(
    group: argparse._ActionsContainer, *, document: str | None = None, formats: Sequence[str] = ()
) -> None:
    """Add the arguments by which files of text are read.

    Args:
      group: the group.
      document: default of --document.
      formats: further values of --as.
    """
    add_option(group, "document", choices=DOCUMENT_KINDS, default=document)
    own = dict.fromkeys(name for kind in DOCUMENT_KINDS for name in list_formats(kind))
    add_option(group, "as", choices=tuple(own | dict.fromkeys(formats)), dest="file_format")
    add_option(group, "field", metavar="NAME[,NAME...]")


def run(args: argparse.Namespace) -> int:
    """Write the store and print a summary; return 0."""
    from data.prepare.summary import format_summary
    from pretrain.api.preparing import prepare

    prepared = prepare(
        args.sources,
        args.output,
        workers=args.workers,
        overwrite=args.overwrite,
        beam_runner=_make_beam_runner(args),
        **{name: getattr(args, name) for name in OPTIONS},
    )
    print("\n".join(format_summary(prepared)))
    return 0


def _make_beam_runner(args: argparse.Namespace) -> BeamRunner | None:
    """Return the Beam runner that --runner names, or None for processes of this machine.

    Raises:
      ValueError: if Beam or the runner is not available, or options contradict each other.
    """
    if args.runner is None:
        for name in ("runner_option", "scratch"):
            if getattr(args, name):
                raise ValueError(
                    f"--{name.replace('_', '-')} needs --runner, an Apache Beam runner"
                )
        return None
    if args.workers is not None:
        raise ValueError(
            "--workers sets the processes of this machine; with --runner use --runner-option"
        )
    if importlib.util.find_spec("apache_beam") is None:
        raise ValueError(f"--runner needs Apache Beam: {how_to_install('beam')}")
    # Failures are reported at the end; for remote jobs Beam also logs their progress.
    logging.basicConfig(format="%(message)s", level=logging.CRITICAL)
    logging.getLogger("apache_beam.runners").setLevel(
        logging.INFO if args.scratch else logging.CRITICAL
    )
    from data.prepare.beam_runner import BeamRunner

    runner = BeamRunner(args.runner, tuple(args.runner_option), args.scratch)
    runner.check_runner()
    return runner


def _parse_rates(text: str) -> tuple[float, ...]:
    """Return the numbers of a comma-separated list."""
    return tuple(float(rate) for rate in text.split(","))
