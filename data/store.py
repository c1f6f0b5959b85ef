"""The token store: a corpus as memory-mapped ids with the offsets of its documents and sentences.

    STORE/manifest.json            what is in it and where from; written last, so that a store has one or is none
    STORE/vocabulary/              data/tokenizers.py
    STORE/{train,heldout}/tokens.bin       T ids of all documents in a row, no special id among them; uint16 or uint32
    STORE/{train,heldout}/documents.bin    int64 [D + 1], offsets of documents into the tokens; the last one is T
    STORE/{train,heldout}/sentences.bin    int64 [S + 1], the same for sentences; each document begins one

All numbers are little-endian. D documents, S sentences, T tokens. A store is written by data/prepare.py, or, in tests,
by `write_store`, both through `StoreWriter`.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shutil
import tempfile

import google_crc32c
import numpy as np

from data.paths import as_path, is_remote
from data.tokenizers import Vocabulary, load_vocabulary

VERSION = 1
MANIFEST = "manifest.json"
SPLITS = ("train", "heldout")
FILES = ("tokens", "documents", "sentences")
OFFSETS = np.dtype("<i8")


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
    """

    tokens: np.ndarray
    document_starts: np.ndarray
    sentence_starts: np.ndarray
    sources: tuple[Source, ...]


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
                raise ValueError(f"{folder / name} {seen}, the manifest says {entry['bytes']:,}: prepare the store again (--overwrite)")
        return cls(folder, manifest)

    @property
    def fingerprint(self) -> str:
        """Hash over contents and vocabulary; equal stores have equal fingerprints wherever they lie."""
        described = {key: self.manifest[key] for key in ("version", "dtype", "files", "splits", "sources")}
        described["vocabulary"] = self.manifest["vocabulary"]["fingerprint"]
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
        types = {"tokens": np.dtype(self.manifest["dtype"]), "documents": OFFSETS, "sentences": OFFSETS}
        counts = {"tokens": sizes["tokens"], "documents": sizes["documents"] + 1, "sentences": sizes["sentences"] + 1}
        arrays = [_map(self.path / name / f"{file}.bin", types[file], counts[file]) for file in FILES]
        sources = (Source(s["name"], tuple(s[name]["documents"]), s["rate"]) for s in self.manifest["sources"])
        return Split(*arrays, tuple(sources))

    def verify(self) -> None:
        """Read every file and compare its checksum (crc32c); ValueError names the first that differs."""
        for name, entry in self.manifest["files"].items():
            if (seen := file_checksum(self.path / name)) != entry["crc32c"]:
                raise ValueError(f"{self.path / name}: crc32c {seen}, the manifest says {entry['crc32c']}")


class StoreWriter:
    """Writes a store into a new folder: documents in order, source after source, then `finish`.

    A finished store has a manifest; the caller moves the folder into its place afterwards (data/prepare.py). As a
    context, the writer closes its files in the end, finished or not.
    """

    def __init__(self, folder: pathlib.Path, vocabulary: Vocabulary):
        self.folder, self.vocabulary = folder, vocabulary
        self.dtype = token_dtype(vocabulary.size)
        self.totals = {split: dict(tokens=0, documents=0, sentences=0) for split in SPLITS}
        self.sources = []
        self._files = {}
        for split in SPLITS:
            (folder / split).mkdir(parents=True)
            for file in FILES:
                self._files[split, file] = _ChecksumFile(folder / split / f"{file}.bin")

    def begin_source(self, name: str) -> None:
        """What is added from here on belongs to the source `name`."""
        starts = {split: {key: [count, count] for key, count in self.totals[split].items()} for split in SPLITS}
        self.sources.append({"name": name, **starts})

    def add(self, split: str, tokens: np.ndarray, documents: np.ndarray, sentences: np.ndarray) -> None:
        """Append whole documents: their ids, tokens in each document, tokens in each sentence."""
        self._append(split, [tokens.astype(self.dtype, copy=False)], [documents], [sentences])

    def add_files(self, split: str, tokens: pathlib.Path, documents: pathlib.Path, sentences: pathlib.Path) -> None:
        """The same from files of ids (of the store's type) and of lengths (int64), a part at a time."""
        self._append(split, _parts(tokens, self.dtype), _parts(documents, OFFSETS), _parts(sentences, OFFSETS))

    def _append(self, split: str, tokens, documents, sentences) -> None:
        totals, end = self.totals[split], self.totals[split]["tokens"]
        added = {"tokens": 0, "documents": 0, "sentences": 0}
        for ids in tokens:
            self._files[split, "tokens"].write(ids)
            added["tokens"] += len(ids)
        for file, parts in (("documents", documents), ("sentences", sentences)):
            at = end
            for lengths in parts:
                self._files[split, file].write((np.cumsum(lengths) - lengths + at).astype(OFFSETS, copy=False))
                at, added[file] = at + int(lengths.sum()), added[file] + len(lengths)
            if at != end + added["tokens"]:
                raise ValueError(f"{added['tokens']} tokens, but {at - end} in {file}")
        for key, count in added.items():
            totals[key] += count
            self.sources[-1][split][key][1] += count

    def finish(self, rates: list[float], **described) -> dict:
        """Write vocabulary and manifest, everything forced to the disk, the manifest last. Returns the manifest.

        rates: one for each source. described: further entries of the manifest.
        """
        for split in SPLITS:
            for file in ("documents", "sentences"):
                self._files[split, file].write(np.array([self.totals[split]["tokens"]], OFFSETS))
        files = {f"{split}/{file}.bin": self._files[split, file].close() for split, file in self._files}
        self.vocabulary.save(self.folder / "vocabulary")
        for path in sorted((self.folder / "vocabulary").iterdir()):
            sync(path)
            files[f"vocabulary/{path.name}"] = {"bytes": path.stat().st_size, "crc32c": file_checksum(path)}
        vocabulary = self.vocabulary
        manifest = {
            "version": VERSION,
            "dtype": self.dtype.str,
            "vocabulary": {"kind": vocabulary.kind, "size": vocabulary.size, "fingerprint": vocabulary.fingerprint},
            "splits": self.totals,
            "sources": [source | {"rate": rate} for source, rate in zip(self.sources, rates, strict=True)],
            "files": files,
        } | described
        for name in (*SPLITS, "vocabulary"):
            sync(self.folder / name)
        path = self.folder / MANIFEST
        path.write_text(json.dumps(manifest, indent=1) + "\n")
        sync(path)
        sync(self.folder)
        return manifest

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for file in self._files.values():
            file.close()


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
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        with StoreWriter(pathlib.Path(temporary) / "store", vocabulary) as writer:
            for name in train:
                writer.begin_source(name)
                for split, part in (("train", train), ("heldout", held)):
                    writer.add(split, *_flatten(part.get(name, ()), vocabulary.size))
            sizes = [source["train"]["tokens"] for source in writer.sources]
            weights = [rates[name] if rates else hi - lo for name, (lo, hi) in zip(train, sizes)]
            writer.finish([weight / (sum(weights) or 1) for weight in weights])
        os.rename(pathlib.Path(temporary) / "store", folder)
    return Store.open(folder)


def token_dtype(size: int) -> np.dtype:
    """The smallest of uint16 and uint32 that holds `size` ids, little-endian."""
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


def file_checksum(path: pathlib.Path) -> str:
    """crc32c of a file, 8 hexadecimal digits."""
    checksum = google_crc32c.Checksum()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            checksum.update(block)
    return checksum.hexdigest().decode()


def sync(path: pathlib.Path) -> None:
    """Force a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _ChecksumFile:
    """A file that is only appended to, and knows its size and checksum when it is closed."""

    def __init__(self, path: pathlib.Path):
        self._file, self._checksum, self._bytes = open(path, "wb"), google_crc32c.Checksum(), 0

    def write(self, array: np.ndarray) -> None:
        data = array.tobytes()
        self._file.write(data)
        self._checksum.update(data)
        self._bytes += len(data)

    def close(self) -> dict:
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return {"bytes": self._bytes, "crc32c": self._checksum.hexdigest().decode()}


def _parts(path: pathlib.Path, dtype: np.dtype):
    """The numbers in a file, a part at a time."""
    with open(path, "rb") as file:
        while len(part := np.fromfile(file, dtype, 1 << 18)):
            yield part


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
        raise FileNotFoundError(f"{folder} is not a token store ({there}); `prepare SOURCE... --output {folder}` writes one")
    try:
        manifest = json.loads(path.read_text())
        version = manifest["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is broken: {error!r}") from error
    if version != VERSION:
        raise ValueError(f"{path}: version {version} of the store, this program reads {VERSION}: prepare it again (--overwrite)")
    return manifest


def _local_copy(remote, manifest: dict) -> pathlib.Path:
    """Copy a remote store into the cache, unless it is there."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "cloze" / "stores"
    key = hashlib.sha256(f"{remote}\n{json.dumps(manifest, sort_keys=True)}".encode()).hexdigest()[:24]
    if (cache / key / MANIFEST).exists():
        return cache / key
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{key}.", dir=cache) as temporary:
        copy = pathlib.Path(temporary) / "store"
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
