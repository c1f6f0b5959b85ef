"""The undisturbed runs with which tortured ones are compared, and the rows that they read."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import shutil

from benchmarks.reliability import torture_verdict as verdict
from benchmarks.reliability.torture_clock import make_clock
from benchmarks.reliability.torture_run import Failed, TorturedRun
from benchmarks.reliability.torture_schedule import BATCH_SIZE, CHANGES, DEVICES, STEPS

# Tests' settings of XLA, before JAX is imported; then forks of tests/forks.py are possible.
from tests import conftest as _settings  # noqa: F401
from tests.faults.conftest import write_config
from tests.faults.faulty import digest_rows


class References:
    """Configurations and undisturbed runs of the models, each made once."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Keep everything in `folder`, which is emptied first."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        # Before the first start: a fork has the variables of libraries that its server began with.
        self.clock, environment = make_clock(folder)
        os.environ.update(environment)
        self.get_config = functools.cache(self._write_config)
        self.get_run = functools.cache(self._train)
        self.get_rows = functools.cache(self._list_rows)

    def _write_config(self, model: str):
        folder = self.folder / model
        folder.mkdir()
        return write_config(folder, model)

    def _train(self, model: str) -> TorturedRun:
        """Train a model undisturbed, twice: the second run finds its programs compiled, as the
        starts of a tortured run do, and so gives the pace.
        """
        path, _, _ = self.get_config(model)
        runs = []
        for name in ("first", "second"):
            folder = self.folder / model / name
            folder.mkdir()
            runs.append(TorturedRun(path, folder, folder / "notes"))
            try:
                runs[-1].finish_run(DEVICES, BATCH_SIZE)
            finally:
                runs[-1].end_processes()
        first, second = (verdict.read_fingerprints(run.workdir, STEPS) for run in runs)
        if first != second:
            raise Failed("two undisturbed runs differ")
        return runs[-1]

    def _list_rows(self, model: str) -> list[str]:
        """Return the digests of the rows of a run, in order, one at a time in closed form."""
        from data.pipeline import Stream

        _, run, store = self.get_config(model)
        largest = max(size for _, _, sizes in CHANGES.values() for size in sizes)
        single = dataclasses.replace(run.data, batch_size=1)
        stream = Stream(store, single, seed=run.train.seed)
        return [digest_rows(stream.build_batch(i))[0] for i in range(STEPS * largest)]
