"""Hold out whole families of documents: those with one value of a field (`prepare --held-out-by`).

Otherwise a relative of a held-out protein, or another page of a held-out site, would be trained on.
A file of clusters (`--clusters`) says which values belong together: the name of the cluster and the
name of a member on each line, with a tab between them, as MMseqs2 writes it.

The workers share the hashes of the names in files, so a file of a hundred million lines fits. The
saved result of a job (data/prepare/resume.py) would not say which members it had, so none is saved
where there are clusters.
"""

import array
import contextlib
import functools
import hashlib
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from data.corpus.byte_files import open_bytes
from data.prepare.held_out import hash_document, hash_text
from data.prepare.job_report import JobReport
from data.prepare.request import PrepareRequest

MAX_LINE_BYTES = 1 << 16
MEMBERS, CLUSTERS, LINES, SEEN = "members.npy", "clusters.npy", "lines.npy", "seen.npy"
UNNAMED = "documents without the field of --held-out-by (held out by their text)"
UNCLUSTERED = "documents that --clusters does not name (families of their own)"


def check_families(request: PrepareRequest, on_beam: bool) -> None:
    """Raise ValueError for options that decide otherwise what is held out."""
    if request.held_out_by is None:
        if request.clusters is not None:
            raise ValueError(
                f"--clusters {request.clusters} needs --held-out-by, the field with the names of "
                "its members: --held-out-by id for the names in FASTA headers"
            )
        return
    cleaning = request.cleaning
    others = {
        "--validation": request.validation,
        "--drop-duplicates": cleaning and cleaning.drop_duplicates,
        "--decontaminate": cleaning and cleaning.decontaminate,
        "--runner": on_beam,
    }
    if given := [name for name, value in others.items() if value]:
        raise ValueError(
            f"--held-out-by {request.held_out_by} with {given[0]}, which decides by the text or "
            "file of a document, or on another machine, what is held out: give one of them"
        )


def identify_clusters(request: PrepareRequest) -> list[dict[str, Any]]:
    """Return the name, size and digest of the file of clusters, as a manifest records them."""
    if request.clusters is None:
        return []
    with open(request.clusters, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
        return [{"name": "--clusters", "bytes": file.tell(), "digest": digest}]


def write_families(request: PrepareRequest, folder: pathlib.Path) -> pathlib.Path | None:
    """Write for the workers what decides the family of a document; None without families.

    Raises:
      ValueError: a line of the file of clusters that does not name a cluster and a member, or a
        member of two clusters.
    """
    if request.held_out_by is None:
        return None
    folder.mkdir()
    if request.clusters is None:
        return folder
    names, numbers = (array.array("Q"), array.array("Q")), array.array("Q")
    for number, cluster, member in _read_clusters(request.clusters):
        for hashes, name in zip(names, (cluster, member)):
            hashes.append(hash_text(name))
        numbers.append(number)
    clusters, members, lines = (np.array(one, np.uint64) for one in (*names, numbers))
    order = np.argsort(members, kind="stable")
    clusters, members, lines = clusters[order], members[order], lines[order]
    is_again = members[1:] == members[:-1]
    if (is_other := is_again & (clusters[1:] != clusters[:-1])).any():
        i = int(is_other.argmax())
        member = _find_member(request.clusters, int(lines[i + 1]))
        raise ValueError(
            f"{request.clusters}, line {lines[i + 1]}: {member} is in another cluster on line "
            f"{lines[i]}"
        )
    is_first = np.insert(~is_again, 0, True)[: len(members)]
    for file, values in ((MEMBERS, members), (CLUSTERS, clusters), (LINES, lines)):
        np.save(folder / file, values[is_first])
    np.save(folder / SEEN, np.zeros(int(is_first.sum()), np.uint8))
    return folder


def check_members(request: PrepareRequest, folder: pathlib.Path | None) -> None:
    """Raise ValueError for a member of a cluster that no document has, after all were read."""
    if folder is None or request.clusters is None:
        return
    lines = np.load(folder / LINES, allow_pickle=False)
    unseen = lines[np.load(folder / SEEN, allow_pickle=False) == 0]
    if len(unseen):
        line = int(unseen.min())
        raise ValueError(
            f"{request.clusters}, line {line}: no record, or only an empty one, has "
            f"{_find_member(request.clusters, line)} in its field {request.held_out_by}; so it is "
            f"for {len(unseen):,} of {len(lines):,} members"
        )


@functools.lru_cache(maxsize=1)
def open_families(folder: pathlib.Path) -> "Families":
    """Return the families of a folder that `write_families` wrote, once in each process."""
    return Families(folder)


class Families:
    """The families of documents, as hashes."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.members = self.clusters = self.seen = np.zeros(0, np.uint64)
        self.has_clusters = (folder / MEMBERS).exists()
        if self.has_clusters:
            self.members = np.load(folder / MEMBERS, allow_pickle=False, mmap_mode="r")
            self.clusters = np.load(folder / CLUSTERS, allow_pickle=False, mmap_mode="r")
            # Shared by all processes.
            self.seen = np.load(folder / SEEN, allow_pickle=False, mmap_mode="r+")

    def hash_documents(self, batch: Sequence[Any], report: JobReport) -> np.ndarray:
        """Return uint64, the hash of each document's family, which decides if it is held out.

        A name such as sp|P12345|HUMAN may also be a member as P12345, as which MMseqs2 writes it.

        Args:
          batch: `data.prepare.batches.BatchDocument`s.
        """
        hashes = np.array(
            [
                hash_document(one.raw) if one.family is None else hash_text(one.family.encode())
                for one in batch
            ],
            np.uint64,
        )
        is_named = np.array([one.family is not None for one in batch])
        for i in np.flatnonzero(~is_named).tolist():
            report.add_note(UNNAMED, *batch[i].place)
        if not self.has_clusters:
            return hashes
        places, is_member = self.find_members(hashes)
        for i in np.flatnonzero(is_named & ~is_member).tolist():
            accession = batch[i].family.split("|")[1:2]
            other = np.array([hash_text(part.encode()) for part in accession], np.uint64)
            if not accession or not self.find_members(other)[1][0]:
                report.add_note(UNCLUSTERED, *batch[i].place)
                continue
            places[i], is_member[i] = self.find_members(other)[0][0], True
        is_member &= is_named
        self.seen[places[is_member]] = 1
        return np.where(is_member, self.clusters[places], hashes)

    def find_members(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the place of each hash among the members, and whether it is one of them."""
        places = np.minimum(np.searchsorted(self.members, hashes), len(self.members) - 1)
        return places, self.members[places] == hashes


def _read_clusters(path: str) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (line, name of the cluster, name of the member) of each line."""
    with contextlib.ExitStack() as stack:
        file, _ = open_bytes(path, stack)
        for number in itertools.count(1):
            line = file.readline(MAX_LINE_BYTES)
            if not line:
                break
            names = line.strip(b"\r\n").split(b"\t")
            if len(names) != 2 or not all(names):
                raise ValueError(
                    f"{path}, line {number}: {line[:60].decode('utf-8', 'replace').strip()!r} is "
                    "not the name of a cluster and the name of a member with a tab between them"
                )
            yield number, names[0], names[1]
        if number == 1:
            raise ValueError(f"{path}: no cluster is in it")


def _find_member(path: str, line: int) -> str:
    """Return the name of the member on a line, which is one."""
    names = next(itertools.islice(_read_clusters(path), line - 1, None))
    return repr(names[2].decode("utf-8", "replace"))
