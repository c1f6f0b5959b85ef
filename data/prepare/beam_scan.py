"""The scan of a corpus for copies on Apache Beam, see data/prepare/cleaning.py."""

# pyright: reportMissingImports=false

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from data.prepare.cleaning import ScannedJob, scan_job
from data.prepare.job_report import JobReport
from data.prepare.jobs import Job

ARRAYS = ("columns", "runs", "owners")


@dataclasses.dataclass(frozen=True)
class ScanTask:
    """Runs `scan_job` and stores its arrays as one example.

    Attributes:
      cleaning: folder with the settings.
    """

    cleaning: Any

    def make_features(self) -> dict[str, Any]:
        """Return the features of an example; TensorFlow has no uint64 that it can decode."""
        feature = tfds.features.Tensor(
            shape=(None,), dtype=np.int64, encoding=tfds.features.Encoding.BYTES
        )
        return dict.fromkeys(ARRAYS, feature)

    def make_examples(self, job: Job) -> Iterator[dict[str, Any]]:
        """Run a job on a worker and yield its example."""
        report, *arrays = scan_job(job, self.cleaning)
        flat = {name: array.ravel().view(np.int64) for name, array in zip(ARRAYS, arrays)}
        yield {"report": report.to_json(), **flat}

    def collect_result(self, job: Job, examples: Iterator[dict[str, Any]]) -> ScannedJob:
        """Return the result of `scan_job` from the job's example."""
        (example,) = examples
        columns, runs, owners = (example[name] for name in ARRAYS)
        report = JobReport.from_json(example["report"])
        return ScannedJob(report, columns, runs.view(np.uint64), owners)
