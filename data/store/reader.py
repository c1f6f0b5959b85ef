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
import functools
import hashlib
import json
import pathlib
from typing import Literal

import numpy as np

from data.corpus.paths import as_path, is_remote
from data.source import Encoding, Rows
from data.store.remote import copy_here, find_cache
from data.store.salvage import leave_out_damaged, told
from data.store.split import Source, Split
from data.store.writer import FILES, LABELS, MANIFEST, OFFSETS, SPLITS, VERSION, verify_files
from data.vocabulary.load import Vocabulary, load_vocabulary


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
            folder = copy_here(folder, manifest)
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

    @property
    def encoding(self) -> Encoding:
        """What its ids mean."""
        return self.vocabulary

    def rows(self, split: str, objective) -> Rows:
        """The rows of a split, as `data.source.Source` has them."""
        objective.check(self.vocabulary)
        name, part = f"the {split} split of {self.path}", self.split(split)
        if len(part.tokens) == 0:
            raise ValueError(
                f"{name} is empty: prepare a larger corpus, or hold out another share of it"
            )
        try:
            table, build = objective.examples(part, self.vocabulary)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        order = getattr(objective, "order", "shuffled")
        return Rows(table, build, part.sources, order, part, self.vocabulary)

    def verified(self, on_corrupt: Literal["refuse", "skip"]) -> "Store":
        """Return the store itself where every byte is what was written; else what is left of it, if `on_corrupt` is "skip".

        Raises ValueError, which names the file, where it is "refuse", and where it cannot be told which documents are damaged.
        """
        try:
            self.verify_once()
            return self
        except ValueError as error:
            if on_corrupt == "refuse":
                raise ValueError(
                    f"{error}; or leave the damaged documents out with data.on_corrupt=skip"
                ) from error
        return Salvaged(self)

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
        verify_files(self.path, self.manifest)

    def verify_once(self) -> None:
        """`verify`, unless these very files (by path, size, inode and time of change) were found sound on this machine before."""
        stats = [(self.path / name).stat() for name in sorted(self.manifest["files"])]
        seen = [str(self.path.resolve()), self.manifest["files"]]
        seen += [[stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns] for stat in stats]
        mark = (
            find_cache("verified")
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


class Salvaged(Store):
    """A store without the documents that are damaged. left_out: {split: their numbers, int64}."""

    def __init__(self, store):
        super().__init__(store.path, store.manifest)
        self.splits, self.left_out = leave_out_damaged(self.path, self.manifest, super().split)

    def split(self, name):
        return self.splits[name] if name in self.splits else super().split(name)

    @property
    def fingerprint(self):
        described = f"{super().fingerprint} without {told(self)}"
        return hashlib.sha256(described.encode()).hexdigest()[:32]


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
