"""Download of the files of a repository that `import` and `prepare` read, into the user's cache.

The Hub declares the names, sizes and hashes of the files of a commit. The names come from a
list, so that no pickle and no code is ever downloaded; the sizes are compared with the disk and
with the memory before the download, and the files with the hashes after it.
"""

import dataclasses
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from data.corpus.hub.address import COMMIT, Address, parse_address
from data.corpus.hub.client import (
    HubError,
    hiding_progress_bars,
    is_offline,
    load_library,
    naming_hub_errors,
)
from data.corpus.hub.declared import DeclaredFile, check_content, read_declared
from data.corpus.untrusted import MAX_VOCABULARY_BYTES
from data.vocabulary.load import OTHER_FILES
from pretrain.convert.encodings.processor import PROCESSOR
from pretrain.convert.export_folder import MODULES, SHARD, SUBFOLDERS
from pretrain.convert.safe_folder import CONFIG, CONVERT_HINT, INDEX, UNSAFE, WEIGHTS
from pretrain.convert.size_checks import check_fits_memory

TOKENIZER_FILES = {
    *("spiece.model", "tokenizer.model", "vocab.txt", "vocab.json", "encoder.json"),
    *("tokenizer.json", PROCESSOR, *OTHER_FILES),
}
MODEL_FILE = re.compile(r"[\w-]{1,80}\.model", re.ASCII)  # of SentencePiece, under another name


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The files of a commit in the cache."""

    address: Address
    commit: str
    folder: pathlib.Path

    def __str__(self) -> str:
        return str(Address(self.address.repository, self.commit))


def fetch_repository(
    place: str, weights: bool = True, report: Callable[[str], Any] = print
) -> Snapshot:
    """Return the files of hf://USER/NAME[@REVISION] that are read here, downloaded if need be.

    With HF_HUB_OFFLINE they come from the cache.

    Args:
      weights: whether the model is fetched, and not only its tokenizer.

    Raises:
      ValueError: the address is malformed, the library is not installed, the repository has no
        weights that are read, or they do not fit the disk or the memory.
      HubError: the Hub cannot be reached, has no such revision, or sends other files than it
        declares.
    """
    address, library = parse_address(place), load_library()
    if is_offline():
        return _find_cached(library, address)
    api = library.HfApi()
    with naming_hub_errors(place):
        info = api.model_info(address.repository, revision=address.revision, files_metadata=True)
    if not COMMIT.fullmatch(info.sha or ""):
        raise HubError(f"{place}: the Hub names no commit of this revision")
    snapshot = Address(address.repository, info.sha)
    declared = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    names = choose_files(place, declared, weights)
    files = {name: read_declared(place, declared[name]) for name in names}
    missing = {
        name: file
        for name, file in files.items()
        if not isinstance(
            library.try_to_load_from_cache(address.repository, name, revision=info.sha), str
        )
    }
    check_sizes(place, files, missing, library.constants.HF_HUB_CACHE)
    size, needed = (sum(file.size for file in these.values()) for these in (files, missing))
    report(f"{snapshot}: {len(files)} files of {size:,} bytes, {needed:,} of them to download")
    with naming_hub_errors(place), hiding_progress_bars():
        folder = library.snapshot_download(
            address.repository, revision=info.sha, allow_patterns=list(files)
        )
        if address.revision != info.sha:  # for later runs without the network
            library.hf_hub_download(address.repository, names[0], revision=address.revision)
    for name, file in files.items():
        check_content(pathlib.Path(folder) / name, file)
    return Snapshot(address, info.sha, pathlib.Path(folder))


def _find_cached(library: Any, address: Address) -> Snapshot:
    """Return a snapshot that was downloaded before. Raises HubError if the cache has none."""
    for name in (CONFIG, *sorted(TOKENIZER_FILES)):
        path = library.try_to_load_from_cache(address.repository, name, revision=address.revision)
        if isinstance(path, str):
            folder = pathlib.Path(path).parent
            return Snapshot(address, folder.name, folder)
    raise HubError(
        f"{address}: is not in the cache {library.constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE "
        "forbids to fetch it; unset it"
    )


# ---- what is downloaded ------------------------------------------------------------


def choose_files(place: str, names: Mapping[str, Any], weights: bool = True) -> list[str]:
    """Return the names of the files that are read, the first one that every repository must have.

    Raises ValueError if there are no weights in `.safetensors` files.
    """
    if not weights:
        chosen = sorted(filter(_is_tokenizer_file, names)) + [CONFIG] * (CONFIG in names)
        if not chosen or chosen == [CONFIG]:
            raise ValueError(f"{place}: has no file of a tokenizer, such as tokenizer.json")
        return sorted(set(chosen))
    if CONFIG not in names:
        raise ValueError(
            f"{place}: has no {CONFIG}, so it is no model of transformers; it has "
            f"{', '.join(sorted(names)[:8]) or 'no files'}"
        )
    if not list(_list_weights(names, "")):
        if unsafe := sorted(name for name in names if name in UNSAFE):
            raise ValueError(f"{place}: has {unsafe[0]} but no {WEIGHTS}. {CONVERT_HINT}")
        raise ValueError(f"{place}: has no {WEIGHTS}; it has {', '.join(sorted(names)[:8])}")
    chosen = [CONFIG, *([MODULES] if MODULES in names else [])]
    for folder in ("", *(f"{name}/" for name in sorted(SUBFOLDERS))):
        if folder + CONFIG not in names:
            continue
        chosen += [folder + CONFIG, *_list_weights(names, folder)]
        chosen += sorted(
            name
            for name in names
            if name.startswith(folder) and _is_tokenizer_file(name.removeprefix(folder))
        )
    return list(dict.fromkeys(chosen))


def _is_tokenizer_file(name: str) -> bool:
    return name in TOKENIZER_FILES or bool(MODEL_FILE.fullmatch(name))


def _list_weights(names: Mapping[str, Any], folder: str) -> Iterator[str]:
    """Yield the one file, or the index and its files, as `FolderTensors` reads them."""
    own = {name.removeprefix(folder) for name in names if name.startswith(folder)}
    shards = sorted(filter(SHARD.fullmatch, own))
    if WEIGHTS in own:
        yield folder + WEIGHTS
    elif INDEX in own and shards:
        yield from (folder + name for name in (INDEX, *shards))


def check_sizes(
    place: str, files: Mapping[str, DeclaredFile], missing: Mapping[str, DeclaredFile], cache: str
) -> None:
    """Raise ValueError if the files are larger than what is read, the memory or the free disk.

    Args:
      missing: those that are not in the cache.
    """
    weights = 0
    for name, file in files.items():
        if name.endswith(".safetensors"):
            weights += file.size
        elif file.size > MAX_VOCABULARY_BYTES:
            raise ValueError(
                f"{place}: {name} has {file.size:,} bytes; at most {MAX_VOCABULARY_BYTES:,} are "
                "read"
            )
    try:
        check_fits_memory(weights // 4)  # no format that is read has more bytes per value
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    existing = os.path.abspath(cache)
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    needed, free = sum(file.size for file in missing.values()), shutil.disk_usage(existing).free
    if needed > free:
        raise ValueError(
            f"{place}: {needed:,} bytes are to be downloaded, and the disk of the cache {cache} "
            f"has {free:,} free; set HF_HUB_CACHE to a folder of a larger disk"
        )
