"""The token store: a corpus as memory-mapped ids with the offsets of its documents and sentences.

    STORE/manifest.json        what is in it and where from; written last, so that a store has one or is none
    STORE/GENERATION/          the files that are read: data/store/generations.py
      vocabulary/              data/vocabulary/load.py
      {train,heldout}/tokens.bin       T ids of all documents in a row, no special id among them; uint16 or uint32
      {train,heldout}/documents.bin    int64 [D + 1], offsets of documents into the tokens; the last one is T
      {train,heldout}/sentences.bin    int64 [S + 1], the same for sentences; each document begins one
      {train,heldout}/labels.bin       float32 [D], only where documents have labels: data/examples/labelled.py
      {train,heldout}/tags.bin         float32 [S], only where sentences are words that have tags: data/examples/tagging.py
      {train,heldout}/answers.jsonl    what documents are compared with, where there is such: data/examples/text2text.py
      {train,heldout}/spans.bin ...    questions, their answers and their texts: data/examples/qa_store.py
      checksums/                       crc32c of each 4 KiB of these files: data/store/salvage.py

All numbers are little-endian. D documents, S sentences, T tokens. A store is written by data/prepare/build.py, or, in tests,
by `write_store`, both through data/store/writer.py.
"""

import contextlib
import functools
import hashlib
import json
import re
from typing import Any, Literal, Self

import numpy as np

from data.corpus.paths import as_path, is_remote
from data.source import Encoding, Rows
from data.store.generations import GENERATION, hold
from data.store.ranged import RangedArray, read_range
from data.store.remote import copy_here, find_cache
from data.store.salvage import leave_out_damaged, told
from data.store.split import Source, Split
from data.store.writer import (
    FILES,
    LABELS,
    MANIFEST,
    OFFSETS,
    SPLITS,
    VERSION,
    check_sizes,
    checksums_of,
    verify_files,
)
from data.vocabulary.load import Vocabulary, load_vocabulary

# Files whose numbers are read by ranges where they lie in a bucket; rows are made of the others' as a whole.
RANGED = tuple(f"{split}/tokens.bin" for split in SPLITS)
FILE_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


class Store:
    """A finished token store, opened for reading.

    path    where it was asked for
    folder  of this machine, with the files of its generation, or of a remote store with copies of all but the tokens
    remote  the generation's folder in a bucket, whose tokens are read by ranges; None for a store of this machine
    hold    what keeps the generation from being removed: data/store/generations.py
    """

    def __init__(
        self, path, manifest: dict, folder: Any = None, remote: Any = None, hold: Any = None
    ):
        self.path, self.manifest = path, manifest
        self.folder, self.remote, self.hold = folder, remote, hold

    @classmethod
    def open(cls, path: Any) -> Self:
        """Open the store in the folder `path` after checking its manifest, version and the sizes of its files.

        Of a remote folder (gs://...) the tokens are read where they lie, by ranges; the other files are copied to $XDG_CACHE_HOME/cloze,
        once. Raises FileNotFoundError where there is no store, ValueError where there is a broken one, or one of another version.
        """
        given = as_path(path)
        while True:
            manifest = read_manifest(given)
            try:
                store = cls.open_generation(given, manifest)
            except (FileNotFoundError, ValueError):
                if read_manifest(given) == manifest:
                    raise
            else:
                if read_manifest(given) == manifest:
                    return store
            # It was rewritten meanwhile.

    @classmethod
    def open_generation(cls, given: Any, manifest: dict[str, Any]) -> Self:
        """Open the generation that a manifest names."""
        folder, files = given / manifest["generation"], manifest["files"]
        if is_remote(given):
            check_sizes(folder, {name: files[name] for name in files if name in RANGED})
            rest = {name: files[name] for name in files if name not in RANGED}
            return cls(given, manifest, copy_here(folder, manifest, rest), remote=folder)
        held = hold(folder)
        check_sizes(folder, files)
        return cls(given, manifest, folder, hold=held)

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
            1,  # the version of this description
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
        vocabulary = load_vocabulary(self.folder / "vocabulary")
        if vocabulary.fingerprint != self.manifest["vocabulary"]["fingerprint"]:
            raise ValueError(
                f"{self.folder / 'vocabulary'}: fingerprint {vocabulary.fingerprint}, the store was written with "
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
        if self.remote and on_corrupt == "skip":
            # What is damaged is to be known before the first row.
            whole = copy_here(self.remote, self.manifest, self.manifest["files"])
            return Store(self.path, self.manifest, whole).verified(on_corrupt)
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
            self.open_numbers(f"{name}/{file}.bin", types[file], counts[file]) for file in FILES
        )
        sources = (
            Source(s["name"], tuple(s[name]["documents"]), s["rate"])
            for s in self.manifest["sources"]
        )
        besides = {
            file: self.open_numbers(f"{name}/{file}.bin", LABELS, sizes[of])
            for file, of in (("labels", "documents"), ("tags", "sentences"))
            if f"{name}/{file}.bin" in self.manifest["files"]
        }
        return Split(
            tokens,
            documents,
            sentences,
            tuple(sources),
            **besides,
            folder=self.folder / name,
            hold=self.hold,
        )

    def open_numbers(self, name: str, dtype: np.dtype, count: int) -> Any:
        """Return the numbers of a file: of this machine mapped into memory, else read by ranges."""
        if not count:  # an empty file cannot be mapped
            return np.zeros(0, dtype)
        if self.remote is None or name not in RANGED:
            return np.memmap(self.folder / name, dtype, mode="r", shape=(count,))
        sums = np.fromfile(self.folder / checksums_of(name), "<u4")
        read = functools.partial(read_range, str(self.remote / name))
        return RangedArray(str(self.remote / name), read, dtype, count, sums)

    @property
    def local_files(self) -> dict:
        """{name: entry of the manifest} of the files that lie on this machine."""
        files = self.manifest["files"]
        return {name: files[name] for name in files if not (self.remote and name in RANGED)}

    def verify(self) -> None:
        """Read every file and compare its checksum (crc32c); ValueError names the first that differs."""
        verify_files(self.folder, self.local_files)
        if self.remote:
            files = self.manifest["files"]
            verify_files(self.remote, {name: files[name] for name in files if name in RANGED})

    def verify_once(self) -> None:
        """Check the files of this machine as `verify` does, unless these very files (by path, size, inode and time of change) were found sound on this machine before."""
        stats = [(self.folder / name).stat() for name in sorted(self.local_files)]
        seen = [str(self.folder.resolve()), self.local_files]
        seen += [[stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns] for stat in stats]
        mark = (
            find_cache("verified")
            / hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:32]
        )
        if mark.exists():
            return
        verify_files(self.folder, self.local_files)
        with contextlib.suppress(
            OSError
        ):  # where nothing can be noted, everything is read each time
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


class Salvaged(Store):
    """A store without the documents that are damaged. left_out: {split: their numbers, int64}."""

    def __init__(self, store):
        super().__init__(store.path, store.manifest, store.folder, hold=store.hold)
        self.splits, self.left_out = leave_out_damaged(self.folder, self.manifest, super().split)

    def split(self, name):
        return self.splits[name] if name in self.splits else super().split(name)

    @property
    def fingerprint(self):
        described = f"{super().fingerprint} without {told(self)}"
        return hashlib.sha256(described.encode()).hexdigest()[:32]


def is_file_list(files) -> bool:
    """Return whether this is {name within a generation: {"bytes", "crc32c"}}."""
    return isinstance(files, dict) and all(
        FILE_NAME.fullmatch(name)
        and isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("crc32c"), str)
        for name, entry in files.items()
    )


def read_manifest(folder) -> dict:
    """Return the manifest of a store. Raises FileNotFoundError where there is none, ValueError for a broken one or another version."""
    path = folder / MANIFEST
    if not path.exists():
        there = "no such folder" if not folder.exists() else f"no {MANIFEST} in it"
        raise FileNotFoundError(
            f"{folder} is not a token store ({there}); `prepare SOURCE... --output {folder}` writes one"
        )
    try:
        manifest = json.loads(path.read_text())
        version = manifest["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is broken: {error!r}") from error
    if version != VERSION:
        raise ValueError(
            f"{path}: version {version} of the store, this program reads {VERSION}: prepare it again (--overwrite)"
        )
    files = manifest.get("files")
    if not GENERATION.fullmatch(str(manifest.get("generation"))) or not is_file_list(files):
        raise ValueError(f"{path} is broken: it names no generation, or files outside of it")
    return manifest
