"""The verb `prepare`: text to a token store."""

import importlib.util
import logging

from data.vocabulary import layouts
from pretrain.extras import how_to_install

HELP = {
    "sources": "builtin (English from this Python's own library, needs no download), a .txt or .jsonl file (also .gz), "
    'a folder or "pattern" of such files, tfds:NAME[/CONFIG][:SPLIT], or gs://... of any of the file forms; several '
    "make a mixture",
    "output": "folder for the store, on this machine",
    "document": "what is a document in .txt files: the file (default), a block between blank lines, or a line; or pair: each line of "
    ".tsv files, JSON record or TFDS example is a source and its target",
    "field": "the field of JSON records and TFDS examples that holds the text (default: text); of pairs, both (default: source,target)",
    "held_out": "share of the documents for evaluation, chosen by hash (default: 0.01)",
    "rates": "how often each source is drawn, in any unit",
    "temperature": "draw a source in proportion to (its tokens)^S: 1 (default) as is, 0.7 makes small ones larger, 0 alike",
    "vocabulary": "vocab.txt, vocab.json (with merges.txt), *.model, tokenizer.json, or a folder of them",
    "vocab_size": "ids in all, special ones and sentinels included (default: 32768)",
    "layout": layouts.HELP,
    "algorithm": "of SentencePiece unigram (default) or bpe; or byte_bpe",
    "lowercase": "fold case (nmt_nfkc_cf instead of nmt_nfkc)",
    "sample_size": "train on at most so much text, drawn evenly from all of it (default: 10000000)",
    "workers": "processes here (default: all cores; the result is the same)",
    "overwrite": "replace the store that is there",
    "runner": "Apache Beam's workers do the work of --workers: DirectRunner (on this machine, to try it), DataflowRunner, "
    "FlinkRunner, SparkRunner, ... or the full name of a class; the store is the same",
    "runner_option": "an option of Beam's pipeline, as Beam names it, such as region=us-east5; may be given again",
    "scratch": "folder that the workers and this machine reach, such as gs://BUCKET/scratch; what is put there is removed",
}
TRAINING = (
    "vocab_size",
    "layout",
    "algorithm",
    "lowercase",
    "sample_size",
)  # a finished vocabulary has no use for them


def add_arguments(parser):
    """The command line of `prepare`."""

    def add(group, name, **options):
        flag = name if name == "sources" else "--" + name.replace("_", "-")
        group.add_argument(flag, help=HELP[name], **options)

    add(parser, "sources", nargs="+", metavar="SOURCE")
    add(parser, "output", required=True, metavar="STORE")
    text = parser.add_argument_group("text")
    add(text, "document", choices=("file", "block", "record", "pair"), default="file")
    add(text, "field", metavar="NAME[,NAME]")
    add(text, "held_out", type=float, default=0.01, metavar="SHARE")
    mixture = parser.add_argument_group("mixture").add_mutually_exclusive_group()
    add(mixture, "rates", type=_rates, metavar="R,R,...")
    add(mixture, "temperature", type=float, metavar="S")
    words = parser.add_argument_group("vocabulary", "a released one, or one that is trained here")
    add(words, "vocabulary", metavar="PATH")
    add(words, "vocab_size", type=int, metavar="N")
    add(
        words,
        "layout",
        choices=dict.fromkeys(name for names in layouts.LAYOUTS.values() for name in names),
    )
    add(words, "algorithm", choices=tuple(layouts.LAYOUTS))
    add(words, "lowercase", action="store_true", default=None)
    add(words, "sample_size", type=int, metavar="BYTES")
    add(parser, "workers", type=int, metavar="N")
    add(parser, "overwrite", action="store_true")
    fleet = parser.add_argument_group(
        "more machines than this one", f"needs {how_to_install('beam')}"
    )
    add(fleet, "runner", metavar="NAME")
    add(fleet, "runner_option", action="append", default=[], metavar="KEY[=VALUE]")
    add(fleet, "scratch", metavar="FOLDER")


def run(args):
    """Prepare, and print what was done."""
    from rich.console import Console

    from data.corpus.paths import is_remote
    from data.prepare.build import Request, prepare
    from data.prepare.request import LAYOUTS
    from data.prepare.summary import summary

    if is_remote(args.output):
        raise ValueError(
            f"--output {args.output}: write the store to this machine and copy it to the bucket"
        )
    given = {name: getattr(args, name) for name in TRAINING if getattr(args, name) is not None}
    if args.vocabulary and given:
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise ValueError(
            f"--vocabulary names a finished vocabulary, so {options} cannot be asked for"
        )
    if given.get("layout") in LAYOUTS["byte_bpe"]:
        given.setdefault("algorithm", "byte_bpe")
    if args.temperature is not None:
        given["temperature"] = args.temperature
    request = Request(
        sources=tuple(args.sources),
        vocabulary=args.vocabulary,
        held_out=args.held_out,
        document=args.document,
        field=args.field or ("source,target" if args.document == "pair" else "text"),
        rates=args.rates,
        **given,
    )
    fleet = _fleet(args)
    console = Console(stderr=True)

    def say(line):
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    done = prepare(
        request,
        args.output,
        workers=args.workers,
        overwrite=args.overwrite,
        say=say,
        console=console,
        fleet=fleet,
    )
    print("\n".join(summary(done)))
    return 0


def _fleet(args):
    """The runner that is asked for, which is known to be there; None: processes of this machine."""
    if args.runner is None:
        for name in ("runner_option", "scratch"):
            if getattr(args, name):
                raise ValueError(
                    f"--{name.replace('_', '-')} is for a runner of Apache Beam: --runner names it"
                )
        return None
    if args.workers is not None:
        raise ValueError(
            "--workers are processes of this machine; with --runner ask Beam, by --runner-option"
        )
    if importlib.util.find_spec("apache_beam") is None:
        raise ValueError(f"--runner needs Apache Beam: {how_to_install('beam')}")
    # What fails is told in the end; of jobs elsewhere, Beam tells how they go.
    logging.basicConfig(format="%(message)s", level=logging.CRITICAL)
    logging.getLogger("apache_beam.runners").setLevel(
        logging.INFO if args.scratch else logging.CRITICAL
    )
    from data.prepare.beam_runner import Runner

    runner = Runner(args.runner, tuple(args.runner_option), args.scratch)
    runner.check()
    return runner


def _rates(text):
    return tuple(float(rate) for rate in text.split(","))
