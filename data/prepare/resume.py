"""What `prepare` leaves: the store, the results of a killed process, and nothing on a full disk.

No file of the Hub is downloaded again in vain: until the store is whole, the trained vocabulary and
the results of each finished job of such files are in a folder beside it, whose name has a digest of
all on which they depend.
"""

import contextlib
import dataclasses
import errno
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from data.corpus.sources import InputChunk
from data.prepare.held_out import hash_text
from data.prepare.job_report import JobReport
from data.prepare.request import SPARSE_OPTIONS
from data.source import MANIFEST_FILE
from data.store import generations
from data.store.atomic import write_atomically
from data.store.manifest import STORE_VERSION
from data.store.reader import Store
from data.vocabulary.load import Vocabulary, load_vocabulary

FULL = (errno.ENOSPC, errno.EDQUOT)
ORIGIN_FILE, DOWNLOADS_FOLDER, VOCABULARY_FOLDER = "origin.json", "downloads", "vocabulary"
PART = "part"  # entry of the manifest of a part (data/prepare/parts.py): its number
TRAINED_FILE = "trained.json"  # written after the vocabulary

Sample = tuple[list[tuple[int, str]], JobReport]  # the result of `sample_job`


@contextlib.contextmanager
def open_resume_folder(
    output: pathlib.Path, origin: dict[str, Any], job_bytes: int
) -> Iterator[pathlib.Path]:
    """Yield the folder of the results of one request, which is removed if the block succeeds.

    The folders of other requests for the same store are removed first.

    Args:
      output: the store; one process at a time prepares it.
      origin: the request and the identities of its inputs, as a manifest records them.
    """
    text = json.dumps([STORE_VERSION, job_bytes, origin], sort_keys=True)
    folder = output.parent / f".{output.name}.resume-{hash_text(text.encode()):016x}"
    for other in output.parent.glob(f".{output.name}.resume-*"):
        if other != folder and (other / ORIGIN_FILE).is_file():
            shutil.rmtree(other)
    folder.mkdir(exist_ok=True)
    write_atomically(folder / ORIGIN_FILE, text)
    shutil.rmtree(folder / DOWNLOADS_FOLDER, ignore_errors=True)  # of a process that was killed
    (folder / DOWNLOADS_FOLDER).mkdir()
    yield folder
    shutil.rmtree(folder)


# ---- a full disk -------------------------------------------------------------


@contextlib.contextmanager
def explain_full_disk(
    output: pathlib.Path, text_bytes: int, resumes: bool = False
) -> Iterator[None]:
    """Raise an error of a full disk within the block with the free space and the remedy.

    Args:
      output: folder of the store; its scratch folder, next to it, is removed by then.
      text_bytes: bytes of the sources' files; 0 if they are not known.
      resumes: whether the results so far stay for the next run.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or error.filename != str(output):
            raise
        free = shutil.disk_usage(output.parent).free
        text = f" of {text_bytes:,} bytes of text" if text_bytes else ""
        left = "The same command goes on there" if resumes else "Nothing of it is left there"
        raise OSError(
            f"{output}: {error.strerror}: a store{text} needs more than the {free:,} bytes that "
            f"are free in {output.parent}. {left}, and a store that was there is unchanged. Remove "
            "other files, or name another --output"
        ) from error


# ---- the store ---------------------------------------------------------------


def open_existing(output: pathlib.Path, origin: dict[str, Any], overwrite: bool) -> Store | None:
    """Return the store at `output`, or None if there is none or it will be overwritten.

    Args:
      origin: the request and the identities of its inputs, as a manifest records them; of a part,
        also its number.
    """
    if overwrite or not (output / MANIFEST_FILE).exists():
        generations.read_replaced(output)
        return None
    store = Store.open(output)
    differ = [
        f"{key}: {recorded.get(key)!r} in the store, {requested.get(key)!r} requested"
        for recorded, requested in _pair_descriptions(store.manifest, origin)
        for key in (*requested, *(SPARSE_OPTIONS - requested.keys()))
        if recorded.get(key) != requested.get(key)
    ]
    if differ:
        raise FileExistsError(
            f"{output} is a store of other options or inputs ({'; '.join(differ)}); "
            "--overwrite replaces it"
        )
    return store


def _pair_descriptions(
    manifest: dict[str, Any], origin: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield (recorded, requested) descriptions: the request's and each input's.

    The digest of an encoder is left out where an older manifest did not record it.
    """
    yield manifest.get("request", {}), origin["request"]
    yield {PART: manifest.get(PART, "none")}, {PART: origin.get(PART, "none")}
    recorded = {entry["name"]: entry for entry in manifest.get("inputs", ())}
    for entry in origin["inputs"]:
        before = recorded.get(entry["name"], {})
        yield before, {key: entry[key] for key in entry if key in before or key != "encoder_digest"}


# ---- the vocabulary ----------------------------------------------------------


def save_trained(folder: pathlib.Path, vocabulary: Vocabulary, sampled_bytes: list[int]) -> None:
    """Save a trained vocabulary, and the bytes of each source's text on which it was trained."""
    vocabulary.save(folder / VOCABULARY_FOLDER)
    write_atomically(folder / TRAINED_FILE, json.dumps({"sampled_bytes": sampled_bytes}))


def load_trained(folder: pathlib.Path) -> tuple[Vocabulary, list[int]] | None:
    """Return what `save_trained` saved; None if it did not."""
    if not (folder / TRAINED_FILE).exists():
        return None
    sizes = json.loads((folder / TRAINED_FILE).read_text())["sampled_bytes"]
    return load_vocabulary(folder / VOCABULARY_FOLDER), sizes


# ---- jobs --------------------------------------------------------------------


def find_sample(chunks: tuple[InputChunk, ...], threshold: int) -> Sample | None:
    """Return the saved sample of a job; None if there is none."""
    path = find_result_path(chunks, f"sample {threshold}")
    if path is None or not path.exists():
        return None
    saved = json.loads(path.read_text())
    return [(value, text) for value, text in saved["sample"]], JobReport.from_json(saved["report"])


def save_sample(
    chunks: tuple[InputChunk, ...], threshold: int, sample: list, report: JobReport
) -> None:
    """Save the sample of a job of files of the Hub."""
    if path := find_result_path(chunks, f"sample {threshold}"):
        write_atomically(path, json.dumps({"sample": sample, "report": report.to_json()}))


def get_report_path(parts: pathlib.Path, job: int) -> pathlib.Path:
    """Return the path of the report that says that the files of a job are whole."""
    return parts / f"{job}.report"


def find_report(chunks: tuple[InputChunk, ...], parts: pathlib.Path, job: int) -> JobReport | None:
    """Return the saved report of a job whose files are whole; None if there is none."""
    path = get_report_path(parts, job)
    return JobReport.from_json(path.read_text()) if _resumes(chunks) and path.exists() else None


def save_report(
    chunks: tuple[InputChunk, ...], parts: pathlib.Path, job: int, report: JobReport
) -> None:
    """Record that the files of a job of files of the Hub are whole."""
    if _resumes(chunks):
        write_atomically(get_report_path(parts, job), report.to_json())


def _resumes(chunks: tuple[InputChunk, ...]) -> bool:
    """Return whether the results of a job are saved."""
    return bool(chunks) and bool(chunks[0].downloads)


def find_result_path(chunks: tuple[InputChunk, ...], use: str) -> pathlib.Path | None:
    """Return the path of a result of a job; None if it is not saved."""
    if not _resumes(chunks):
        return None
    described = json.dumps([use, [dataclasses.astuple(chunk) for chunk in chunks]])
    return pathlib.Path(chunks[0].downloads).parent / f"{hash_text(described.encode()):016x}"
