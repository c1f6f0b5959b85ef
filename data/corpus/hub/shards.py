"""Read a dataset of the Hugging Face Hub, hf://datasets/NAME[/CONFIG][:SPLIT][@REVISION].

The revision is resolved once to a commit. Each file is downloaded, compared with the size and hash
that the Hub declares, read, and removed, so that the whole is never on the disk.
"""

import contextlib
import dataclasses
import errno
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from data.corpus.hub.address import COMMIT, MAIN, check_repository, check_revision
from data.corpus.hub.client import (
    HubError,
    check_online,
    hiding_progress_bars,
    load_library,
    naming_hub_errors,
)
from data.corpus.hub.declared import DeclaredFile, compute_hash
from data.corpus.hub.layout import DEFAULT_SPLIT, choose_files
from data.corpus.paths import DATASETS

KIND = "dataset"  # of a repository, as the library names it
README = "README.md"
CONFIG_NAME = re.compile(r"[\w.+ -]{1,200}", re.ASCII)
ASKED_AT_ONCE = 500  # files whose sizes one request asks for
FORM = f"{DATASETS}USER/NAME[/CONFIG][:SPLIT][@REVISION]"


@dataclasses.dataclass(frozen=True)
class DatasetAddress:
    """A split of a dataset.

    Attributes:
      config: "" for the default configuration.
    """

    repository: str
    config: str
    split: str
    revision: str


@dataclasses.dataclass(frozen=True)
class FoundFiles:
    """The files of a split.

    Attributes:
      files: (hf://datasets/NAME@COMMIT/FILE, bytes, a number of its hash) of each, in order.
    """

    commit: str
    files: tuple[tuple[str, int, int], ...]


def parse_dataset(text: str) -> DatasetAddress:
    """Return the address in a text. Raises ValueError, which names what is wrong."""
    rest, mark, revision = text.removeprefix(DATASETS).partition("@")
    path, colon, split = rest.partition(":")
    parts = path.split("/")
    config = parts.pop() if len(parts) == 3 else ""
    if len(parts) > 2 or (colon and not split):
        raise ValueError(f"{text}: expected {FORM}")
    repository = check_repository("/".join(parts), text)
    for name in filter(None, (config, split)):
        if not CONFIG_NAME.fullmatch(name) or name.startswith("."):
            raise ValueError(
                f"{text}: {name[:80]!r} is no name of a configuration or split; expected {FORM}"
            )
    revision = check_revision(revision, text) if mark else MAIN
    return DatasetAddress(repository, config, split or DEFAULT_SPLIT, revision)


def find_files(place: str, ends: Sequence[str]) -> FoundFiles:
    """Return the commit and the files of a dataset's split.

    Args:
      ends: the ends of the names of the files that are read.

    Raises:
      ValueError: the address is malformed, the library is missing, or there is no such split.
      HubError: the Hub cannot be reached, refuses, or has no such dataset or revision.
    """
    address, library = parse_dataset(place), load_library()
    check_online(f"{place} (or download it where there is a network: hf download --repo-type "
                 f"dataset {address.repository}; it prints the folder to name)")  # fmt: skip
    api = library.HfApi()
    with naming_hub_errors(place):
        info = api.dataset_info(address.repository, revision=address.revision)
    if not COMMIT.fullmatch(info.sha or ""):
        raise HubError(f"{place}: the Hub names no commit of this revision")
    base, readme = f"{DATASETS}{address.repository}@{info.sha}/", b""
    names = [sibling.rfilename for sibling in info.siblings or ()]
    if README in names:
        with download_file(base + README, "", shown=place) as path:
            readme = path.read_bytes()
    chosen = choose_files(place, names, readme, address.config, address.split, ends)
    files = []
    for i in range(0, len(chosen), ASKED_AT_ONCE):
        with naming_hub_errors(place):
            found = api.get_paths_info(
                address.repository,
                chosen[i : i + ASKED_AT_ONCE],
                revision=info.sha,
                repo_type=KIND,
            )
        described = {entry.path: entry for entry in found}
        for name in chosen[i : i + ASKED_AT_ONCE]:
            if name not in described:
                raise HubError(f"{place}: the Hub declares no size of {name}")
            entry = described[name]
            digest = entry.lfs.sha256 if entry.lfs else entry.blob_id
            files.append((base + name, int(entry.size), int(digest[:12], 16)))
    return FoundFiles(info.sha, tuple(files))


@contextlib.contextmanager
def download_file(url: str, folder: str, shown: str = "") -> Iterator[pathlib.Path]:
    """Yield a local copy of a file of a dataset, which is removed when the block ends.

    A file that the library's cache has is read there, and stays.

    Args:
      url: hf://datasets/NAME@COMMIT/FILE.
      folder: where the copy is written; "": where temporary files are.
      shown: what errors begin with; "": the URL.

    Raises:
      HubError: the Hub cannot be reached, refuses, or sends other bytes than it declares.
      OSError: the disk has no room for the file.
    """
    repository, _, rest = url.removeprefix(DATASETS).partition("@")
    commit, _, name = rest.partition("/")
    library, shown = load_library(), shown or url
    with naming_hub_errors(shown):
        address = library.hf_hub_url(repository, name, repo_type=KIND, revision=commit)
        declared = _read_metadata(shown, library.get_hf_file_metadata(address))
    cached = library.try_to_load_from_cache(repository, name, revision=commit, repo_type=KIND)
    if isinstance(cached, str):
        _check(shown, pathlib.Path(cached), declared)
        yield pathlib.Path(cached)
        return
    with tempfile.TemporaryDirectory(prefix="shard-", dir=folder or None) as own:
        if declared.size > (free := shutil.disk_usage(own).free):
            raise OSError(
                errno.ENOSPC,
                f"No space left on device: {shown} has {declared.size:,} bytes, and {free:,} are "
                "free",
            )
        with naming_hub_errors(shown), hiding_progress_bars():
            path = library.hf_hub_download(
                repository, name, revision=commit, repo_type=KIND, local_dir=own
            )
        _check(shown, pathlib.Path(path), declared)
        yield pathlib.Path(path)


def _read_metadata(place: str, metadata: Any) -> DeclaredFile:
    """Return the size and hash in the headers of a file. Raises HubError if one is missing."""
    size, etag = metadata.size, metadata.etag or ""
    if not isinstance(size, int) or size < 0 or len(etag) not in (40, 64):
        raise HubError(f"{place}: the Hub declares no size or no hash of the file")
    return DeclaredFile(size, etag if len(etag) == 64 else "", etag if len(etag) == 40 else "")


def _check(place: str, path: pathlib.Path, declared: DeclaredFile) -> None:
    """Raise HubError unless a file has the size and hash that the Hub declares."""
    size = path.stat().st_size
    wanted = declared.sha256 or declared.blob
    if size != declared.size or compute_hash(path, declared) != wanted:
        raise HubError(
            f"{place}: {size:,} bytes came that are not the file that the Hub declares (of "
            f"{declared.size:,} bytes, {'SHA-256' if declared.sha256 else 'git blob'} {wanted}); "
            "run the command again"
        )
