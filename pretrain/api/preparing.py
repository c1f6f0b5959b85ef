"""Turn text into a token store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from data.corpus.formats import DOCUMENT_KINDS, list_formats
from data.corpus.paths import check_local
from data.prepare.request import DEFAULT_FIELDS, LAYOUTS, PrepareRequest
from data.vocabulary import layouts
from pretrain.api.cleaning_options import CleaningOptions, read_cleaning
from pretrain.settings.arguments import format_optional, format_path, list_optional, list_paths
from pretrain.settings.verb_options import Group, format_flag, option, takes

if TYPE_CHECKING:
    from data.prepare.build import PreparedStore
    from data.prepare.dry_run import Estimate

# Options of a vocabulary that is trained, not allowed with a finished one.
TRAINING = (
    *("vocab_size", "layout", "algorithm", "lowercase", "character_coverage", "byte_fallback"),
    *("split_digits", "sample_size"),
)
SWITCHES = ("lowercase", "byte_fallback", "split_digits")


TEXT = Group("text")
MIXTURE = Group("mixture", excludes=True)
VOCABULARY = Group(
    "vocabulary", "a finished one (--vocabulary), or one that is trained on the sources"
)


def document_option(default: str | None, group: Group) -> Any:
    """Return the option of what a document is; None: what the run reads."""
    return option(
        "what is a document in .txt files: the file, a block between blank lines, or a "
        "line (record); pair: each line of a .tsv file, JSON record or TFDS example is a source "
        "and its target; fields: each JSON record is an article of several fields (default: "
        f"{default or 'what the run reads'})",
        default=default,
        group=group,
        choices=DOCUMENT_KINDS,
    )


def format_option(group: Group, formats: Sequence[str] = ()) -> Any:
    """Return the option of the format of files: of sources, and these formats."""
    own = dict.fromkeys(name for kind in DOCUMENT_KINDS for name in list_formats(kind))
    return option(
        "format of all files, whatever their names; tsv is for pairs, txt for other documents; a "
        "name that ends in .gz or .zst is unpacked (default: the end of a name decides)",
        "--as",
        default=None,
        group=group,
        choices=tuple(own | dict.fromkeys(formats)),
    )


def field_option(group: Group) -> Any:
    """Return the option of the fields that hold the text."""
    return option(
        "field of records that holds the text, where a.b is field b of field a, or two fields for "
        "pairs, or all fields of articles in order (default: text; for pairs source,target; for "
        "articles domain,date,authors,headline,body)",
        default=None,
        group=group,
        metavar="NAME[,NAME...]",
    )


def parse_rates(text: str) -> tuple[float, ...]:
    """Return the numbers of a comma-separated list."""
    return tuple(float(rate) for rate in text.split(","))


class PrepareOptions(CleaningOptions):
    """The options of `prepare`; of those without a default, the default follows from others."""

    sources: list[str] = option(
        "builtin (English text from Python's own library, needs no download), a .txt or "
        '.jsonl file (also .gz), a folder or "pattern" of such files, '
        "tfds:NAME[/CONFIG][:SPLIT], hf://datasets/USER/NAME[/CONFIG][:SPLIT][@REVISION], or any "
        "of the file forms in a bucket (gs://..., s3://...) or on a server (https://...); several "
        "sources are a mixture",
        "sources",
        kw_only=False,
        converter=list_paths,
        nargs="+",
        metavar="SOURCE",
    )
    output: str = option(
        "folder for the store, on this machine",
        kw_only=False,
        converter=format_path,
        metavar="STORE",
    )
    document: str = document_option("file", TEXT)
    file_format: str | None = format_option(TEXT)
    field: str | None = field_option(TEXT)
    on_bad_record: str | None = option(
        "what to do with a line of a .jsonl or .tsv file that is no record: stop with "
        "an error that names it, or skip and count it (default: refuse)",
        default=None,
        group=TEXT,
        choices=("refuse", "skip"),
    )
    held_out: float | None = option(
        "share of the documents in the held-out split, chosen by hash "
        "(default: 0.01; with --validation 0)",
        default=None,
        group=TEXT,
        metavar="SHARE",
    )
    held_out_by: str | None = option(
        "field of the records whose values are held out as a whole, such as the site of a page; id "
        "is the first word of the header of a FASTA record (default: the text of a document "
        "decides)",
        default=None,
        group=TEXT,
        metavar="FIELD",
    )
    clusters: str | None = option(
        "file that makes families of these values: the name of a cluster and of a member on each "
        "line, with a tab between them, as MMseqs2 writes it",
        default=None,
        group=TEXT,
        converter=format_optional,
        metavar="FILE",
    )
    on_unknown: str | None = option(
        "what to do with a character without an id, such as a letter outside an alphabet: stop "
        "with an error that names it, or count it as unknown (default: count)",
        default=None,
        group=TEXT,
        choices=("refuse", "count"),
    )
    soft_mask: str | None = option(
        "what to do with lower case in FASTA and FASTQ, which marks repeats: lose it to capitals, "
        "or keep it, for an alphabet that has both such as soft_nucleotides (default: lose)",
        default=None,
        group=TEXT,
        choices=("lose", "keep"),
    )
    validation: list[str] | None = option(
        "sources whose documents are the held-out split; the other sources are then for "
        "training alone",
        default=None,
        group=TEXT,
        converter=list_optional,
        nargs="+",
        metavar="SOURCE",
    )
    rates: Sequence[float] | None = option(
        "relative sampling rate of each source",
        default=None,
        group=MIXTURE,
        type=parse_rates,
        metavar="R,R,...",
    )
    temperature: float | None = option(
        "sample a source in proportion to (its tokens)^S: 1 is in proportion to the "
        "tokens (default), 0.7 raises the share of small sources, 0 is uniform",
        default=None,
        group=MIXTURE,
        metavar="S",
    )
    vocabulary: str | None = option(
        "vocab.txt, vocab.json (with merges.txt), *.model, tokenizer.json, a folder of "
        "them, hf://USER/NAME[@REVISION], a repository of the Hugging Face Hub, or "
        f"alphabet:NAME, a token for each letter ({', '.join(layouts.ALPHABETS)}), for 2 to 8 "
        "nucleotides (2mers to 8mers, overlapping_2mers ...) or for each atom and bond (smiles)",
        default=None,
        group=VOCABULARY,
        converter=format_optional,
        metavar="PATH",
    )
    vocab_size: int | None = option(
        "number of ids, special tokens and sentinels included (default: 32768)",
        default=None,
        group=VOCABULARY,
        metavar="N",
    )
    layout: str | None = option(
        layouts.LAYOUT_HELP,
        default=None,
        group=VOCABULARY,
        choices=dict.fromkeys(name for names in layouts.LAYOUTS.values() for name in names),
    )
    algorithm: str | None = option(
        "unigram or bpe of SentencePiece, byte-level BPE, or words: what blanks "
        "separate, the most frequent first (default: unigram)",
        default=None,
        group=VOCABULARY,
        choices=tuple(layouts.LAYOUTS),
    )
    lowercase: bool | None = option(
        "fold case (nmt_nfkc_cf instead of nmt_nfkc)", default=None, group=VOCABULARY
    )
    character_coverage: float | None = option(
        "share of the characters of the sample that have an id, 0.98 to 1; other characters are "
        "unknown (default: all that occur 3 times, as long as they take at most half of the ids, "
        "and printable ASCII)",
        default=None,
        group=VOCABULARY,
        metavar="SHARE",
    )
    byte_fallback: bool | None = option(
        "write other characters by 256 ids for bytes, so that none is unknown",
        default=None,
        group=VOCABULARY,
    )
    split_digits: bool | None = option(
        "make each digit a token of its own", default=None, group=VOCABULARY
    )
    sample_size: int | None = option(
        "maximal bytes of text to train on, sampled evenly from all of it (default: 10000000)",
        default=None,
        group=VOCABULARY,
        metavar="BYTES",
    )
    workers: int | None = option(
        "number of processes, at most 64 a core; the result does not depend on it (default: "
        "one per core)",
        default=None,
        metavar="N",
    )
    overwrite: bool = option("replace an existing store", default=False)
    follow: bool = option(
        "publish STORE-part-1, STORE-part-2, ... while the rest is read: stores of the first 64 "
        "MiB of text, 256 MiB, 1 GiB, ..., on which training can start",
        default=False,
    )
    dry_run: bool = option(
        "read a sample, print the tokens, the time and the disk that the whole will take, and how "
        "the vocabulary serves each source, and write nothing",
        default=False,
    )
    beam_runner: Callable[..., Any] | None = option(
        "a `data.prepare.beam_runner.BeamRunner`, for more than one machine",
        default=None,
        only_python=True,
    )


@takes(PrepareOptions)
def prepare(options: PrepareOptions) -> PreparedStore:
    """Write a token store, unless the same one exists, and return it.

    A script that prepares more than 2 MB of text needs `if __name__ == "__main__":`, because each
    worker imports it; or `workers=1`.

    Raises:
      ValueError: for bad options, sources or texts.
      FileExistsError: the folder holds another store.
    """
    from data.prepare.build import prepare_store
    from pretrain.host.console import make_console

    check_local(options.output, "the store")
    if options.dry_run:
        raise ValueError("dry_run=True writes no store; `estimate` returns what it finds")
    request = make_request(options)
    console = make_console(stderr=True)
    return prepare_store(
        request,
        options.output,
        workers=options.workers,
        overwrite=options.overwrite,
        follow=options.follow,
        report_progress=lambda line: console.print(line, soft_wrap=True),
        console=console,
        beam_runner=options.beam_runner,
    )


@takes(PrepareOptions)
def estimate(options: PrepareOptions) -> Estimate:
    """Return the tokens, the time and the disk that `prepare` will take, from a sample.

    Raises:
      ValueError: for bad options, sources or texts.
    """
    from data.prepare.dry_run import estimate_store

    if options.beam_runner:
        raise ValueError("--dry-run reads a sample on this machine; leave --runner out")
    return estimate_store(make_request(options), options.workers)


def make_request(options: PrepareOptions) -> PrepareRequest:
    """Return the request of `prepare`: what is not given follows from the rest.

    Raises:
      ValueError: options contradict each other.
    """
    own = ("sources", "cleaning")
    names = [field.name for field in dataclasses.fields(PrepareRequest) if field.name not in own]
    values = {name: vars(options)[name] for name in names}
    given = {name: value for name, value in values.items() if value is not None}
    if given.get("on_bad_record") == "refuse":
        del given["on_bad_record"]  # the default, which manifests do not record
    if given.get("on_unknown") == "count":
        del given["on_unknown"]
    if given.get("soft_mask") == "lose":
        del given["soft_mask"]
    for name in SWITCHES:
        if given.get(name) is False:
            del given[name]  # the default, which a finished vocabulary does not contradict
    if given.get("vocabulary") and (training := [name for name in TRAINING if name in given]):
        flags = ", ".join(map(format_flag, training))
        raise ValueError(f"--vocabulary names a finished vocabulary; {flags} would train one")
    if given.get("layout") in LAYOUTS["byte_bpe"]:
        given.setdefault("algorithm", "byte_bpe")
    if given.get("validation"):
        given["validation"] = tuple(given["validation"])
        given.setdefault("held_out", 0.0)
    given.setdefault("field", DEFAULT_FIELDS.get(options.document, "text"))
    cleaning = read_cleaning(options)
    request = PrepareRequest(sources=tuple(options.sources), cleaning=cleaning, **given)
    if request.vocabulary is None:
        return request
    request.check()  # before a download
    return dataclasses.replace(request, vocabulary=_find_vocabulary(request.vocabulary))


def _find_vocabulary(place: str) -> str:
    """Return the path of a vocabulary; download it from an address hf://..."""
    if not place.startswith("hf://"):
        return place
    from pretrain.convert.hub.model_folder import find_folder

    return find_folder(place, weights=False).path
