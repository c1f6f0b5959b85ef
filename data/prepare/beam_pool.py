"""A fleet does what data/prepare/local_pool.py does, on the workers of a runner of Apache Beam: here, on Dataflow, Flink or Spark.

The jobs lie in a file, for the description of a pipeline may not be large. The pipeline spreads them over the workers,
which do them by the functions of data/prepare/jobs.py, and a TFDS builder stores what comes out as examples in shards. Beam
keeps no order, so each example has a key: the number of its job, and its own within the job. TFDS sorts by the keys;
a shard holds a range of them. The examples are read here in that order, one at a time; a gap is an error.

A worker holds a batch of documents while it encodes, the chosen text of a job while it draws the sample, and a shard
(under 1 GiB) while it sorts it. DirectRunner, which is Beam's for trying things out, holds all ids in memory.
"""

# apache-beam is optional.
# pyright: reportMissingImports=false

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import pathlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_datasets as tfds
from apache_beam.runners.runner import PipelineState
from etils import epath

from data.corpus.paths import as_path, is_remote
from data.corpus.sources import Piece
from data.prepare.jobs import Job, JobReport, PartFiles, encode_parts, sample_job, text_hash
from data.store.writer import FILES, OFFSETS, token_dtype
from data.vocabulary.load import load_vocabulary

SPLIT = "jobs"  # of the TensorFlow dataset
MOST = 1 << 32  # examples of a job
STORED = {
    2: np.uint16,
    4: np.int32,
}  # bytes of an id -> its type in an example; TensorFlow decodes no uint32


class Fleet(contextlib.AbstractContextManager):
    """The workers of a `beam_runner.Runner`. scratch: where they read vocabulary and jobs, and write their shards."""

    def __init__(self, runner, folder: pathlib.Path, console=None):
        self.runner, self.console = runner, console
        place = as_path(runner.scratch or folder)
        self._own = (
            epath.Path(place if is_remote(place) else place.absolute())
            / f"cloze-{uuid.uuid4().hex[:12]}"
        )
        self.scratch = self._own / "scratch"
        try:
            self.scratch.mkdir(parents=True)
        except Exception as error:  # of whatever library reads the bucket
            raise OSError(f"{place}: no folder can be made there ({error})") from error

    def sample(
        self, jobs: Iterable, total: int, thresholds: Sequence[int]
    ) -> Iterator[tuple[Job, tuple[list, JobReport]]]:
        """As Crew.sample."""
        return self._run(_Sampling(tuple(thresholds)), jobs, total, "reading")

    def encode(
        self,
        jobs: Iterable,
        total: int,
        vocabulary: pathlib.Path,
        threshold: int,
        parts: pathlib.Path,
    ) -> Iterator[tuple[Job, JobReport]]:
        """As Crew.encode."""
        dtype = token_dtype(load_vocabulary(vocabulary).size)
        return self._run(_Encoding(vocabulary, threshold, dtype, parts), jobs, total, "encoding")

    def _run(self, task, jobs: Iterable, total: int, title: str) -> Iterator[tuple[Job, Any]]:
        folder = self._own / f"{title}-{uuid.uuid4().hex[:12]}"
        folder.mkdir()
        count = self._write_jobs(folder / "jobs", jobs)
        if self.console:
            self.console.print(
                f"{title} {total:,} bytes on {self.runner.name} (jobs: {count:,})", highlight=False
            )
        builder = Shards(folder, task)
        self._store(builder)
        examples = builder.examples()
        for job in _read_jobs(folder / "jobs"):
            yield job, task.result(job, self._of_job(job, examples))
        if next(examples, None) is not None:
            raise ChildProcessError(f"{self.runner.name}: the shards hold more than was asked for")
        folder.rmtree()

    def _write_jobs(self, path: epath.Path, jobs: Iterable) -> int:
        """Write (source, pieces) of each job as a line; returns how many."""
        count = 0
        with path.open("w") as file:
            for source, pieces in jobs:
                for piece in pieces:
                    self.runner.check_reach(piece)
                file.write(
                    json.dumps([source, [dataclasses.astuple(piece) for piece in pieces]]) + "\n"
                )
                count += 1
        return count

    def _store(self, builder: "Shards") -> None:
        """Run the pipeline to its end; on an interruption, cancel it."""
        config = tfds.download.DownloadConfig(
            beam_runner=self.runner.make(),
            beam_options=self.runner.pipeline_options(),
            try_download_gcs=False,
        )
        tfds.disable_progress_bar()
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # TFDS tells of a download
                builder.download_and_prepare(download_config=config)
        except Exception as error:
            raise self.runner.told(error) from error
        finally:
            builder.cancel()

    def _of_job(self, job: Job, examples: Iterator[dict]) -> Iterator[dict]:
        """The examples of a job, which are the next ones; the last of them has its report."""
        for key in itertools.count(job.index * MOST):
            example = next(examples, {"key": None})
            if example["key"] != key:
                raise ChildProcessError(
                    f"{self.runner.name}: example {key} of the shards is missing or not in its place"
                )
            yield example
            if example["report"]:
                return

    def __exit__(self, *_):
        if self.runner.scratch is not None:  # else it goes with the folder that it is in
            self._own.rmtree()


# TFDS's registration takes this keyword; its annotations do not name it.
class Shards(tfds.core.BeamBasedBuilder, skip_registration=True):  # pyright: ignore[reportCallIssue, reportGeneralTypeIssues]
    """What the jobs in the file `folder`/jobs come to, in their order, as a TensorFlow dataset in `folder`."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, folder: epath.Path, task):
        self._jobs, self._task, self._pipeline = str(folder / "jobs"), task, None
        super().__init__(data_dir=folder)

    def _info(self) -> tfds.core.DatasetInfo:
        features = {"key": np.int64, "report": tfds.features.Text(), **self._task.features()}
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            disable_shuffling=True,  # whole numbers as keys are what it then sorts by
        )

    def _split_generators(self, manager, pipeline: beam.Pipeline) -> dict:
        self._pipeline = pipeline
        return {SPLIT: self._generate_examples()}

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

    def examples(self) -> Iterator[dict]:
        """All examples, by their keys."""
        in_order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        return self.as_dataset(
            split=SPLIT, shuffle_files=False, read_config=in_order
        ).as_numpy_iterator()


@dataclasses.dataclass(frozen=True)
class _Sampling:
    """`sample_job` as one example: its texts, whose hashes are made again here."""

    thresholds: tuple[int, ...]

    def features(self) -> dict:
        return {"texts": tfds.features.Sequence(tfds.features.Text())}

    def examples(self, job: Job) -> Iterator[dict]:
        parts, report = sample_job(job, self.thresholds)
        yield {"texts": [text for _, text in parts], "report": report.to_json()}

    def result(self, job: Job, examples: Iterator[dict]) -> tuple[list[tuple[int, str]], JobReport]:
        (example,) = examples
        return [(text_hash(raw), raw.decode()) for raw in example["texts"]], JobReport.from_json(
            example["report"]
        )


@dataclasses.dataclass(frozen=True)
class _Encoding:
    """`encode_job` as examples: what it writes, a batch of documents and a split each, and one that has the report."""

    vocabulary: pathlib.Path
    threshold: int
    dtype: np.dtype
    parts: pathlib.Path  # here

    def _dtypes(self) -> dict:
        return {"tokens": STORED[self.dtype.itemsize], "documents": OFFSETS, "sentences": OFFSETS}

    def features(self) -> dict:
        arrays = {
            file: tfds.features.Tensor(
                shape=(None,), dtype=dtype, encoding=tfds.features.Encoding.BYTES
            )
            for file, dtype in self._dtypes().items()
        }
        return {"split": tfds.features.Text(), **arrays}

    def examples(self, job: Job) -> Iterator[dict]:
        report = JobReport()
        for split, *arrays in encode_parts(job, self.vocabulary, self.threshold, report):
            yield self._example(split, arrays, "")
        yield self._example("", [()] * len(FILES), report.to_json())

    def _example(self, split: str, arrays: Sequence, report: str) -> dict:
        stored = {
            file: np.asarray(array, dtype)
            for (file, dtype), array in zip(self._dtypes().items(), arrays)
        }
        return {"split": split, "report": report, **stored}

    def result(self, job: Job, examples: Iterator[dict]) -> JobReport:
        with PartFiles(self.parts, job.index, self.dtype) as files:
            for example in examples:
                if example["report"]:
                    return JobReport.from_json(example["report"])
                files.write(example["split"].decode(), *(example[file] for file in FILES))
        raise AssertionError("the last example of a job has its report")


def _read_jobs(path) -> Iterator[Job]:
    with epath.Path(path).open() as file:
        for index, line in enumerate(file):
            source, pieces = json.loads(line)
            yield Job(index, source, tuple(Piece(*piece) for piece in pieces))


def _keyed_examples(task, job: Job) -> Iterator[tuple[int, dict]]:
    """What a worker makes of a job."""
    for key, example in enumerate(task.examples(job), job.index * MOST):
        yield key, {"key": key, **example}
