"""Read and check the manifest of a token store."""

import pathlib
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from data.corpus.buckets import check_bucket
from data.corpus.paths import is_remote
from data.corpus.untrusted import parse_bounded_json, read_bounded
from data.source import MANIFEST_FILE, SPLITS

STORE_VERSION = 2
SPLIT_FILES = ("tokens", "documents", "sentences")
# The manifest of a store of fine-tuning examples has one of these (data/examples/example_store.py).
EXAMPLE_ENTRIES = frozenset({"labels", "questions", "text"})
OFFSET_DTYPE = np.dtype("<i8")
LABEL_DTYPE = np.dtype("<f4")
LABEL_WIDTH = "label_width"  # entry of the manifest: components of a label that is a vector
MOST_COMPONENTS = 1 << 16  # of a label
CHECKSUMS_FOLDER = "checksums"
READERS_FILE = "readers"  # an empty file of a generation, which its readers lock
# The name of a generation's folder: a hash of its contents, and a number where that name is taken.
GENERATION_NAME = re.compile(r"[0-9a-f]{12}(-\d{1,4})?")
# Bytes that have a checksum: about 2,000 tokens, so damage affects few documents.
BLOCK_BYTES = 1 << 12
FILE_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
CHECKSUM = re.compile(r"[0-9a-f]{8}")
TOKEN_DTYPES = ("<u2", "<u4", "|u1")
# A source takes about 20 values, a file four.
MAX_BYTES, MAX_VALUES = 64 << 20, 2_000_000
UNITS = ("tokens", "documents", "sentences")


def is_file_list(files: Any) -> bool:
    """Return whether a value is {name in a generation: {"bytes": int, "crc32c": str}}."""
    return isinstance(files, dict) and all(
        FILE_NAME.fullmatch(name)
        and isinstance(entry, dict)
        and _is_count(entry.get("bytes"))
        and CHECKSUM.fullmatch(str(entry.get("crc32c")))
        for name, entry in files.items()
    )


def read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """Return the manifest of the store in a folder.

    Raises:
      FileNotFoundError: if the folder has no manifest.
      ValueError: if the manifest is broken or of another version.
    """
    check_bucket(folder)
    path = folder / MANIFEST_FILE
    if not path.exists():
        reason = "no such folder" if not folder.exists() else f"no {MANIFEST_FILE} in it"
        remedy = f"`prepare SOURCE... --output {folder}` writes one"
        if is_remote(folder):
            remedy = f"`gcloud storage cp -r STORE {folder}` copies one there"
        raise FileNotFoundError(f"{folder} is not a token store ({reason}); {remedy}")
    try:
        content = read_bounded(path, MAX_BYTES)
        manifest = parse_bounded_json(content, path, MAX_VALUES, finite=False)
    except ValueError as error:
        raise ValueError(f"{path} is broken: {error}") from error
    if not isinstance(manifest, dict) or "version" not in manifest:
        raise ValueError(f"{path} is broken: it has no version")
    if manifest["version"] != STORE_VERSION:
        remedy = "prepare it again (--overwrite)"
        if not is_own(manifest):
            remedy = "it is of a newer version of Cloze, or of another program; name another folder"
        raise ValueError(
            f"{path}: version {manifest['version']!r:.80} of the store, this program reads "
            f"{STORE_VERSION}: {remedy}"
        )
    files = manifest.get("files")
    if not GENERATION_NAME.fullmatch(str(manifest.get("generation"))) or not is_file_list(files):
        raise ValueError(f"{path} is broken: it names no generation, or files outside of it")
    if problem := find_problem(manifest):
        raise ValueError(f"{path} is broken: {problem}")
    return manifest


def is_own(manifest: Any) -> bool:
    """Return whether this program, in this version or an earlier one, wrote a manifest.

    Such a manifest is whole: it has the vocabulary's fingerprint, and each file with its size, its
    checksum and the counts that explain the size. No other program's manifest.json has.
    """
    return (
        isinstance(manifest, dict)
        and type(manifest.get("version")) is int
        and 1 <= manifest["version"] <= STORE_VERSION
        and (
            manifest["version"] == 1
            or GENERATION_NAME.fullmatch(str(manifest.get("generation"))) is not None
        )
        and is_file_list(manifest.get("files"))
        and find_problem(manifest) is None
    )


def read_own_manifest(folder: pathlib.Path) -> dict[str, Any] | None:
    """Return the manifest of a store in a folder; None where nothing proves that it is a store."""
    path = folder / MANIFEST_FILE
    try:
        manifest = parse_bounded_json(read_bounded(path, MAX_BYTES), path, MAX_VALUES, finite=False)
    except (OSError, ValueError):
        return None
    return manifest if is_own(manifest) else None


def find_problem(manifest: Mapping[str, Any]) -> str | None:
    """Return the first entry that readers of the store cannot rely on, or None.

    The counts of a split decide how much of its files is mapped, so they must match the
    files' sizes.
    """
    if manifest.get("dtype") not in TOKEN_DTYPES:
        return f"dtype is {manifest.get('dtype')!r:.80}, not one of {', '.join(TOKEN_DTYPES)}"
    vocabulary = manifest.get("vocabulary")
    if not isinstance(vocabulary, dict) or not isinstance(vocabulary.get("fingerprint"), str):
        return f"vocabulary is {vocabulary!r:.80}, which has no fingerprint"
    splits = manifest.get("splits")
    if not isinstance(splits, dict) or not set(SPLITS) <= splits.keys():
        return f"splits is {splits!r:.80}, not an object of {' and '.join(SPLITS)}"
    width = manifest.get(LABEL_WIDTH, 1)
    if type(width) is not int or not 1 <= width <= MOST_COMPONENTS:
        return f"{LABEL_WIDTH} is {width!r:.80}, not 1 to {MOST_COMPONENTS}"
    for name in SPLITS:
        if not isinstance(splits[name], dict) or not all(
            _is_count(splits[name].get(unit)) for unit in UNITS
        ):
            return f"splits.{name} is {splits[name]!r:.80}, not the counts of {', '.join(UNITS)}"
        for file, size in _list_sizes(name, splits[name], manifest):
            if file not in manifest["files"] or manifest["files"][file]["bytes"] != size:
                return (
                    f"splits.{name} is {splits[name]!r:.120}, so {file} should have {size:,} bytes"
                )
    sources = manifest.get("sources")
    if not isinstance(sources, list) or not sources:
        return f"sources is {sources!r:.80}, not a list of sources"
    unlike = next((source for source in sources if not _is_source(source, splits)), None)
    if unlike is not None:
        return f"sources has {unlike!r:.200}, not a name, a rate and ranges of documents"
    for name in SPLITS:
        ranges = [source[name]["documents"] for source in sources]
        starts, stops = zip(*ranges)
        if (*starts, splits[name]["documents"]) != (0, *stops):
            return (
                f"sources has the ranges {ranges!r:.120} of splits.{name}, which do not follow one "
                f"another up to its {splits[name]['documents']:,} documents"
            )
    kinds = {"labels": list} | dict.fromkeys(
        ("silent", "text", "music", "images", "captions"), dict
    )
    for key, kind in kinds.items():
        if not isinstance(manifest.get(key, kind()), kind | None):
            return f"{key} is {manifest[key]!r:.80}"
    return None


def _list_sizes(
    split: str, counts: Mapping[str, int], manifest: Mapping[str, Any]
) -> list[tuple[str, int]]:
    """Return (file, bytes that it must have) of the arrays of a split."""
    files, widths = manifest["files"], {"tokens": np.dtype(manifest["dtype"]).itemsize}
    sizes = [
        (
            f"{split}/{unit}.bin",
            (counts[unit] + (unit in ("documents", "sentences")))
            * widths.get(unit, np.dtype(OFFSET_DTYPE).itemsize),
        )
        for unit in SPLIT_FILES
    ]
    for file, unit in (("labels", "documents"), ("tags", "sentences")):
        if (name := f"{split}/{file}.bin") in files:
            width = manifest.get(LABEL_WIDTH, 1) if file == "labels" else 1
            sizes.append((name, counts[unit] * width * np.dtype(LABEL_DTYPE).itemsize))
    return sizes


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 60


def _is_source(source: Any, splits: Mapping[str, Any]) -> bool:
    """Return whether a value is a source with ranges of the splits' documents."""
    if not (
        isinstance(source, dict)
        and isinstance(source.get("name"), str)
        and type(source.get("rate")) in (int, float)
        and 0 <= source["rate"] <= sys.float_info.max
    ):
        return False
    return all(_is_range(source.get(name), splits[name]["documents"]) for name in SPLITS)


def _is_range(units: Any, count: int) -> bool:
    """Return whether a value is {"documents": [start, stop], ...} of so many documents."""
    documents = units.get("documents") if isinstance(units, dict) else None
    return (
        isinstance(documents, list)
        and len(documents) == 2
        and all(map(_is_count, documents))
        and documents[0] <= documents[1] <= count
    )


def get_checksums_name(name: str) -> str:
    """Return the name of the file with the checksums of a file's blocks."""
    return f"{CHECKSUMS_FOLDER}/{name.replace('/', '.')}"
