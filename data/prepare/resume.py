"""Go on with a `prepare` of files of the Hub that was killed: no file is downloaded again in vain.

Until the store is whole, the trained vocabulary and the results of each finished job of such files
are in a folder beside it, whose name has a digest of all on which they depend.
"""

import contextlib
import dataclasses
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from data.corpus.sources import InputChunk
from data.prepare.held_out import hash_text
from data.prepare.job_report import JobReport
from data.store.atomic import write_atomically
from data.store.manifest import STORE_VERSION
from data.vocabulary.load import Vocabulary, load_vocabulary

ORIGIN_FILE, DOWNLOADS_FOLDER, VOCABULARY_FOLDER = "origin.json", "downloads", "vocabulary"
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
