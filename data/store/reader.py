"""The token store: a corpus as memory-mapped ids with the offsets of its documents and sentences.

    STORE/manifest.json            what is in it and where from; written last, so that a store has one or is none
    STORE/vocabulary/              data/vocabulary/load.py
    STORE/{train,heldout}/tokens.bin       T ids of all documents in a row, no special id among them; uint16 or uint32
    STORE/{train,heldout}/documents.bin    int64 [D + 1], offsets of documents into the tokens; the last one is T
    STORE/{train,heldout}/sentences.bin    int64 [S + 1], the same for sentences; each document begins one
    STORE/{train,heldout}/labels.bin       float32 [D], only where documents have labels: data/examples/labelled.py
    STORE/{train,heldout}/tags.bin         float32 [S], only where sentences are words that have tags: data/examples/tagging.py
    STORE/{train,heldout}/answers.jsonl    what documents are compared with, where there is such: data/examples/text2text.py
    STORE/{train,heldout}/spans.bin ...    questions, their answers and their texts: data/examples/qa_store.py
    STORE/checksums/                       crc32c of each 4 KiB of these files: data/store/salvage.py

All numbers are little-endian. D documents, S sentences, T tokens. A store is written by data/prepare/build.py, or, in tests,
by `write_store`, both through data/store/writer.py.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shutil

import numpy as np

from data.corpus.paths import as_path, is_remote
from data.store.atomic import open_scratch_folder
from data.store.writer import (
    FILES,
    LABELS,
    MANIFEST,
    OFFSETS,
    SPLITS,
    VERSION,
    StoreWriter,
    file_checksum,
)
from data.vocabulary.load import Vocabulary, load_vocabulary


@dataclasses.dataclass(frozen=True)
class Source:
    """One source of a mixture. documents: its range (lo, hi) in a split. rate: its share of the rows; all sum to 1."""

    name: str
    documents: tuple[int, int]
    rate: float


@dataclasses.dataclass(frozen=True)
class Split:
    """One part of a store, train or held-out. All arrays are read-only and memory-mapped.

    tokens           uint16 or uint32 [T]
    document_starts  int64 [D + 1]
    sentence_starts  int64 [S + 1]
    sources          of the documents, in order; contiguous
    labels           float32 [D]: the number of a class or a score; None in a store without labels
    tags             float32 [S]: the number of a word's tag; None in a store without tags
    folder           where its files lie, and others beside them: data/examples/qa_store.py, data/examples/text2text.py
    """

    tokens: np.ndarray
    document_starts: np.ndarray
    sentence_starts: np.ndarray
    sources: tuple[Source, ...]
    labels: np.ndarray | None = None
    tags: np.ndarray | None = None
    folder: pathlib.Path | None = None


class Store:
    """A finished token store, opened for reading."""

    def __init__(self, path: pathlib.Path, manifest: dict):
        self.path, self.manifest = path, manifest

    @classmethod
    def open(cls, path) -> "Store":
        """Open the store in the folder `path` after checking its manifest, version and the sizes of its files.

        A remote folder (gs://...) is copied to $XDG_CACHE_HOME/cloze first, once. Raises FileNotFoundError where there
        is no store, ValueError where there is a broken one, or one of another version.
        """
        folder = as_path(path)
        manifest = _read_manifest(folder)
        if is_remote(path):
            folder = _local_copy(folder, manifest)
        for name, entry in manifest["files"].items():
            size = (folder / name).stat().st_size if (folder / name).exists() else None
            if size != entry["bytes"]:
                seen = "is missing" if size is None else f"has {size:,} bytes"
                raise ValueError(
                    f"{folder / name} {seen}, the manifest says {entry['bytes']:,}: prepare it again (--overwrite)"
                )
        return cls(folder, manifest)

    @property
    def fingerprint(self) -> str:
        """Hash over ids, offsets, parts of the mixture and vocabulary: the same wherever the store and its text lie."""
        files = {
            name: file for name, file in self.manifest["files"].items() if name.startswith(SPLITS)
        }
        sources = [
            {key: source[key] for key in source if key != "name"}
            for source in self.manifest["sources"]
        ]
        described = [
            self.manifest["version"],
            self.manifest["dtype"],
            self.manifest["vocabulary"]["fingerprint"],
        ]
        described += [
            files,
            sources,
            *(self.manifest[key] for key in ("labels",) if key in self.manifest),
        ]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        vocabulary = load_vocabulary(self.path / "vocabulary")
        if vocabulary.fingerprint != self.manifest["vocabulary"]["fingerprint"]:
            raise ValueError(
                f"{self.path / 'vocabulary'}: fingerprint {vocabulary.fingerprint}, the store was written with "
                f"{self.manifest['vocabulary']['fingerprint']}"
            )
        return vocabulary

    def split(self, name: str) -> Split:
        """The part `train` or `heldout`."""
        if name not in SPLITS:
            raise ValueError(f"split {name!r}: a store has {' and '.join(SPLITS)}")
        sizes = self.manifest["splits"][name]
        types = {
            "tokens": np.dtype(self.manifest["dtype"]),
            "documents": OFFSETS,
            "sentences": OFFSETS,
        }
        counts = {
            "tokens": sizes["tokens"],
            "documents": sizes["documents"] + 1,
            "sentences": sizes["sentences"] + 1,
        }
        tokens, documents, sentences = (
            _map(self.path / name / f"{file}.bin", types[file], counts[file]) for file in FILES
        )
        sources = (
            Source(s["name"], tuple(s[name]["documents"]), s["rate"])
            for s in self.manifest["sources"]
        )
        besides = {
            file: _map(self.path / name / f"{file}.bin", LABELS, sizes[of])
            for file, of in (("labels", "documents"), ("tags", "sentences"))
            if f"{name}/{file}.bin" in self.manifest["files"]
        }
        return Split(
            tokens, documents, sentences, tuple(sources), **besides, folder=self.path / name
        )

    def verify(self) -> None:
        """Read every file and compare its checksum (crc32c); ValueError names the first that differs."""
        for name, entry in self.manifest["files"].items():
            if (seen := file_checksum(self.path / name)) != entry["crc32c"]:
                raise ValueError(
                    f"{self.path / name}: crc32c {seen}, the manifest says {entry['crc32c']}: its bytes have changed since it was "
                    "written; copy it again, or prepare it again (--overwrite)"
                )

    def verify_once(self) -> None:
        """`verify`, unless these very files (by path, size, inode and time of change) were found sound on this machine before."""
        stats = [(self.path / name).stat() for name in sorted(self.manifest["files"])]
        seen = [str(self.path.resolve()), self.manifest["files"]]
        seen += [[stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns] for stat in stats]
        mark = (
            _cache("verified")
            / hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:32]
        )
        if mark.exists():
            return
        self.verify()
        with contextlib.suppress(
            OSError
        ):  # where nothing can be noted, everything is read each time
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def write_store(path, vocabulary: Vocabulary, documents, *, heldout=(), rates=None) -> Store:
    """Write a small store in one go, from ids, and open it.

    documents: a list of documents, a document being a list of sentences, a sentence a list of ids; or a dictionary
    from source names to such lists. heldout: the same for the held-out part. rates: {source: rate}; default: its
    share of the training tokens.
    """
    train = documents if isinstance(documents, dict) else {"documents": documents}
    held = heldout if isinstance(heldout, dict) else {next(iter(train)): heldout}
    folder = pathlib.Path(path)
    if folder.exists():
        raise FileExistsError(f"{folder} exists already")
    with open_scratch_folder(folder, exclusive=False) as scratch:
        with StoreWriter(scratch / "store", vocabulary) as writer:
            for name in train:
                writer.begin_source(name)
                for split, part in (("train", train), ("heldout", held)):
                    writer.add(split, *_flatten(part.get(name, ()), vocabulary.size))
            sizes = [source["train"]["tokens"] for source in writer.sources]
            weights = [rates[name] if rates else hi - lo for name, (lo, hi) in zip(train, sizes)]
            writer.finish([weight / (sum(weights) or 1) for weight in weights])
        os.rename(scratch / "store", folder)
    return Store.open(folder)


def _flatten(documents, size: int):
    """ids, tokens per document and tokens per sentence of nested lists."""
    sentences = [sentence for document in documents for sentence in document]
    ids = np.array([i for sentence in sentences for i in sentence], np.int64)
    if len(ids) and not (0 <= ids.min() and ids.max() < size):
        raise ValueError(f"ids from {ids.min()} to {ids.max()}, but the vocabulary has {size}")
    lengths = [np.array([sum(map(len, document)) for document in documents], np.int64)]
    lengths.append(np.array([len(sentence) for sentence in sentences], np.int64))
    if any(0 in length for length in lengths):
        raise ValueError("a document and a sentence hold at least one id")
    return ids, *lengths


def _map(path: pathlib.Path, dtype: np.dtype, count: int) -> np.ndarray:
    if not count:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", shape=(count,))


def _read_manifest(folder) -> dict:
    path = folder / MANIFEST
    if not path.exists():
        there = "no such folder" if not folder.exists() else f"no {MANIFEST} in it"
        raise FileNotFoundError(
            f"{folder} is not a token store ({there}); `prepare SOURCE... --output {folder}` writes one"
        )
    try:
        manifest = json.loads(path.read_text())
        version = manifest["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is broken: {error!r}") from error
    if version != VERSION:
        raise ValueError(
            f"{path}: version {version} of the store, this program reads {VERSION}: prepare it again (--overwrite)"
        )
    return manifest


def _cache(name: str) -> pathlib.Path:
    return (
        pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        / "cloze"
        / name
    )


def _local_copy(remote, manifest: dict) -> pathlib.Path:
    """Copy a remote store into the cache, unless it is there."""
    cache = _cache("stores")
    key = hashlib.sha256(f"{remote}\n{json.dumps(manifest, sort_keys=True)}".encode()).hexdigest()[
        :24
    ]
    if (cache / key / MANIFEST).exists():
        return cache / key
    cache.mkdir(parents=True, exist_ok=True)
    with open_scratch_folder(cache / key, exclusive=False) as scratch:
        copy = scratch / "store"
        for name in (*manifest["files"], MANIFEST):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            with (remote / name).open("rb") as source, open(copy / name, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        Store(copy, manifest).verify()
        try:
            os.rename(copy, cache / key)
        except OSError:
            if not (cache / key / MANIFEST).exists():  # another process may have been first
                raise
    return cache / key
