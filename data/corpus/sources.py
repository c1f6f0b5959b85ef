"""Where text comes from: names on the command line become pieces of work, and pieces become documents.

SOURCE                        documents
builtin                       data/corpus/builtin.py
FILE.txt[.gz]                 `--document file` (default): the file; `block`: between blank lines; `record`: a line
FILE.jsonl[.gz]               a line: a JSON object with the text in `--field`
FOLDER, "GLOB*"               all such files below the folder, or that match, in order of their paths
FILE.tsv[.gz]                 with `--document pair`, as JSONL then too: a source and its target in each line
tfds:NAME[/CONFIG][:SPLIT]    the examples of a TensorFlow dataset; SPLIT is `train` or a slice: train[:10%]
gs://...                      any of the file forms in a bucket

`resolve` finds a source's files without reading them, `pieces` cuts them so that processes can share the work, and
`read` gives the documents of a piece. Which documents there are, and their order, does not depend on the cuts.
"""

import dataclasses
import glob
import hashlib
import json
import pathlib
from collections.abc import Iterator

from data.corpus import builtin, readers
from data.corpus.paths import TFDS, as_path, is_remote

SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
PAIR_SUFFIXES = (".tsv", ".jsonl", ".tsv.gz", ".jsonl.gz")
DOCUMENTS = ("file", "block", "record", "pair")


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a source that one process reads: bytes [start, stop) of a file, or examples of a TensorFlow dataset.

    `start` and `stop` may lie within a document: it belongs to the piece in which it begins. form: a key of FORMS.
    size: its weight in the progress, in bytes. pairs: each document is a pair, a line a side (data/corpus/readers.py).
    """

    form: str
    path: str
    start: int
    stop: int | None
    size: int
    field: str = "text"
    pairs: bool = False


@dataclasses.dataclass(frozen=True)
class Found:
    """A source and what was found under its name.

    files: (path, bytes, time of change) in order; ignored: files of other kinds in the folder.
    """

    name: str
    files: tuple[tuple[str, int, int], ...]
    document: str
    field: str
    ignored: tuple[str, ...] = ()
    described: str = ""

    @property
    def size(self) -> int:
        return sum(size for _, size, _ in self.files)

    def identity(self) -> dict:
        """What tells whether the source has changed: names, sizes and times of its files."""
        if self.name == "builtin":
            return {"name": self.name, "described": builtin.identity()}
        digest = hashlib.sha256(json.dumps(self.files).encode()).hexdigest()[:32]
        return {"name": self.name, "files": len(self.files), "bytes": self.size, "digest": digest}


def resolve(name: str, document: str = "file", field: str = "text") -> Found:
    """Find what a SOURCE of the command line stands for. Raises FileNotFoundError or ValueError, naming it."""
    if document not in DOCUMENTS:
        raise ValueError(f"--document {document}: one of {', '.join(DOCUMENTS)}")
    if name == "builtin" and document == "pair":
        raise ValueError(
            "builtin has no pairs; --document pair needs .tsv or .jsonl files, or a dataset with two texts"
        )
    if name == "builtin":
        return Found(name, (), document, "text")
    if name.startswith("tfds:"):
        if not (match := TFDS.fullmatch(name)):
            raise ValueError(
                f"{name}: a TensorFlow dataset is named tfds:NAME[/CONFIG][:VERSION][:SPLIT]"
            )
        return _resolve_tfds(name, match["name"], match["split"] or "train", document, field)
    suffixes = PAIR_SUFFIXES if document == "pair" else SUFFIXES
    paths, ignored = _files(name, suffixes)
    if not paths:
        seen = (
            f"; it has {len(ignored)} other files ({', '.join(ignored[:3])}, ...)"
            if ignored
            else ""
        )
        raise FileNotFoundError(f"{name}: no {', '.join(suffixes)} file there{seen}")
    stats = [(str(path), path.stat()) for path in paths]
    files = tuple((path, int(_length(stat)), int(_changed(stat))) for path, stat in stats)
    return Found(name, files, document, field, ignored)


def pieces(source: Found, size: int, scratch: pathlib.Path) -> Iterator[Piece]:
    """The pieces of a source in order, of about `size` bytes where it can be cut.

    scratch: a folder for the built-in corpus, which is written there, once.
    """
    pairs = source.document == "pair"
    if source.name == "builtin":
        path = scratch / "builtin.jsonl"
        yield from _cut(Piece("jsonl", str(path), 0, None, length(path)), length(path), size)
    for path, whole, _ in source.files:
        if source.name.startswith("tfds:"):
            directory, split, start, stop = json.loads(path)
            yield Piece(f"tfds:{split}", directory, start, stop, whole, source.field, pairs)
            continue
        jsonl = ".jsonl" in path[-len(".jsonl.gz") :]
        form = (
            ("pair_jsonl" if jsonl else "pair_tsv")
            if pairs
            else "jsonl"
            if jsonl
            else source.document
        )
        piece = Piece(form, path, 0, None, whole, source.field, pairs)
        if path.endswith(".gz") or form == "file":
            yield piece
        else:
            yield from _cut(piece, whole, size)


def read(piece: Piece) -> Iterator[readers.Record]:
    """The documents of a piece; see data/corpus/readers.py for what is raised and what is counted."""
    if piece.form.startswith("tfds:"):
        from data.corpus import tfds_source

        assert piece.stop is not None  # only files are read to an end that is not known
        split = piece.form.removeprefix("tfds:")
        return tfds_source.read(
            piece.path, split, piece.start, piece.stop, fields(piece.field, piece.pairs)
        )
    return readers.read_file(piece.path, piece.form, piece.start, piece.stop, piece.field)


def fields(field: str, pairs: bool) -> list[str]:
    """The names of a record's texts: one, or a pair's two."""
    return field.split(",") if pairs else [field]


def length(path) -> int:
    """Bytes of a file, here or in a bucket."""
    return int(_length(path.stat()))


def _cut(piece: Piece, whole: int, size: int) -> Iterator[Piece]:
    for start in range(0, max(whole, 1), size):
        stop = min(start + size, whole)
        yield dataclasses.replace(piece, start=start, stop=stop, size=stop - start)


def _resolve_tfds(name: str, dataset: str, split: str, document: str, field: str) -> Found:
    from data.corpus import tfds_source  # imports TensorFlow

    pairs = document == "pair"
    shards = tfds_source.shards(dataset, split, fields(field, pairs))
    files = tuple(
        (json.dumps([d, base, start, stop]), size, 0) for d, base, start, stop, size in shards
    )
    return Found(name, files, "pair" if pairs else "record", field)


def _files(name: str, suffixes: tuple[str, ...]) -> tuple[list, tuple[str, ...]]:
    """Paths that a file, folder or pattern stands for, in order, and other files that were passed over."""
    path = as_path(name)
    if glob.has_magic(name) and not path.exists():
        matches = sorted(_matches(name), key=str)
        chosen = [match for match in matches if str(match).endswith(suffixes)]
        return chosen, tuple(str(match) for match in matches if match not in chosen)
    if not path.exists():
        raise FileNotFoundError(f"{name}: no such file or folder")
    if path.is_dir():
        below = sorted(_below(path), key=str)
        chosen = [file for file in below if file.name.endswith(suffixes)]
        return chosen, tuple(str(file) for file in below if not file.name.endswith(suffixes))
    if not path.name.endswith(suffixes):
        raise ValueError(
            f"{name}: a source ends in {', '.join(suffixes)}, or is a folder, builtin or tfds:NAME"
        )
    return [path], ()


def _matches(pattern: str) -> Iterator:
    """Files that match and are not hidden; `**` does not follow links, they may lead in circles."""
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    folder = as_path("/".join(parts[:first]) or ("/" if first else "."))
    for match in folder.glob("/".join(parts[first:])):
        if not match.is_dir() and not any(
            part.startswith(".") for part in match.relative_to(folder).parts
        ):
            yield match


def _below(folder) -> Iterator:
    """All files below a folder but hidden ones; links to folders are not followed."""
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            yield path
        elif is_remote(path) or not path.is_symlink():
            yield from _below(path)


def _length(stat) -> int:
    return stat.st_size if hasattr(stat, "st_size") else stat.length


def _changed(stat) -> int:
    return stat.st_mtime_ns if hasattr(stat, "st_mtime_ns") else int(stat.mtime)
