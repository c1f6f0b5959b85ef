"""Resolve the sources of the command line to files, cut them into chunks, and read the chunks.

SOURCE                        documents
builtin                       see data/corpus/builtin.py
FILE.txt[.gz]                 `--document file` (default): the whole file; `block`: blocks between
                              blank lines; `record`: lines
FILE.jsonl[.gz]               one a line: a JSON object with the text in `--field`
FILE.tsv[.gz]                 with `--document pair` (which .jsonl files have too): a source and its
                              target in each line
FOLDER, "GLOB*"               all such files below the folder, or that match, ordered by path
tfds:NAME[/CONFIG][:SPLIT]    the examples of a TensorFlow dataset; SPLIT is `train` or a slice:
                              train[:10%]
gs://...                      any of these files and folders in a bucket

A source is resolved without reading its files. The chunks let processes share the work; the
documents and their order do not depend on where a source is cut.
"""

import dataclasses
import glob
import hashlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from data.corpus import builtin, readers
from data.corpus.buckets import check_bucket
from data.corpus.paths import TFDS_NAME, as_path, is_remote

TEXT_SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
PAIR_SUFFIXES = (".tsv", ".jsonl", ".tsv.gz", ".jsonl.gz")
DOCUMENT_KINDS = ("file", "block", "record", "pair")


@dataclasses.dataclass(frozen=True)
class InputChunk:
    """A range of a source that one process reads: bytes of a file, or examples of a TFDS split.

    Attributes:
      file_format: a key of `FORMAT_READERS` in data/corpus/readers.py, or "tfds:SPLIT".
      path: the file, or the folder of the TensorFlow dataset.
      start: first byte or example. A document belongs to the chunk in which it begins.
      stop: byte or example after the last one; None: the end of the file.
      size: bytes, the chunk's weight in the progress.
      field: name of the field with the text, or two names, separated by a comma, for pairs.
      has_pairs: whether each document is a pair.
    """

    file_format: str
    path: str
    start: int
    stop: int | None
    size: int
    field: str = "text"
    has_pairs: bool = False


@dataclasses.dataclass(frozen=True)
class ResolvedSource:
    """A source and its files.

    Attributes:
      name: SOURCE of the command line.
      files: (path, bytes, modification time in ns) of each file, in order.
      document: value of --document.
      field: value of --field.
      ignored: paths of the files of other kinds in the folder.
    """

    name: str
    files: tuple[tuple[str, int, int], ...]
    document: str
    field: str
    ignored: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of bytes of all files."""
        return sum(size for _, size, _ in self.files)

    def identify_source(self) -> dict[str, Any]:
        """Return a digest of the files' names, sizes and times, which shows if they changed."""
        if self.name == "builtin":
            return {"name": self.name, "described": builtin.identify_corpus()}
        digest = hashlib.sha256(json.dumps(self.files).encode()).hexdigest()[:32]
        return {"name": self.name, "files": len(self.files), "bytes": self.size, "digest": digest}


def resolve_source(name: str, document: str = "file", field: str = "text") -> ResolvedSource:
    """Resolve a SOURCE of the command line to its files.

    Args:
      name: the source.
      document: how a file is divided into documents, a value of --document.
      field: name of the field with the text, or two names, separated by a comma, for pairs.

    Raises:
      FileNotFoundError: if there are no such files.
      ValueError: if the source or an option is not valid.
    """
    if document not in DOCUMENT_KINDS:
        raise ValueError(f"--document {document}: one of {', '.join(DOCUMENT_KINDS)}")
    if name == "builtin" and document == "pair":
        raise ValueError(
            "builtin has no pairs; "
            "--document pair needs .tsv or .jsonl files, or a dataset with two texts"
        )
    if name == "builtin":
        return ResolvedSource(name, (), document, "text")
    if name.startswith("tfds:"):
        if not (match := TFDS_NAME.fullmatch(name)):
            raise ValueError(
                f"{name}: a TensorFlow dataset is named tfds:NAME[/CONFIG][:VERSION][:SPLIT]"
            )
        return _resolve_tfds(name, match["name"], match["split"] or "train", document, field)
    suffixes = PAIR_SUFFIXES if document == "pair" else TEXT_SUFFIXES
    paths, ignored = _list_files(name, suffixes)
    if not paths:
        others = (
            f"; it has {len(ignored)} other files ({', '.join(ignored[:3])}, ...)"
            if ignored
            else ""
        )
        raise FileNotFoundError(f"{name}: no {', '.join(suffixes)} file there{others}")
    stats = [(str(path), path.stat()) for path in paths]
    files = tuple(
        (path, int(_get_stat_size(stat)), int(_get_stat_mtime(stat))) for path, stat in stats
    )
    return ResolvedSource(name, files, document, field, ignored)


def split_source(
    source: ResolvedSource, chunk_bytes: int, scratch: pathlib.Path
) -> Iterator[InputChunk]:
    """Yield the chunks of a source in order.

    Args:
      source: the source.
      chunk_bytes: bytes of a chunk; gzipped files and files that are one document are not cut.
      scratch: folder with the built-in corpus.
    """
    pairs = source.document == "pair"
    if source.name == "builtin":
        path = scratch / "builtin.jsonl"
        yield from _cut_chunk(
            InputChunk("jsonl", str(path), 0, None, get_file_size(path)),
            get_file_size(path),
            chunk_bytes,
        )
    for path, file_bytes, _ in source.files:
        if source.name.startswith("tfds:"):
            directory, split, start, stop = json.loads(path)
            yield InputChunk(
                f"tfds:{split}", directory, start, stop, file_bytes, source.field, pairs
            )
            continue
        is_jsonl = ".jsonl" in path[-len(".jsonl.gz") :]
        if pairs:
            file_format = "pair_jsonl" if is_jsonl else "pair_tsv"
        else:
            file_format = "jsonl" if is_jsonl else source.document
        chunk = InputChunk(file_format, path, 0, None, file_bytes, source.field, pairs)
        if path.endswith(".gz") or file_format == "file":
            yield chunk
        else:
            yield from _cut_chunk(chunk, file_bytes, chunk_bytes)


def read_chunk(chunk: InputChunk) -> Iterator[readers.RawDocument]:
    """Return the documents of a chunk; see data/corpus/readers.py for errors and repairs."""
    if chunk.file_format.startswith("tfds:"):
        from data.corpus import tfds_source

        assert chunk.stop is not None  # only files are read to an unknown end
        split = chunk.file_format.removeprefix("tfds:")
        return tfds_source.read_examples(
            chunk.path,
            split,
            chunk.start,
            chunk.stop,
            split_field_names(chunk.field, chunk.has_pairs),
        )
    return readers.read_file(chunk.path, chunk.file_format, chunk.start, chunk.stop, chunk.field)


def split_field_names(field: str, pairs: bool) -> list[str]:
    """Return the names of a record's fields: one, or two for pairs."""
    return field.split(",") if pairs else [field]


def get_file_size(path: pathlib.Path) -> int:
    """Return the number of bytes of a local or remote file."""
    return int(_get_stat_size(path.stat()))


def _cut_chunk(piece: InputChunk, file_bytes: int, size: int) -> Iterator[InputChunk]:
    """Cut a chunk that is a whole file into chunks of `size` bytes."""
    for start in range(0, max(file_bytes, 1), size):
        stop = min(start + size, file_bytes)
        yield dataclasses.replace(piece, start=start, stop=stop, size=stop - start)


def _resolve_tfds(name: str, dataset: str, split: str, document: str, field: str) -> ResolvedSource:
    from data.corpus import tfds_source  # imports TensorFlow

    pairs = document == "pair"
    shards = tfds_source.list_shards(dataset, split, split_field_names(field, pairs))
    files = tuple(
        (json.dumps([folder, stored_split, start, stop]), size, 0)
        for folder, stored_split, start, stop, size in shards
    )
    return ResolvedSource(name, files, "pair" if pairs else "record", field)


def _list_files(name: str, suffixes: tuple[str, ...]) -> tuple[list[pathlib.Path], tuple[str, ...]]:
    """Return the files of a file name, folder or pattern, in order, and the files ignored there."""
    check_bucket(name)
    path = as_path(name)
    if glob.has_magic(name) and not path.exists():
        matches = sorted(_glob_files(name), key=str)
        files = [match for match in matches if str(match).endswith(suffixes)]
        return files, tuple(str(match) for match in matches if match not in files)
    if not path.exists():
        raise FileNotFoundError(f"{name}: no such file or folder")
    if path.is_dir():
        entries = sorted(_walk_files(path), key=str)
        files = [file for file in entries if file.name.endswith(suffixes)]
        return files, tuple(str(file) for file in entries if not file.name.endswith(suffixes))
    if not path.name.endswith(suffixes):
        raise ValueError(
            f"{name}: a source ends in {', '.join(suffixes)}, or is a folder, builtin or tfds:NAME"
        )
    return [path], ()


def _glob_files(pattern: str) -> Iterator[pathlib.Path]:
    """Yield the files that match a pattern and are not hidden.

    `**` does not follow links, which may form circles.
    """
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    folder = as_path("/".join(parts[:first]) or ("/" if first else "."))
    for match in folder.glob("/".join(parts[first:])):
        if not match.is_dir() and not any(
            part.startswith(".") for part in match.relative_to(folder).parts
        ):
            yield match


def _walk_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield all files below a folder that are not hidden; links to folders are not followed."""
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            yield path
        elif is_remote(path) or not path.is_symlink():
            yield from _walk_files(path)


def _get_stat_size(stat: Any) -> int:
    """Return the bytes in a stat result of os or epath."""
    return stat.st_size if hasattr(stat, "st_size") else stat.length


def _get_stat_mtime(stat: Any) -> int:
    """Return the modification time in a stat result of os or epath."""
    return stat.st_mtime_ns if hasattr(stat, "st_mtime_ns") else int(stat.mtime)
