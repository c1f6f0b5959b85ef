"""Write token stores: files with sizes and checksums, and then the manifest."""

import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, Self

import google_crc32c
import numpy as np

from data.source import MANIFEST_FILE, SPLITS
from data.store.atomic import sync_to_disk
from data.store.checksums import compute_checksum
from data.store.manifest import (
    BLOCK_BYTES,
    CHECKSUMS_FOLDER,
    LABEL_DTYPE,
    OFFSET_DTYPE,
    READERS_FILE,
    SPLIT_FILES,
    STORE_VERSION,
    get_checksums_name,
)
from data.vocabulary.base import identify_encoding

UNFINISHED_FOLDER = "unfinished"  # folder of a generation that is not complete
PART_NUMBERS = 1 << 18  # numbers of a file that are in memory at a time
COPIED_BYTES = 1 << 20


class StoreWriter:
    """Writes a store to a new folder: source by source, documents in order, then `finish`.

    A finished store has a manifest. The caller moves it to its place (data/store/generations.py).
    As a context manager, the writer closes its files at the end, finished or not.

    Attributes:
      totals: {split: {"tokens", "documents", "sentences": number written so far}}.
    """

    def __init__(self, store: pathlib.Path, encoding: Any) -> None:
        """Make the folder of the store with empty files.

        encoding: the vocabulary of the ids, or another `data.source.Encoding` with a `kind` and a
          `size`, such as the classes of images, whose files are the tokens, byte by byte.
        """
        self.store, self.encoding = store, encoding
        self.folder = folder = store / UNFINISHED_FOLDER
        self.dtype = choose_token_dtype(encoding)
        self.totals = {split: dict(tokens=0, documents=0, sentences=0) for split in SPLITS}
        self.sources: list[dict[str, Any]] = []
        self._files: dict[str, _BlockedFile] = {}
        for split in SPLITS:
            (folder / split).mkdir(parents=True)
        (folder / CHECKSUMS_FOLDER).mkdir()
        for name in (f"{split}/{file}.bin" for split in SPLITS for file in SPLIT_FILES):
            self._open_file(name)

    def begin_source(self, name: str) -> None:
        """Start a source, to which all documents belong that are added from now on."""
        starts = {
            split: {key: [count, count] for key, count in self.totals[split].items()}
            for split in SPLITS
        }
        self.sources.append({"name": name, **starts})

    def add_documents(
        self, split: str, tokens: np.ndarray, documents: np.ndarray, sentences: np.ndarray
    ) -> None:
        """Append whole documents: their ids, tokens of each document, tokens of each sentence."""
        self._append_documents(
            split, [tokens.astype(self.dtype, copy=False)], [documents], [sentences]
        )

    def add_document_files(
        self, split: str, tokens: pathlib.Path, documents: pathlib.Path, sentences: pathlib.Path
    ) -> None:
        """Append documents from files of ids (in the store's dtype) and of lengths (int64)."""
        self._append_documents(
            split,
            _read_parts(tokens, self.dtype),
            _read_parts(documents, OFFSET_DTYPE),
            _read_parts(sentences, OFFSET_DTYPE),
        )

    def add_labels(self, split: str, labels: np.ndarray, file: str = "labels") -> None:
        """Append one label for each document: the number of a class, or a score.

        Args:
          split: train or heldout.
          file: name of the file without suffix; "tags" for one label for each sentence.
        """
        self.add_array(split, f"{file}.bin", labels.astype(LABEL_DTYPE))

    def add_array(self, split: str, name: str, array: np.ndarray) -> None:
        """Append numbers of any dtype to an additional file of a split, made if absent."""
        self._open_file(f"{split}/{name}").write(array)

    def add_lines(self, split: str, file: str, lines: list[str]) -> None:
        """Append lines of text to an additional file of a split, made if absent.

        Half of a character, such as a byte of a file's name that is not UTF-8, becomes its escape.
        """
        text = "".join(f"{line}\n" for line in lines)
        self._open_file(f"{split}/{file}").append(text.encode("utf-8", "backslashreplace"))

    def _open_file(self, name: str) -> "_BlockedFile":
        """Return the open file of this name, made if absent."""
        if name not in self._files:
            checksums = _ChecksumFile(self.folder / get_checksums_name(name))
            self._files[name] = _BlockedFile(self.folder / name, checksums)
        return self._files[name]

    def _append_documents(
        self,
        split: str,
        tokens: Iterable[np.ndarray],
        documents: Iterable[np.ndarray],
        sentences: Iterable[np.ndarray],
    ) -> None:
        """Append documents whose ids and lengths arrive in parts."""
        totals, end = self.totals[split], self.totals[split]["tokens"]
        added = {"tokens": 0, "documents": 0, "sentences": 0}
        for ids in tokens:
            self._files[f"{split}/tokens.bin"].write(ids)
            added["tokens"] += len(ids)
        for file, parts in (("documents", documents), ("sentences", sentences)):
            offset = end
            for lengths in parts:
                starts = np.cumsum(lengths) - lengths + offset
                self._files[f"{split}/{file}.bin"].write(starts.astype(OFFSET_DTYPE, copy=False))
                offset += int(lengths.sum())
                added[file] += len(lengths)
            if offset != end + added["tokens"]:
                raise ValueError(f"{added['tokens']} tokens, but {offset - end} in {file}")
        for key, count in added.items():
            totals[key] += count
            self.sources[-1][split][key][1] += count

    def copy_to(self, store: pathlib.Path) -> "StoreWriter":
        """Return the writer of another store that has what was written here until now."""
        copy = StoreWriter(store, self.encoding)
        for name, file in self._files.items():
            if not (folder := (copy.folder / name).parent).exists():
                folder.mkdir()
                sync_to_disk(folder)
            other = copy._open_file(name)
            for data in file.read_written():
                other.append(data)
        copy.totals, copy.sources = json.loads(json.dumps([self.totals, self.sources]))
        return copy

    def finish(self, rates: list[float], **entries: Any) -> dict[str, Any]:
        """Write vocabulary and manifest, sync all files to disk, and return the manifest.

        Args:
          rates: mixture rate of each source.
        """
        for split in SPLITS:
            for file in ("documents", "sentences"):
                self._files[f"{split}/{file}.bin"].write(
                    np.array([self.totals[split]["tokens"]], OFFSET_DTYPE)
                )
        files = {name: file.close() for name, file in self._files.items()}
        files |= {
            get_checksums_name(name): file.blocks.close() for name, file in self._files.items()
        }
        encoding, files_of_encoding = self.encoding, self._save_encoding()
        manifest = {
            "dtype": self.dtype.str,
            "vocabulary": {
                "kind": encoding.kind,
                "size": encoding.size,
                **identify_encoding(encoding),
            },
            "splits": self.totals,
            "sources": [
                source | {"rate": rate} for source, rate in zip(self.sources, rates, strict=True)
            ],
            "files": files | files_of_encoding,
        } | entries
        (self.folder / READERS_FILE).touch()
        for name in (*SPLITS, CHECKSUMS_FOLDER, *encoding.artefacts, "."):
            sync_to_disk(self.folder / name)
        text = json.dumps(manifest, sort_keys=True)
        generation = hashlib.sha256(text.encode()).hexdigest()[:12]
        manifest = {"version": STORE_VERSION, "generation": generation} | manifest
        self.folder = self.folder.rename(self.store / generation)
        path = self.store / MANIFEST_FILE
        path.write_text(json.dumps(manifest, indent=1) + "\n")
        sync_to_disk(path)
        sync_to_disk(self.store)
        return manifest

    def _save_encoding(self) -> dict[str, dict[str, Any]]:
        """Write the files of the encoding; return {name: their entry in the manifest}."""
        files = {}
        for name, save in self.encoding.artefacts.items():
            folder = self.folder / name
            folder.mkdir()
            save(str(folder))
            for path in sorted(folder.iterdir()):
                sync_to_disk(path)
                files[f"{name}/{path.name}"] = {
                    "bytes": path.stat().st_size,
                    "crc32c": compute_checksum(path),
                }
        return files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()


def choose_token_dtype(encoding: Any) -> np.dtype:
    """Return the encoding's own dtype, or the smaller of uint16 and uint32 that has its ids."""
    own = getattr(encoding, "token_dtype", None)
    return np.dtype(own or ("<u2" if encoding.size <= 1 << 16 else "<u4"))


class _ChecksumFile:
    """A file to append to, which computes its size and checksum."""

    def __init__(self, path: pathlib.Path) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - open until `close`
        self._checksum, self._bytes = google_crc32c.Checksum(), 0

    def write(self, array: np.ndarray) -> None:
        """Append an array."""
        self.append(array.tobytes())

    def append(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(data)
        self._checksum.update(data)
        self._bytes += len(data)

    def read_written(self) -> Iterator[bytes]:
        """Yield what was appended until now, in parts."""
        self._file.flush()
        with open(self._file.name, "rb") as file:
            while data := file.read(COPIED_BYTES):
                yield data

    def close(self) -> dict[str, Any]:
        """Close the file if it is open, and return its size and checksum."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return {"bytes": self._bytes, "crc32c": self._checksum.hexdigest().decode()}


class _BlockedFile(_ChecksumFile):
    """A file that also writes the checksums of its blocks, uint32, to a second file, `blocks`."""

    def __init__(self, path: pathlib.Path, blocks: _ChecksumFile) -> None:
        super().__init__(path)
        self.blocks, self._rest = blocks, b""

    def append(self, data: bytes) -> None:
        super().append(data)
        self._write_checksums(self._rest + data, is_end=False)

    def close(self) -> dict[str, Any]:
        if not self._file.closed:
            self._write_checksums(self._rest, is_end=True)
            self.blocks.close()
        return super().close()

    def _write_checksums(self, data: bytes, is_end: bool) -> None:
        """Write the checksums of complete blocks; at the end of the file also of a shorter one."""
        end = len(data) if is_end else len(data) - len(data) % BLOCK_BYTES
        sums = [google_crc32c.value(data[i : i + BLOCK_BYTES]) for i in range(0, end, BLOCK_BYTES)]
        self.blocks.write(np.array(sums, "<u4"))
        self._rest = data[end:]


def _read_parts(path: pathlib.Path, dtype: np.dtype) -> Iterator[np.ndarray]:
    """Yield the numbers in a file in parts."""
    with open(path, "rb") as file:
        while len(part := np.fromfile(file, dtype, PART_NUMBERS)):
            yield part
