"""The formats of files by the kind of their documents, and the reader of each."""

from data.corpus import readers
from data.corpus.byte_files import PACKED
from data.corpus.paths import strip_query
from data.corpus.table_files import ARCHIVES

DOCUMENT_KINDS = ("file", "block", "record", "pair", "fields")
PAIR_READER = "pair_"  # begins the keys of `FORMAT_READERS` for pairs
FIELDS_READER = "fields_"  # begins those for articles of several fields
UNCUT = ("csv", "arrow", "fastq", *ARCHIVES)  # ends of the names of readers that begin at byte 0
# {another end of a file's name: its format}
SYNONYMS = dict.fromkeys(("fa", "faa", "fna", "ffn", "fas"), "fasta") | {
    "fq": "fastq",
    "smiles": "smi",
}
PREFIXES = {"pair": PAIR_READER, "fields": FIELDS_READER}


def list_formats(document: str) -> tuple[str, ...]:
    """Return the formats of files that have documents of a kind, as `FORMAT_READERS` has them."""
    known = (*readers.FORMAT_READERS, *readers.TABLE_READERS)
    if prefix := PREFIXES.get(document):
        return tuple(key.removeprefix(prefix) for key in known if key.startswith(prefix))
    # The readers of txt files have the names of the kinds.
    others = (
        key
        for key in known
        if not key.startswith(tuple(PREFIXES.values())) and key not in DOCUMENT_KINDS
    )
    return ("txt", *others)


def list_suffixes(document: str) -> tuple[str, ...]:
    """Return the ends of the names of such files, packed or not."""
    formats = list_formats(document)
    names = (*formats, *(name for name, known in SYNONYMS.items() if known in formats))
    return tuple(f".{name}{packed}" for packed in ("", *PACKED) for name in names)


def choose_reader(path: str, document: str, file_format: str | None) -> str:
    """Return the key of `FORMAT_READERS` or `TABLE_READERS` for a file.

    file_format: its format; None: the one that the end of its name says.
    """
    name = file_format or strip_packing(path).rpartition(".")[2]
    name = SYNONYMS.get(name, name)
    if prefix := PREFIXES.get(document):
        return prefix + name
    return document if name == "txt" else name


def strip_packing(path: str) -> str:
    """Return a path without the end that says how the file is packed."""
    path = strip_query(path)
    return next((path.removesuffix(end) for end in PACKED if path.endswith(end)), path)


def check_format(file_format: str, document: str) -> None:
    """Raise ValueError unless files of a format have documents of a kind."""
    if file_format not in (formats := list_formats(document)):
        raise ValueError(
            f"--as {file_format}: with --document {document} a file is {' or '.join(formats)}"
        )
