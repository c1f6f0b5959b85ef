"""Resolve the sources of the command line to files, cut them into chunks, and read the chunks.

SOURCE                        documents
builtin                       see data/corpus/builtin.py
FILE.txt[.gz]                 `--document file` (default): the whole file; `block`: blocks between
                              blank lines; `record`: lines
FILE.jsonl[.gz]               one a line: a JSON object with the text in `--field`
FILE.csv[.gz]                 one a row, with the text in the column `--field`; the first line names
                              the columns
FILE.wet[.gz], FILE.warc[.gz] one a text of a web archive; its URI is the field `uri`
FILE.parquet, FILE.arrow      one a row, with the text in the column or path `--field`
FILE.tsv[.gz]                 with `--document pair` (which .jsonl files have too): a source and its
                              target in each line
FILE.jsonl[.gz]               with `--document fields`: an article a line, with the fields of
                              `--field`
any file with `--as FORMAT`   as the files of that format: txt, jsonl, ...; FILE.gz is unpacked
FILE.zst                      as FILE.gz
FOLDER, "GLOB*"               all such files below the folder, or that match, ordered by path
tfds:NAME[/CONFIG][:SPLIT]    the examples of a TensorFlow dataset; SPLIT is `train` or a slice:
                              train[:10%]
gs://..., s3://...            any of these files and folders in a bucket
https://...                   any of these files
hf://datasets/NAME[/CONFIG][:SPLIT][@REVISION]
                              a dataset of the Hugging Face Hub, a file at a time

A source is resolved without reading its files. The chunks let processes share the work; the
documents and their order do not depend on where a source is cut.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from data.corpus import builtin, readers
from data.corpus.file_lists import get_file_size, get_stat_mtime, get_stat_size, list_files
from data.corpus.formats import (
    DOCUMENT_KINDS,
    FIELDS_READER,
    UNCUT,
    check_format,
    choose_reader,
    list_formats,
    list_suffixes,
    strip_packing,
)
from data.corpus.other_formats import explain_other_format
from data.corpus.paths import DATASETS, TFDS_NAME, URLS, strip_query
from data.members import call_later

find_urls = call_later("data.corpus.urls:find_files")
find_hub_files = call_later("data.corpus.hub.shards:find_files")
download_hub_file = call_later("data.corpus.hub.shards:download_file")


@dataclasses.dataclass(frozen=True)
class InputChunk:
    """A range of a source that one process reads: bytes of a file, or examples of a TFDS split.

    Attributes:
      file_format: a key of `FORMAT_READERS` or `TABLE_READERS` (data/corpus/readers.py), or
        "tfds:SPLIT".
      path: the file, or the folder of the TensorFlow dataset.
      start: first byte or example. A document belongs to the chunk in which it begins.
      stop: byte or example after the last one; None: the end of the file.
      size: bytes, the chunk's weight in the progress.
      field: name of the field with the text, or the names, separated by commas, of the two fields
        of a pair or of the fields of an article.
      has_pairs: whether each document is a pair.
      skips_bad: whether a line of a file that is no record is an empty document, not an error.
      refuses_unknown: whether a character without an id is an error.
      takes_text: whether formats of others that are text, such as FASTA, are read as they are.
      downloads: the folder in which a file of the Hub is while it is read; "": where temporary
        files are.
      more_fields: names of further fields of records, whose values come with the documents.
      keeps_case: whether sequences of letters keep their lower case, a soft mask.
    """

    file_format: str
    path: str
    start: int
    stop: int | None
    size: int
    field: str = "text"
    has_pairs: bool = False
    skips_bad: bool = False
    refuses_unknown: bool = False
    takes_text: bool = False
    downloads: str = ""
    more_fields: Sequence[str] = ()
    keeps_case: bool = False

    @property
    def counted_from(self) -> int:
        """Byte from which the lines of its documents are counted; rows count from the beginning."""
        has_rows = self.file_format.startswith("tfds:")
        return 0 if has_rows or self.file_format in readers.TABLE_READERS else self.start

    @property
    def article_fields(self) -> tuple[str, ...]:
        """Names of the fields of documents that are articles; () for other documents."""
        is_article = self.file_format.startswith(FIELDS_READER)
        return tuple(self.field.split(",")) if is_article else ()


@dataclasses.dataclass(frozen=True)
class ResolvedSource:
    """A source and its files.

    Attributes:
      name: SOURCE of the command line.
      files: (path, bytes, modification time in ns) of each file, in order.
      file_format: value of --as; None: the end of a file's name decides.
      commit: of a dataset of the Hub.
      is_cut: whether a part of a file can be read.
      more_fields: names of further fields of records that are read with the documents.
      refuses_unknown: whether a character without an id is an error.
      keeps_case: whether sequences of letters keep their lower case.
    """

    name: str
    files: tuple[tuple[str, int, int], ...]
    document: str
    field: str
    file_format: str | None = None
    ignored: tuple[str, ...] = ()
    skips_bad: bool = False
    commit: str = ""
    is_cut: bool = True
    more_fields: tuple[str, ...] = ()
    refuses_unknown: bool = False
    keeps_case: bool = False

    @property
    def size(self) -> int:
        """Number of bytes of all files."""
        return sum(size for _, size, _ in self.files)

    def identify_source(self) -> dict[str, Any]:
        """Return a digest of the files' names, sizes and times, which shows if they changed."""
        if self.name == "builtin":
            return {"name": self.name, "described": builtin.identify_corpus()}
        digest = hashlib.sha256(json.dumps(self.files).encode()).hexdigest()[:32]
        found = {"name": self.name, "files": len(self.files), "bytes": self.size, "digest": digest}
        return found | ({"commit": self.commit} if self.commit else {})


def resolve_source(
    name: str, document: str = "file", field: str = "text", file_format: str | None = None
) -> ResolvedSource:
    """Resolve a SOURCE of the command line to its files.

    Args:
      field: name of the field with the text, or the names, separated by commas, of the two fields
        of a pair or of the fields of an article.
      file_format: the format of all files, whatever their names; None: their names' ends decide.

    Raises:
      FileNotFoundError: if there are no such files.
      ValueError: if the source or an option is not valid.
    """
    if document not in DOCUMENT_KINDS:
        raise ValueError(f"--document {document}: one of {', '.join(DOCUMENT_KINDS)}")
    if file_format is not None:
        check_format(file_format, document)
        if name == "builtin" or name.startswith("tfds:"):
            raise ValueError(f"--as {file_format} is for files; {name} has a format of its own")
    if document == "fields" and (name == "builtin" or name.startswith("tfds:")):
        raise ValueError(
            f"{name} has no articles; --document fields needs .jsonl files, an article a line"
        )
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
    formats = list_formats(document)
    suffixes = list_suffixes(document)
    if name.startswith(DATASETS):
        found = find_hub_files(name, suffixes)
        return ResolvedSource(name, found.files, document, field, file_format, commit=found.commit)
    remedy = f"--as {formats[0]} reads any file as .{formats[0]} (--as: {', '.join(formats)})"
    wanted = None if file_format else suffixes
    found = find_urls(name, wanted, remedy) if name.startswith(URLS) else None
    files, ignored, *_ = found or _list_local(name, wanted, remedy)
    if not files:
        hint = explain_other_format(ignored[0]) if ignored else ""
        others = (
            f"; it has {len(ignored)} other files ({', '.join(ignored[:3])}, ...); "
            f"{f'the first: {hint}' if hint else remedy}"
            if ignored
            else ""
        )
        kinds = "" if file_format else " ." + ", .".join(formats)
        raise FileNotFoundError(f"{name}: no{kinds} file there{others}")
    is_cut = found is None or found.has_ranges
    return ResolvedSource(name, files, document, field, file_format, ignored, is_cut=is_cut)


def _list_local(
    name: str, suffixes: tuple[str, ...] | None, remedy: str
) -> tuple[tuple[tuple[str, int, int], ...], tuple[str, ...]]:
    """Return (path, bytes, time in ns) of each file here or in gs://, and the ignored files."""
    paths, ignored = list_files(name, suffixes, remedy)
    stats = [(str(path), path.stat()) for path in paths]
    files = ((path, int(get_stat_size(stat)), int(get_stat_mtime(stat))) for path, stat in stats)
    return tuple(files), ignored


def split_source(
    source: ResolvedSource,
    chunk_bytes: int,
    scratch: pathlib.Path,
    downloads: pathlib.Path | None = None,
) -> Iterator[InputChunk]:
    """Yield the chunks of a source in order.

    Args:
      chunk_bytes: bytes of a chunk; packed files, files without an index of their rows, files that
        are one document and files of the Hub are not cut.
      scratch: the folder with the built-in corpus.
      downloads: as `InputChunk` has it.
    """
    pairs = source.document == "pair"
    make_chunk = functools.partial(InputChunk, refuses_unknown=source.refuses_unknown)
    if source.name == "builtin":
        path = scratch / "builtin.jsonl"
        yield from _cut_chunk(
            make_chunk("jsonl", str(path), 0, None, get_file_size(path)),
            get_file_size(path),
            chunk_bytes,
        )
    for path, file_bytes, _ in source.files:
        if source.name.startswith("tfds:"):
            directory, split, start, stop = json.loads(path)
            yield make_chunk(
                f"tfds:{split}", directory, start, stop, file_bytes, source.field, pairs
            )
            continue
        file_format = choose_reader(path, source.document, source.file_format)
        chunk = make_chunk(
            file_format,
            path,
            0,
            None,
            file_bytes,
            source.field,
            pairs,
            source.skips_bad,
            takes_text=source.file_format is not None,
            downloads=str(downloads or "") if path.startswith(DATASETS) else "",
            more_fields=source.more_fields,
            keeps_case=source.keeps_case,
        )
        is_whole = strip_packing(path) != strip_query(path) or path.startswith(DATASETS)
        if is_whole or not source.is_cut or file_format.endswith(UNCUT) or file_format == "file":
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
    if chunk.path.startswith(DATASETS):
        return _read_hub_file(chunk)
    return _read_file(chunk, chunk.path)


def _read_hub_file(chunk: InputChunk) -> Iterator[readers.RawDocument]:
    """Download a file, yield its documents, and remove it; errors name the file of the Hub."""
    with download_hub_file(chunk.path, chunk.downloads) as path:
        try:
            yield from _read_file(chunk, str(path))
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), chunk.path)) from error


def _read_file(chunk: InputChunk, path: str) -> Iterator[readers.RawDocument]:
    return readers.read_file(
        path,
        chunk.file_format,
        chunk.start,
        chunk.stop,
        chunk.field,
        chunk.skips_bad,
        chunk.takes_text,
        chunk.more_fields,
        chunk.keeps_case,
    )


def split_field_names(field: str, pairs: bool) -> list[str]:
    """Return the names of a record's fields: one, or two for pairs."""
    return field.split(",") if pairs else [field]


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
