"""The writing side of data/store/reader.py: files that are appended to, with sizes and checksums, and the manifest last."""

import hashlib
import json
import os
import pathlib

import google_crc32c
import numpy as np

from data.store.atomic import sync
from data.vocabulary.load import Vocabulary

VERSION = 2
MANIFEST = "manifest.json"
SPLITS = ("train", "heldout")
FILES = ("tokens", "documents", "sentences")
# Entries that the manifest of a store of fine-tuning examples has one of: data/examples/example_store.py.
EXAMPLE_ENTRIES = frozenset({"labels", "questions", "text"})
OFFSETS = np.dtype("<i8")
LABELS = np.dtype("<f4")
CHECKSUMS = "checksums"
READERS = "readers"  # of a generation: an empty file that they lock
UNFINISHED = "unfinished"  # a generation that is being written
BLOCK = (
    1 << 12
)  # bytes that have a checksum of their own: some 2,000 tokens, so that damage costs few documents
PART = 1 << 18  # numbers of a file that are in memory at a time


class StoreWriter:
    """Writes a store into a new folder: documents in order, source after source, then `finish`.

    A finished store has a manifest; the caller moves the folder into its place afterwards (data/store/generations.py). As a
    context, the writer closes its files in the end, finished or not.
    """

    def __init__(self, store: pathlib.Path, vocabulary: Vocabulary):
        self.store, self.vocabulary = store, vocabulary
        self.folder = folder = store / UNFINISHED
        self.dtype = token_dtype(vocabulary.size)
        self.totals = {split: dict(tokens=0, documents=0, sentences=0) for split in SPLITS}
        self.sources = []
        self._files = {}
        for split in SPLITS:
            (folder / split).mkdir(parents=True)
        (folder / CHECKSUMS).mkdir()
        for name in (f"{split}/{file}.bin" for split in SPLITS for file in FILES):
            self._files[name] = _BlockedFile(
                folder / name, _ChecksumFile(folder / checksums_of(name))
            )

    def begin_source(self, name: str) -> None:
        """What is added from here on belongs to the source `name`."""
        starts = {
            split: {key: [count, count] for key, count in self.totals[split].items()}
            for split in SPLITS
        }
        self.sources.append({"name": name, **starts})

    def add(
        self, split: str, tokens: np.ndarray, documents: np.ndarray, sentences: np.ndarray
    ) -> None:
        """Append whole documents: their ids, tokens in each document, tokens in each sentence."""
        self._append(split, [tokens.astype(self.dtype, copy=False)], [documents], [sentences])

    def add_files(
        self, split: str, tokens: pathlib.Path, documents: pathlib.Path, sentences: pathlib.Path
    ) -> None:
        """The same from files of ids (of the store's type) and of lengths (int64), a part at a time."""
        self._append(
            split,
            _parts(tokens, self.dtype),
            _parts(documents, OFFSETS),
            _parts(sentences, OFFSETS),
        )

    def add_labels(self, split: str, labels: np.ndarray, file: str = "labels") -> None:
        """Append the labels of documents, which have one each in a store that has any: the number of a class, or a score.

        file: `tags` for those of sentences.
        """
        self.add_beside(split, f"{file}.bin", labels.astype(LABELS))

    def add_beside(self, split: str, name: str, array: np.ndarray) -> None:
        """Append numbers, of whatever type, to STORE/split/name, a file that one kind of examples has beside those of every store."""
        name = f"{split}/{name}"
        if name not in self._files:
            self._files[name] = _BlockedFile(
                self.folder / name, _ChecksumFile(self.folder / checksums_of(name))
            )
        self._files[name].write(array)

    def add_lines(self, split: str, file: str, lines: list[str]) -> None:
        """Append lines of text to a file of this name, such as what documents are compared with: data/examples/text2text.py."""
        name = f"{split}/{file}"
        if name not in self._files:
            self._files[name] = _BlockedFile(
                self.folder / name, _ChecksumFile(self.folder / checksums_of(name))
            )
        self._files[name].append("".join(f"{line}\n" for line in lines).encode())

    def _append(self, split: str, tokens, documents, sentences) -> None:
        totals, end = self.totals[split], self.totals[split]["tokens"]
        added = {"tokens": 0, "documents": 0, "sentences": 0}
        for ids in tokens:
            self._files[f"{split}/tokens.bin"].write(ids)
            added["tokens"] += len(ids)
        for file, parts in (("documents", documents), ("sentences", sentences)):
            at = end
            for lengths in parts:
                self._files[f"{split}/{file}.bin"].write(
                    (np.cumsum(lengths) - lengths + at).astype(OFFSETS, copy=False)
                )
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
                self._files[f"{split}/{file}.bin"].write(
                    np.array([self.totals[split]["tokens"]], OFFSETS)
                )
        files = {name: file.close() for name, file in self._files.items()}
        files |= {checksums_of(name): file.blocks.close() for name, file in self._files.items()}
        self.vocabulary.save(self.folder / "vocabulary")
        for path in sorted((self.folder / "vocabulary").iterdir()):
            sync(path)
            files[f"vocabulary/{path.name}"] = {
                "bytes": path.stat().st_size,
                "crc32c": file_checksum(path),
            }
        vocabulary = self.vocabulary
        manifest = {
            "dtype": self.dtype.str,
            "vocabulary": {
                "kind": vocabulary.kind,
                "size": vocabulary.size,
                "fingerprint": vocabulary.fingerprint,
            },
            "splits": self.totals,
            "sources": [
                source | {"rate": rate} for source, rate in zip(self.sources, rates, strict=True)
            ],
            "files": files,
        } | described
        (self.folder / READERS).touch()
        for name in (*SPLITS, CHECKSUMS, "vocabulary", "."):
            sync(self.folder / name)
        text = json.dumps(manifest, sort_keys=True)
        generation = hashlib.sha256(text.encode()).hexdigest()[:12]
        manifest = {"version": VERSION, "generation": generation} | manifest
        self.folder = self.folder.rename(self.store / generation)
        path = self.store / MANIFEST
        path.write_text(json.dumps(manifest, indent=1) + "\n")
        sync(path)
        sync(self.store)
        return manifest

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for file in self._files.values():
            file.close()


def token_dtype(size: int) -> np.dtype:
    """The smallest of uint16 and uint32 that holds `size` ids, little-endian."""
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


def checksums_of(name: str) -> str:
    """The file with the checksums of another's blocks."""
    return f"{CHECKSUMS}/{name.replace('/', '.')}"


def file_checksum(path: pathlib.Path) -> str:
    """crc32c of a file, 8 hexadecimal digits."""
    checksum = google_crc32c.Checksum()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            checksum.update(block)
    return checksum.hexdigest().decode()


def verify_files(folder: pathlib.Path, files: dict) -> None:
    """Read files of a store, {name: entry of the manifest}, and compare their checksums (crc32c); ValueError names the first that differs."""
    for name, entry in files.items():
        if (seen := file_checksum(folder / name)) != entry["crc32c"]:
            raise ValueError(
                f"{folder / name}: crc32c {seen}, the manifest says {entry['crc32c']}: its bytes have changed since it was "
                "written; copy it again, or prepare it again (--overwrite)"
            )


def check_sizes(folder, files: dict) -> None:
    """Raise ValueError where a file of a generation is missing or has another size than the manifest says."""
    for name, entry in files.items():
        path = folder / name
        size = measure(path) if path.exists() else None
        if size != entry["bytes"]:
            seen = "is missing" if size is None else f"has {size:,} bytes"
            raise ValueError(
                f"{path} {seen}, the manifest says {entry['bytes']:,}: prepare it again (--overwrite)"
            )


def measure(path) -> int:
    """Return the bytes of a file, here or in a bucket."""
    found = path.stat()
    return found.length if hasattr(found, "length") else found.st_size


class _ChecksumFile:
    """A file that is only appended to, and knows its size and checksum when it is closed."""

    def __init__(self, path: pathlib.Path):
        self._file = open(path, "wb")  # noqa: SIM115 - open until `close`
        self._checksum, self._bytes = google_crc32c.Checksum(), 0

    def write(self, array: np.ndarray) -> None:
        self.append(array.tobytes())

    def append(self, data: bytes) -> None:
        self._file.write(data)
        self._checksum.update(data)
        self._bytes += len(data)

    def close(self) -> dict:
        """Its size and checksum; may be called again."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return {"bytes": self._bytes, "crc32c": self._checksum.hexdigest().decode()}


class _BlockedFile(_ChecksumFile):
    """One whose blocks have checksums as well, uint32 in a second file, `blocks`."""

    def __init__(self, path: pathlib.Path, blocks: _ChecksumFile):
        super().__init__(path)
        self.blocks, self._rest = blocks, b""

    def append(self, data: bytes) -> None:
        super().append(data)
        self._note(self._rest + data, whole=False)

    def close(self) -> dict:
        if not self._file.closed:
            self._note(self._rest, whole=True)
            self.blocks.close()
        return super().close()

    def _note(self, data: bytes, whole: bool) -> None:
        """The checksums of the blocks of `data`; of the last one, which may be shorter, only once it is whole."""
        end = len(data) if whole else len(data) - len(data) % BLOCK
        sums = [google_crc32c.value(data[at : at + BLOCK]) for at in range(0, end, BLOCK)]
        self.blocks.write(np.array(sums, "<u4"))
        self._rest = data[end:]


def _parts(path: pathlib.Path, dtype: np.dtype):
    """The numbers in a file, a part at a time."""
    with open(path, "rb") as file:
        while len(part := np.fromfile(file, dtype, PART)):
            yield part
