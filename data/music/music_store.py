"""Token stores of music: each document is a piece, and training rows are transposed.

`write_music_store` writes one. It adds to the manifest

    music      {"encoding": name, "transpose": semitones, "sources": ..., "held_out": share}
    noted      {reason: {"count": pieces, "first": the first one}} of pieces that are left out

and to the files of each split `pieces.txt`, the names of its pieces.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from data.batch_spec import TOKEN_ID
from data.corpus.paths import check_distinct
from data.music.chorales import list_chorales, read_chorales
from data.music.encodings import ENCODINGS, MusicEncoding, make_vocabulary
from data.music.midi_files import read_midi
from data.music.notes import Piece
from data.music.transposition import find_pitches, transpose_rows
from data.rows.tables import Batch
from data.source import SPLITS, RowSet
from data.store.generations import check_new_store, replace_store
from data.store.reader import SalvagedStore, Store
from data.store.writer import StoreWriter

CHORALES = "chorales"
MAX_TRANSPOSE = 24
ENDINGS = (".mid", ".midi")
NUM_BUCKETS = 1 << 32


@dataclasses.dataclass(frozen=True)
class MusicRequest:
    """The options of a store of music.

    sources: "chorales", MIDI files, or folders of MIDI files.
    encoding: a key of `data.music.encodings.ENCODINGS`.
    transpose: training rows are transposed by up to so many semitones, up or down.
    held_out: the share of the pieces in the held-out split, chosen by a hash of their notes.
    on_bad_file: `skip` leaves out and counts files that are not MIDI, or out of bounds; `refuse`
      stops with an error.
    """

    sources: tuple[str, ...]
    encoding: str = "voices"
    transpose: int = 5
    held_out: float = 0.1
    on_bad_file: str = "refuse"

    def __post_init__(self) -> None:
        if not 0 <= self.transpose <= MAX_TRANSPOSE:
            raise ValueError(f"--transpose {self.transpose}: from 0 to {MAX_TRANSPOSE} semitones")
        if not 0 < self.held_out < 1:
            raise ValueError(f"--held-out {self.held_out}: a share between 0 and 1")
        if self.on_bad_file not in ("refuse", "skip"):
            raise ValueError(f"--on-bad-file {self.on_bad_file}: refuse or skip")
        check_distinct(self.sources)


class MusicStore(Store):
    """A token store of music."""

    @property
    def music(self) -> dict[str, Any]:
        """The manifest's entry."""
        return self.manifest["music"]

    @property
    def music_encoding(self) -> MusicEncoding:
        """The encoding of the pieces. Raises ValueError for one that is not known."""
        name = self.music.get("encoding")
        if name not in ENCODINGS or (
            self.vocabulary.fingerprint != make_vocabulary(name).fingerprint
        ):
            raise ValueError(
                f"{self.path}: music encoded as {name!r:.60}, which is not the vocabulary of this "
                "version; prepare the store again"
            )
        return ENCODINGS[name]

    @property
    def fingerprint(self) -> str:
        """Hash of the store's fingerprint and of the transposition."""
        description = json.dumps([super().fingerprint, self.music.get("transpose")])
        return hashlib.sha256(description.encode()).hexdigest()[:32]

    def open_rows(self, split: str, objective: Any) -> RowSet:
        """Return the rows of a split; transpose training rows.

        Each row is transposed as a whole, in all fields of token ids, by a draw of its key.

        Raises:
          ValueError: as `Store.open_rows`; the encoding is not known; or transposed rows are to
            continue each other.
        """
        rows, semitones = super().open_rows(split, objective), self.music.get("transpose")
        if split != "train" or not semitones:
            return rows
        if objective.order == "lanes":
            raise ValueError(
                f"{self.path}: rows on lanes continue each other, but each is transposed by a "
                "distance of its own: set data.objective.order=shuffled, or prepare the store "
                "with --transpose 0 (either needs --allow-changes in a run that has begun)"
            )
        pitches_V = find_pitches(self.music_encoding)
        keys = [key for key, field in objective.describe_batch().items() if field.role == TOKEN_ID]
        build = rows.build

        def build_transposed(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            return transpose_rows(build(row_B, key_B), keys, pitches_V, semitones, key_B)

        def restore(batch: Batch, row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            """Return the rows before they were transposed, if they belong to these keys."""
            expected = build_transposed(row_B, key_B)
            is_same = all(np.array_equal(batch[key], expected[key]) for key in keys)
            return batch | {key: build(row_B, key_B)[key] for key in keys} if is_same else batch

        return dataclasses.replace(rows, build=build_transposed, restore=restore)

    def verify_or_salvage(self, on_corrupt: Literal["refuse", "skip"]) -> MusicStore:
        """Return this store, or one without the damaged pieces, as `Store.verify_or_salvage`."""
        found = super().verify_or_salvage(on_corrupt)
        return found if isinstance(found, MusicStore) else SalvagedMusicStore(found)

    def read_pieces(self, split: str) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (name, ids) of the pieces of a split."""
        names = (self.folder / split / "pieces.txt").read_text().splitlines()
        skipped = set(self.skipped_documents.get(split, np.zeros(0)).tolist())
        names = [name for i, name in enumerate(names) if i not in skipped]
        part = self.open_split(split)
        starts = np.asarray(part.document_starts)
        for name, start, end in zip(names, starts[:-1], starts[1:]):
            yield name, np.asarray(part.tokens[start:end])


class SalvagedMusicStore(MusicStore, SalvagedStore):
    """A store of music without its damaged pieces."""


def write_music_store(
    request: MusicRequest,
    output: pathlib.Path,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> MusicStore:
    """Write a store of music, and open it.

    Pieces with the same notes, transposed or not, are in the same split. A piece that the encoding
    cannot express is left out, and counted, as is a file that cannot be read if the request skips
    it.

    Raises:
      FileExistsError: there is something at `output`.
      FileNotFoundError: a source does not exist, or has no MIDI files.
      ValueError: a file is not MIDI and not skipped, or a split has no piece.
    """
    check_new_store(output, overwrite)
    encoding, omitted = ENCODINGS[request.encoding], _Omitted(request.on_bad_file)
    vocabulary = make_vocabulary(request.encoding)
    with replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        for name in request.sources:
            count = 0
            writer.begin_source(name)
            report(f"reading {name}")
            for piece in _read_source(name, encoding, omitted):
                try:
                    ids = encoding.encode(piece)
                except ValueError as error:
                    omitted.add(str(error).removeprefix(f"{piece.name}: "), piece.name)
                    continue
                split = "heldout" if _is_held_out(ids, encoding, request.held_out) else "train"
                length = np.array([len(ids)])
                writer.add_documents(split, ids, length, length)
                writer.add_lines(split, "pieces.txt", [" ".join(piece.name.split())])
                count += 1
            report(f"{name}: {count:,} pieces")
        _check_splits(writer, request, omitted.counts)
        tokens = [np.diff(source["train"]["tokens"])[0] for source in writer.sources]
        writer.finish(
            [float(count / sum(tokens)) for count in tokens],
            music=dataclasses.asdict(request),
            noted=omitted.describe(),
        )
    return MusicStore.open(output)


class _Omitted:
    """Counts the pieces that are left out, by reason, and remembers the first of each."""

    def __init__(self, on_bad_file: str) -> None:
        self.on_bad_file = on_bad_file
        self.counts: collections.Counter[str] = collections.Counter()
        self.first: dict[str, str] = {}

    def add(self, reason: str, name: str) -> None:
        self.counts[reason] += 1
        self.first.setdefault(reason, name)

    def add_bad_file(self, error: ValueError, name: str) -> None:
        """Count a file that cannot be read, or raise its error unless such files are skipped."""
        if self.on_bad_file == "refuse":
            raise ValueError(
                f"{error}; --on-bad-file skip leaves out such files and counts them"
            ) from error
        # The end of a reason is of the library, and differs from file to file.
        reason, _, _ = str(error).removeprefix(name).strip(": ").partition(": ")
        self.add(reason, name)

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return {reason: {"count", "first"}}."""
        return {
            key: {"count": self.counts[key], "first": self.first[key]}
            for key in sorted(self.counts)
        }


def advise_encoding(encoding: str, reasons: Iterable[str]) -> str:
    """Return how pieces that were left out for these reasons can be read; or ""."""
    if encoding == "voices" and any("voices with notes" in reason for reason in reasons):
        return "--encoding events reads pieces of any number of voices"
    return ""


def _check_splits(writer: StoreWriter, request: MusicRequest, noted: Mapping[str, int]) -> None:
    """Raise ValueError unless both splits have pieces.

    noted: {reason: number of pieces that were left out for it}.
    """
    omitted = "".join(f"; left out {count:,}: {reason}" for reason, count in sorted(noted.items()))
    advice = advise_encoding(request.encoding, noted)
    for split in SPLITS:
        if not writer.totals[split]["documents"]:
            count = sum(total["documents"] for total in writer.totals.values())
            raise ValueError(
                f"of {count:,} pieces of {', '.join(request.sources)} none is in the {split} "
                f"split: take more pieces, or another share than --held-out {request.held_out:g}"
                f"{omitted}{advice and f'; {advice}'}"
            )


def _read_source(name: str, encoding: MusicEncoding, omitted: _Omitted) -> Iterator[Piece]:
    """Yield the pieces of a source; files that cannot be read go to `omitted`."""
    if name == CHORALES:
        yield from read_chorales(list_chorales(), encoding.unit)
        return
    for path in list_midi_files(pathlib.Path(name)):
        try:
            piece = read_midi(path, encoding.unit)
        except ValueError as error:
            omitted.add_bad_file(error, str(path))
            continue
        yield piece


def list_midi_files(path: pathlib.Path) -> list[pathlib.Path]:
    """Return a MIDI file, or those below a folder that are not hidden, ordered by path.

    Raises FileNotFoundError if there are none.
    """
    if path.is_file():
        return [path]
    found: Iterable[pathlib.Path] = path.rglob("*") if path.is_dir() else ()
    files = sorted(
        one
        for one in found
        if one.suffix.lower() in ENDINGS
        and one.is_file()
        and not any(part.startswith(".") for part in one.relative_to(path).parts)
    )
    if not files:
        raise FileNotFoundError(
            f"{path}: no MIDI file there ({', '.join(ENDINGS)}); a source is {CHORALES!r}, a MIDI "
            "file, or a folder of them"
        )
    return files


def _is_held_out(ids: np.ndarray, encoding: MusicEncoding, share: float) -> bool:
    """Return whether a piece is held out, by a hash of its tokens relative to its lowest pitch."""
    pitch = find_pitches(encoding)[ids]
    relative = np.where(pitch >= 0, ids - pitch[pitch >= 0].min(initial=127), ids)
    digest = hashlib.sha256(relative.astype("<i4").tobytes()).digest()
    return int.from_bytes(digest[:4], "little") < share * NUM_BUCKETS
