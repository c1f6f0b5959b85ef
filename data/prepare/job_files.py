"""The files in which `prepare` collects the ids of each job."""

import pathlib
from typing import IO, Self

import numpy as np

from data.store.manifest import OFFSET_DTYPE, SPLIT_FILES


def get_job_path(folder: pathlib.Path, job: int, split: str, file: str) -> pathlib.Path:
    """Return the path of a job's file of ids or lengths of one split."""
    return folder / f"{job}.{split}.{file}"


class JobFiles:
    """The files of a job; each is created when its first document is written."""

    def __init__(self, folder: pathlib.Path, job: int, dtype: np.dtype) -> None:
        self._folder, self._job, self._dtype = folder, job, dtype
        self._open: dict[tuple[str, str], IO[bytes]] = {}

    def write_documents(
        self, split: str, ids: np.ndarray, documents: np.ndarray, sentences: np.ndarray
    ) -> None:
        """Append whole documents: their ids, tokens of each document, tokens of each sentence."""
        for file, array in zip(
            SPLIT_FILES,
            (
                ids.astype(self._dtype),
                documents.astype(OFFSET_DTYPE),
                sentences.astype(OFFSET_DTYPE),
            ),
        ):
            if (split, file) not in self._open:
                path = get_job_path(self._folder, self._job, split, file)
                self._open[split, file] = open(path, "wb")  # noqa: SIM115 - `__exit__` closes it
            self._open[split, file].write(array.data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()
