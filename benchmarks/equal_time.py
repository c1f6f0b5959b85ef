"""Pretrain several models for equal time, as steps in proportion to their rates."""

from __future__ import annotations

import json
import pathlib
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.harness import MALLOC_ENVIRONMENT
from benchmarks.program_turns import ProgramTurn, run_to_end, take_turns

# (name of a model, steps) -> its configuration and overrides
ListWords = Callable[[str, int], list[str]]


def make_environment(folder: pathlib.Path) -> dict[str, str]:
    """Return the environment variables of every training."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache"), "JAX_PLATFORMS": "cpu"}
    return MALLOC_ENVIRONMENT | cache


class EqualTime:
    """Models that are pretrained for the time of a reference.

    Attributes:
      folder: of the measured rates, the compilation cache and what is being measured.
      list_words: returns the configuration and overrides of a model for a number of steps.
      reference: name of the model that is measured again with models that are added later.
    """

    def __init__(self, folder: pathlib.Path, list_words: ListWords, reference: str) -> None:
        self.folder, self.list_words, self.reference = folder, list_words, reference

    def start_measuring(self, name: str) -> ProgramTurn:
        """Start a training, stopped, of which the speed is measured."""
        workdir = self.folder / f"{name}_speed"
        shutil.rmtree(workdir, ignore_errors=True)  # of an earlier command
        config, *overrides = self.list_words(name, 1_000_000)
        train = [sys.executable, "-m", "pretrain", "train", config, "--workdir", workdir]
        return ProgramTurn(
            [*train, *overrides],
            workdir / "metrics.jsonl",
            "loss",
            make_environment(self.folder),
            self.folder / f"{name}_speed.log",
        )

    def measure_rates(self, names: Sequence[str], seconds: float) -> dict[str, float]:
        """Return the steps a second of each model, which train in turns.

        Those before the first loss in the file, and compilation with them, are not counted.

        Raises:
          RuntimeError: a model did not train for long enough.
        """
        starts = {name: partial(self.start_measuring, name) for name in names}
        scores = take_turns(starts, seconds, seconds / 8)
        for name, rows in scores.items():
            if not rows or rows[-1][0] <= rows[0][0]:
                raise RuntimeError(
                    f"{name} did not report two losses, one after the other, in its turns: "
                    f"give --measure above {seconds:g}"
                )
        return {
            name: (rows[-1][1] - rows[0][1]) / (rows[-1][0] - rows[0][0])
            for name, rows in scores.items()
        }

    def find_steps(self, names: Sequence[str], minutes: float, measure: float) -> dict[str, int]:
        """Return {name: steps of pretraining}, which `FOLDER/steps.json` has from then on.

        Models that are added later are measured next to the reference, whose steps do not change.

        Args:
          names: models.
          minutes: of training, at the measured rates.
          measure: seconds in which each model's rate is measured.
        """
        path = self.folder / "steps.json"
        steps: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        if missing := [name for name in names if name not in steps]:
            measured = list({self.reference: None, **dict.fromkeys(missing)})
            rates = self.measure_rates(measured, measure)
            steps.setdefault(self.reference, round(60 * minutes * rates[self.reference]))
            scale = steps[self.reference] / rates[self.reference]
            steps |= {name: round(scale * rates[name]) for name in missing}
            path.write_text(json.dumps(steps))
        return steps

    def pretrain_model(self, name: str, workdir: pathlib.Path, steps: int, *overrides: str) -> None:
        """Train a model unless it is trained, or continue where it was stopped."""
        if not (workdir / "finished").exists():
            config, *words = self.list_words(name, steps)
            train = [sys.executable, "-m", "pretrain", "train", config, "--workdir", workdir]
            run_to_end([*train, *words, *overrides], make_environment(self.folder))
            (workdir / "finished").touch()
