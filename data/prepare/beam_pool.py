"""A pool of Apache Beam workers: local, or of Dataflow, Flink or Spark.

It runs the same jobs as data/prepare/local_pool.py. A file lists the jobs, since the description of
a pipeline has to be small. The pipeline distributes them to the workers, which run the functions of
data/prepare/jobs.py, and a TFDS builder stores the results as examples in shards. Beam does not
preserve order, so the key of an example is the number of its job and its number within the job.
TFDS sorts by key. The examples are read here in this order, one at a time; a gap is an error.

A worker has in memory: a batch of documents while it encodes, the sampled text of a job while it
samples, and a shard (below 1 GiB) while it sorts. DirectRunner, which Beam offers for tests, has
all ids in memory.
"""

# pyright: reportMissingImports=false

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import pathlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam  # optional
import numpy as np
import tensorflow_datasets as tfds
from apache_beam.runners.runner import PipelineState
from etils import epath
from rich.console import Console

from data.corpus.paths import as_path, is_remote
from data.corpus.sources import InputChunk
from data.members import import_member
from data.prepare.held_out import hash_text
from data.prepare.job_report import DROP_DTYPE, JobFiles, JobReport
from data.prepare.jobs import Job, Jobs, encode_batches, open_cleaner, sample_job
from data.store.manifest import OFFSET_DTYPE, SPLIT_FILES
from data.store.writer import choose_token_dtype
from data.vocabulary.load import load_vocabulary

JOBS_SPLIT = "jobs"  # the split of the TensorFlow dataset
MAX_JOB_EXAMPLES = 1 << 32  # maximal number of examples of a job
# {bytes of an id: its dtype in an example}; TensorFlow does not decode uint32.
EXAMPLE_DTYPES = {2: np.uint16, 4: np.int32}


class BeamPool(contextlib.AbstractContextManager):
    """Runs jobs on the workers of a Beam runner.

    Attributes:
      scratch: folder with the built-in corpus and the vocabulary, which the workers read.
    """

    def __init__(self, runner: Any, folder: pathlib.Path, console: Console | None = None) -> None:
        """Make the folder for jobs and shards, in the runner's scratch folder or in `folder`."""
        self.runner, self.console = runner, console
        parent = as_path(runner.scratch or folder)
        root = epath.Path(parent if is_remote(parent) else parent.absolute())
        self._own = root / f"cloze-{uuid.uuid4().hex[:12]}"
        self.scratch = self._own / "scratch"
        try:
            self.scratch.mkdir(parents=True)
        except Exception as error:  # storage libraries have no common exception
            raise OSError(f"{parent}: no folder can be made there ({error})") from error

    def sample_jobs(
        self,
        jobs: Jobs,
        total: int,
        thresholds: Sequence[int],
        cleaning: pathlib.Path | None = None,
    ) -> Iterator[tuple[Job, tuple[list[tuple[int, str]], JobReport]]]:
        """Yield (job, result of `sample_job`) in order, as the local pool does."""
        return self._run_task(_SampleTask(tuple(thresholds), cleaning), jobs, total, "reading")

    def scan_jobs(self, jobs: Jobs, total: int, cleaning: Any) -> Iterator[tuple[Job, Any]]:
        """Yield (job, result of `scan_job`) in order, as the local pool does."""
        task = import_member("data.prepare.beam_scan:ScanTask")(cleaning)
        return self._run_task(task, jobs, total, "comparing")

    def encode_jobs(
        self,
        jobs: Jobs,
        total: int,
        vocabulary: pathlib.Path,
        thresholds: Sequence[int],
        parts: pathlib.Path,
        cleaning: pathlib.Path | None = None,
        families: None = None,
    ) -> Iterator[tuple[Job, JobReport]]:
        """Yield (job, its report) in order, after its files are written, as the local pool does.

        families: refused before (data/prepare/families.py).
        """
        dtype = choose_token_dtype(load_vocabulary(vocabulary))
        task = _EncodeTask(vocabulary, tuple(thresholds), dtype, parts, cleaning)
        return self._run_task(task, jobs, total, "encoding")

    def _run_task(self, task: Any, jobs: Jobs, total: int, title: str) -> Iterator[tuple[Job, Any]]:
        """Run a pipeline and yield (job, result of the task) in order."""
        folder = self._own / f"{title}-{uuid.uuid4().hex[:12]}"
        folder.mkdir()
        count = self._write_jobs(folder / "jobs", jobs)
        if self.console:
            message = f"{title} {total:,} bytes on {self.runner.name} (jobs: {count:,})"
            self.console.print(message, highlight=False)
        builder = Shards(folder, task)
        self._run_pipeline(builder)
        examples = builder.iterate_examples()
        for job in _read_jobs(folder / "jobs"):
            yield job, task.collect_result(job, self._take_job_examples(job, examples))
        if next(examples, None) is not None:
            name = self.runner.name
            raise ChildProcessError(f"{name}: the shards have more examples than the jobs")
        folder.rmtree()

    def _write_jobs(self, path: epath.Path, jobs: Jobs) -> int:
        """Write (source, chunks) of each job as a line of JSON and return the number of jobs."""
        count = 0
        with path.open("w") as file:
            for source, chunks in jobs:
                for chunk in chunks:
                    self.runner.check_reach(chunk)
                record = [source, [dataclasses.astuple(chunk) for chunk in chunks]]
                file.write(json.dumps(record) + "\n")
                count += 1
        return count

    def _run_pipeline(self, builder: "Shards") -> None:
        """Run the pipeline to its end, or cancel it if this process is interrupted."""
        config = tfds.download.DownloadConfig(
            beam_runner=self.runner.make_runner(),
            beam_options=self.runner.make_pipeline_options(),
            try_download_gcs=False,
        )
        tfds.disable_progress_bar()
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # TFDS announces a download
                builder.download_and_prepare(download_config=config)
        except Exception as error:
            raise self.runner.unwrap_error(error) from error
        finally:
            builder.cancel()

    def _take_job_examples(
        self, job: Job, examples: Iterator[dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the next examples up to the one with the job's report.

        Raises ChildProcessError if one is missing.
        """
        for key in itertools.count(job.index * MAX_JOB_EXAMPLES):
            example = next(examples, {"key": None})
            if example["key"] != key:
                raise ChildProcessError(
                    f"{self.runner.name}: example {key} of the shards is missing or out of order"
                )
            yield example
            if example["report"]:
                return

    def __exit__(self, *_: object) -> None:
        if self.runner.scratch is not None:  # otherwise it is removed with its parent
            self._own.rmtree()


# TFDS's registration takes this keyword, but its annotations do not have it.
class Shards(tfds.core.BeamBasedBuilder, skip_registration=True):  # pyright: ignore[reportCallIssue, reportGeneralTypeIssues]
    """The results of the jobs in the file `folder`/jobs, as a TensorFlow dataset in `folder`."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, folder: epath.Path, task: Any) -> None:
        self._jobs, self._task, self._pipeline = str(folder / "jobs"), task, None
        super().__init__(data_dir=folder)

    def _info(self) -> tfds.core.DatasetInfo:
        features = {"key": np.int64, "report": tfds.features.Text(), **self._task.make_features()}
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            disable_shuffling=True,  # sorts by key, which has to be an integer
        )

    def _split_generators(
        self, manager: tfds.download.DownloadManager, pipeline: beam.Pipeline
    ) -> dict[str, beam.PTransform]:
        self._pipeline = pipeline
        return {JOBS_SPLIT: self._generate_examples()}

    def _generate_examples(self) -> beam.PTransform:
        return (
            beam.Create([self._jobs])
            | "ReadJobs" >> beam.FlatMap(_read_jobs)
            | "Spread" >> beam.Reshuffle()
            | "Do" >> beam.FlatMap(functools.partial(_keyed_examples, self._task))
        )

    def cancel(self) -> None:
        """End the pipeline if it still runs on other machines."""
        result = getattr(self._pipeline, "result", None)
        if result is not None and not PipelineState.is_terminal(result.state):
            result.cancel()

    def iterate_examples(self) -> Iterator[dict[str, Any]]:
        """Return all examples in the order of their keys."""
        in_order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        return self.as_dataset(
            split=JOBS_SPLIT, shuffle_files=False, read_config=in_order
        ).as_numpy_iterator()


@dataclasses.dataclass(frozen=True)
class _SampleTask:
    """Runs `sample_job` and stores its texts as one example; the hashes are recomputed here."""

    thresholds: tuple[int, ...]
    cleaning: pathlib.Path | None

    def make_features(self) -> dict[str, Any]:
        """Return the features of an example."""
        return {"texts": tfds.features.Sequence(tfds.features.Text())}

    def make_examples(self, job: Job) -> Iterator[dict[str, Any]]:
        """Run a job on a worker and yield its example."""
        sample, report = sample_job(job, self.thresholds, self.cleaning)
        yield {"texts": [text for _, text in sample], "report": report.to_json()}

    def collect_result(
        self, job: Job, examples: Iterator[dict[str, Any]]
    ) -> tuple[list[tuple[int, str]], JobReport]:
        """Return the result of `sample_job` from the job's example."""
        (example,) = examples
        sample = [(hash_text(raw), raw.decode()) for raw in example["texts"]]
        return sample, JobReport.from_json(example["report"])


@dataclasses.dataclass(frozen=True)
class _EncodeTask:
    """Runs `encode_job` and stores its arrays as examples.

    An example has the documents of one batch and split; the last one has the report.

    Attributes:
      thresholds: for each source, the hash below which a document is held out.
      dtype: dtype of the ids in a store.
      cleaning: folder that says which documents are dropped; None: none are.
    """

    vocabulary: pathlib.Path
    thresholds: tuple[int, ...]
    dtype: np.dtype
    parts: pathlib.Path
    cleaning: pathlib.Path | None

    def _list_dtypes(self) -> dict[str, Any]:
        """Return the dtype of each array of an example."""
        arrays = {
            "tokens": EXAMPLE_DTYPES[self.dtype.itemsize],
            "documents": OFFSET_DTYPE,
            "sentences": OFFSET_DTYPE,
        }
        return arrays | ({} if self.cleaning is None else {"drops": DROP_DTYPE})

    def make_features(self) -> dict[str, Any]:
        """Return the features of an example."""
        arrays = {
            file: tfds.features.Tensor(
                shape=(None,), dtype=dtype, encoding=tfds.features.Encoding.BYTES
            )
            for file, dtype in self._list_dtypes().items()
        }
        return {"split": tfds.features.Text(), **arrays}

    def make_examples(self, job: Job) -> Iterator[dict[str, Any]]:
        """Run a job on a worker and yield its examples."""
        report, nothing = JobReport(), [()] * len(SPLIT_FILES)
        cleaner = None if self.cleaning is None else open_cleaner(self.cleaning, job)

        def list_drops() -> list[np.ndarray]:
            return [] if cleaner is None else [cleaner.take_drops().ravel()]

        batches = encode_batches(job, self.vocabulary, self.thresholds, report, cleaner)
        for split, *arrays in batches:
            yield self._make_example(split, arrays + list_drops(), "")
        yield self._make_example("", nothing + list_drops(), report.to_json())

    def _make_example(self, split: str, arrays: Sequence[Any], report: str) -> dict[str, Any]:
        stored = {
            file: np.asarray(array, dtype)
            for (file, dtype), array in zip(self._list_dtypes().items(), arrays)
        }
        return {"split": split, "report": report, **stored}

    def collect_result(self, job: Job, examples: Iterator[dict[str, Any]]) -> JobReport:
        """Write the job's files from its examples and return the report."""
        with JobFiles(self.parts, job.index, self.dtype) as files:
            for example in examples:
                if self.cleaning is not None:
                    files.write_drops(example["drops"])
                if example["report"]:
                    return JobReport.from_json(example["report"])
                arrays = (example[file] for file in SPLIT_FILES)
                files.write_documents(example["split"].decode(), *arrays)
        raise AssertionError("the last example of a job has its report")


def _read_jobs(path: str | epath.Path) -> Iterator[Job]:
    """Yield the jobs of a file that `_write_jobs` wrote."""
    with epath.Path(path).open() as file:
        for index, line in enumerate(file):
            source, chunks = json.loads(line)
            yield Job(index, source, tuple(InputChunk(*chunk) for chunk in chunks))


def _keyed_examples(task: Any, job: Job) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run a job on a worker and yield (key, example)."""
    for key, example in enumerate(task.make_examples(job), job.index * MAX_JOB_EXAMPLES):
        yield key, {"key": key, **example}
