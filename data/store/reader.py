"""The token store: a corpus as memory-mapped ids with the offsets of its documents and sentences.

    STORE/manifest.json        contents and origin; written last, so every finished store has one
    STORE/GENERATION/          the files, see data/store/generations.py
      vocabulary/              see data/vocabulary/load.py
      {train,heldout}/         the files of a split:
        tokens.bin             uint16 or uint32 [T], ids of all documents without special ids
        documents.bin          int64 [D + 1], offsets of documents into the tokens; the last is T
        sentences.bin          int64 [S + 1], likewise for sentences; a document begins a sentence
        labels.bin             float32 [D], if documents have labels (labelled_examples.py)
        tags.bin               float32 [S], if sentences are tagged words (tagged_sentences.py)
        answers.jsonl          reference answers of the documents (text_pairs.py)
        spans.bin ...          questions, answers and their texts (qa_store.py)
      checksums/               crc32c of each 4 KiB of these files, see data/store/salvage.py

All numbers are little-endian. Files named in brackets are in data/examples. data/prepare/build.py
writes stores with data/store/writer.py.

Axes: D documents, S sentences, T tokens.
"""

import dataclasses
import functools
import hashlib
import json
from typing import Any, Literal, Self

import numpy as np

from data.corpus.paths import as_path, is_remote
from data.members import call_later
from data.source import SPLITS, Encoding, RowSet, describe_omissions
from data.store.checksums import check_sizes, verify_files
from data.store.generations import lock_generation
from data.store.manifest import (
    LABEL_DTYPE,
    LABEL_WIDTH,
    OFFSET_DTYPE,
    SPLIT_FILES,
    get_checksums_name,
    read_manifest,
)
from data.store.mapped import map_numbers
from data.store.split import MixtureSource, Split, check_split, check_split_once
from data.store.user_cache import check_once, copy_to_cache
from data.vocabulary.base import Vocabulary, find_difference
from data.vocabulary.saved import load_vocabulary

# What few stores need.
open_ranges = call_later("data.store.ranged:open_ranges")
skip_damaged_documents = call_later("data.store.salvage:skip_damaged_documents")
make_id_restorer = call_later("data.vocabulary.spelling:make_id_restorer")
open_strands = call_later("data.rows.strands:open_strands")
# Files of remote stores that are read by ranges; the others are copied, since rows need them whole.
RANGED_FILES = tuple(f"{split}/tokens.bin" for split in SPLITS)


class Store:
    """A finished token store, opened for reading.

    Attributes:
      path: the path with which it was opened.
      folder: local folder with the files of the generation; for a remote store, with copies of all
        files but the tokens.
      remote: remote folder of the generation, whose tokens are read by ranges; None if local.
      generation_lock: lock that prevents the removal of the generation (data/store/generations.py).
      skipped_documents: {split: int64, numbers of the documents that are skipped}; {} for none.
    """

    def __init__(
        self,
        path: Any,
        manifest: dict[str, Any],
        folder: Any = None,
        remote: Any = None,
        generation_lock: Any = None,
    ) -> None:
        self.path, self.manifest = path, manifest
        self.folder, self.remote, self.generation_lock = folder, remote, generation_lock
        self.skipped_documents: dict[str, np.ndarray] = {}

    @classmethod
    def open(cls, path: Any) -> Self:
        """Open a store after checking its manifest, its version and the sizes of its files.

        The tokens of a remote store (gs://...) are read by ranges. Its other files are copied once
        to $XDG_CACHE_HOME/cloze.

        Args:
          path: local folder or URL.

        Raises:
          FileNotFoundError: if there is no store.
          ValueError: if the store is broken or of another version.
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
            # The store was rewritten meanwhile; open the new generation.

    @classmethod
    def open_generation(cls, given: Any, manifest: dict[str, Any]) -> Self:
        """Open the generation that a manifest names."""
        folder, files = given / manifest["generation"], manifest["files"]
        if is_remote(given):
            check_sizes(folder, {name: files[name] for name in files if name in RANGED_FILES})
            others = {name: files[name] for name in files if name not in RANGED_FILES}
            return cls(given, manifest, copy_to_cache(folder, manifest, others), remote=folder)
        lock = lock_generation(folder)
        check_sizes(folder, files)
        return cls(given, manifest, folder, generation_lock=lock)

    @property
    def fingerprint(self) -> str:
        """Hash of ids, offsets, mixture and vocabulary, independent of all paths."""
        files = {
            name: file for name, file in self.manifest["files"].items() if name.startswith(SPLITS)
        }
        sources = [
            {key: source[key] for key in source if key != "name"}
            for source in self.manifest["sources"]
        ]
        description = [
            1,  # version of this description
            self.manifest["dtype"],
            self.manifest["vocabulary"]["fingerprint"],
            files,
            sources,
            *(self.manifest[key] for key in ("labels",) if key in self.manifest),
        ]
        return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def heldout_digest(self) -> str:
        """Hash of the held-out documents: of the checksums of their files, and of the vocabulary.

        It stays as it is where only training documents change.
        """
        prefix = f"{SPLITS[1]}/"
        files = {
            name: file for name, file in self.manifest["files"].items() if name.startswith(prefix)
        }
        fingerprint = self.manifest["vocabulary"]["fingerprint"]
        description = [1, self.manifest["dtype"], fingerprint, files]  # 1: version of this list
        return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the ids; raises ValueError if its files have changed."""
        vocabulary = load_vocabulary(self.folder / "vocabulary")
        if difference := find_difference(vocabulary, self.manifest["vocabulary"]):
            raise ValueError(
                f"{self.folder / 'vocabulary'}: {difference}: it is not the one that "
                "the store was written with"
            )
        return vocabulary

    @property
    def encoding(self) -> Encoding:
        """The meaning of the ids, as data/source.py describes: the vocabulary."""
        return self.vocabulary

    def open_rows(self, split: str, objective: Any) -> RowSet:
        """Return the rows that an objective of data/objectives makes of the split train or heldout.

        Raises:
          ValueError: if the split is empty, or the objective cannot learn from this store.
        """
        objective.check_vocabulary(self.vocabulary)
        name, part = f"the {split} split of {self.path}", self.open_split(split)
        if len(part.tokens) == 0:
            advice = "prepare a larger corpus, or with another --held-out share"
            raise ValueError(f"{name} is empty: {advice}")
        if objective.reverse_complement and split != "train":  # held-out rows are as in the store
            objective = dataclasses.replace(objective, reverse_complement=False)
        try:
            table, build = objective.make_rows(part, self.vocabulary)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        drop = functools.partial(objective.drop_repeats, table)
        restore = None  # Most batches have ids, and no characters.
        if objective.characters:
            restore = make_id_restorer(objective, part, self.vocabulary)
        rows = RowSet(
            table, build, part.sources, objective.order, part, self.vocabulary, drop, restore
        )
        return open_strands(rows, objective) if objective.reverse_complement else rows

    def verify_or_salvage(self, on_corrupt: Literal["refuse", "skip"]) -> "Store":
        """Return this store if its bytes are unchanged, else one without the damaged documents.

        Args:
          on_corrupt: "refuse" raises an error for damage; "skip" leaves damaged documents out.

        Raises:
          ValueError: if a file is damaged and `on_corrupt` is "refuse", or if the damaged documents
            cannot be identified; the message names the file.
        """
        if self.remote and on_corrupt == "skip":
            # The damaged documents have to be known before the first row.
            local = copy_to_cache(self.remote, self.manifest, self.manifest["files"])
            return Store(self.path, self.manifest, local).verify_or_salvage(on_corrupt)
        try:
            self.verify_checksums_once()
            return self
        except ValueError as error:
            if on_corrupt == "refuse":
                raise ValueError(
                    f"{error}; or leave the damaged documents out with data.on_corrupt=skip"
                ) from error
        return SalvagedStore(self)

    @property
    def num_classes(self) -> int:
        """The number of classes of the labels or tags; 0 for scores."""
        return len(self.manifest.get("labels") or ())

    def open_split(self, name: str) -> Split:
        """Open the split train or heldout; raise ValueError if an offset or label is wrong."""
        split = self.map_split(name)
        check_split_once(self.folder, name, self.manifest["files"], split, self.num_classes)
        return split

    def map_split(self, name: str) -> Split:
        """Open the split `train` or `heldout` without checking its numbers."""
        if name not in SPLITS:
            raise ValueError(f"split {name!r}: a store has {' and '.join(SPLITS)}")
        sizes = self.manifest["splits"][name]
        types = {
            "tokens": np.dtype(self.manifest["dtype"]),
            "documents": OFFSET_DTYPE,
            "sentences": OFFSET_DTYPE,
        }
        counts = {
            "tokens": sizes["tokens"],
            "documents": sizes["documents"] + 1,
            "sentences": sizes["sentences"] + 1,
        }
        tokens, documents, sentences = (
            self.open_numbers(f"{name}/{file}.bin", types[file], counts[file])
            for file in SPLIT_FILES
        )
        sources = (
            MixtureSource(source["name"], tuple(source[name]["documents"]), source["rate"])
            for source in self.manifest["sources"]
        )
        width = self.manifest.get(LABEL_WIDTH, 1)
        labels = {
            file: self.open_numbers(f"{name}/{file}.bin", LABEL_DTYPE, sizes[unit] * components)
            for file, unit, components in (("labels", "documents", width), ("tags", "sentences", 1))
            if f"{name}/{file}.bin" in self.manifest["files"]
        }
        if LABEL_WIDTH in self.manifest:
            labels["labels"] = labels["labels"].reshape(-1, width)
        return Split(
            tokens,
            documents,
            sentences,
            tuple(sources),
            **labels,
            folder=self.folder / name,
            mapped_folder=self.folder / name,
            generation_lock=self.generation_lock,
        )

    def open_numbers(self, name: str, dtype: np.dtype, count: int) -> Any:
        """Return the numbers of a file: memory-mapped if local, else an array read by ranges."""
        if not count:  # an empty file cannot be mapped
            return np.zeros(0, dtype)
        if self.remote is None or name not in RANGED_FILES:
            return map_numbers(self.folder / name, dtype, count)
        sums = np.fromfile(self.folder / get_checksums_name(name), "<u4")
        return open_ranges(self.remote / name, dtype, count, sums)

    @property
    def local_files(self) -> dict[str, dict[str, Any]]:
        """{name: entry of the manifest} of the files on this machine."""
        files = self.manifest["files"]
        return {name: files[name] for name in files if not (self.remote and name in RANGED_FILES)}

    def verify_checksums(self) -> None:
        """Compare the checksums of all files; raise ValueError with the first one that differs."""
        verify_files(self.folder, self.local_files)
        if self.remote:
            files = self.manifest["files"]
            verify_files(self.remote, {name: files[name] for name in files if name in RANGED_FILES})

    def verify_checksums_once(self) -> None:
        """Compare the checksums of the local files, unless they are known to be valid."""
        files = self.local_files
        check_once("verified", self.folder, files, files, lambda: verify_files(self.folder, files))


class SalvagedStore(Store):
    """A store without its damaged documents."""

    def __init__(self, store: Store) -> None:
        super().__init__(
            store.path, store.manifest, store.folder, generation_lock=store.generation_lock
        )
        found = skip_damaged_documents(self.folder, self.manifest, self.map_split)
        self.splits, self.skipped_documents = found
        for name, split in self.splits.items():
            check_split(self.folder / name, split, self.num_classes)

    def open_split(self, name: str) -> Split:
        """Open a split without its damaged documents."""
        return self.splits[name] if name in self.splits else super().open_split(name)

    @property
    def fingerprint(self) -> str:
        """Hash of the store's fingerprint and of the skipped documents."""
        description = f"{super().fingerprint} without {describe_omissions(self)}"
        return hashlib.sha256(description.encode()).hexdigest()[:32]
