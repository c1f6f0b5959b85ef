"""The flags of `train` and `finetune` that watch a run.

They are no fields of the configuration: no result depends on them. This module does not import JAX.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re

from pretrain.host.extras import how_to_install
from pretrain.settings.arguments import format_optional
from pretrain.settings.overrides import ConfigError
from pretrain.settings.verb_options import VerbOptions, option

PROMETHEUS_START = b"# TYPE cloze_"  # of each file that --prometheus has written
TRACKERS = {"wandb": "Weights & Biases", "mlflow": "MLflow"}


class MonitoringOptions(VerbOptions):
    """The options that watch a run."""

    profile: str | None = option(
        "trace these steps and write the trace below the workdir (docs/watching.md)",
        default=None,
        metavar="FIRST:LAST",
    )
    prometheus: str | None = option(
        "write the newest metrics to this file, for node_exporter's textfile collector",
        default=None,
        converter=format_optional,
        metavar="FILE.prom",
    )
    tracker: str | None = option(
        "also log metrics, configuration and end state to Weights & Biases or MLflow",
        default="none",
        choices=("none", *TRACKERS),
    )


@dataclasses.dataclass(frozen=True)
class StepRange:
    """The steps from `first` to `last`, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}:{self.last}"


@dataclasses.dataclass(frozen=True)
class Monitoring:
    """How a run is watched.

    Attributes:
      profile: the steps to trace, or None.
      prometheus: the file of the newest metrics, or None.
      tracker: one of TRACKERS, or None.
    """

    profile: StepRange | None = None
    prometheus: str | None = None
    tracker: str | None = None

    def choose_file(self, seed: int) -> Monitoring:
        """Return the same for one of several seeds, with a file of metrics of its own."""
        if self.prometheus is None:
            return self
        path = f"{self.prometheus.removesuffix('.prom')}-seed-{seed}.prom"
        return dataclasses.replace(self, prometheus=check_prometheus_path(path))


UNWATCHED = Monitoring()


def parse_step_range(text: str, last_step: int) -> StepRange:
    """Return the range FIRST:LAST of a run that ends after `last_step`."""
    match = re.fullmatch(r"([0-9]{1,18}):([0-9]{1,18})", text)
    if not match:
        raise ConfigError(f"--profile {text}: expected two steps FIRST:LAST, such as 100:105")
    steps = StepRange(int(match[1]), int(match[2]))
    if steps.first < 1:
        raise ConfigError(f"--profile {text}: the first step of a run is 1")
    if steps.first > steps.last:
        raise ConfigError(
            f"--profile {text}: the first step is after the last; expected FIRST:LAST, such as "
            f"{steps.last}:{steps.first}"
        )
    if steps.last > last_step:
        raise ConfigError(
            f"--profile {text}: the run ends after step {last_step}; name steps up to it, or set "
            "train.steps or train.stop_at_step to a larger number"
        )
    return steps


def check_prometheus_path(path: str) -> str:
    """Return the path of a file for node_exporter's textfile collector."""
    if not path.endswith(".prom"):
        raise ConfigError(
            f"--prometheus {path}: expected a file NAME.prom, the only ones that node_exporter's "
            "textfile collector reads"
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ConfigError(f"--prometheus {path}: there is no folder {folder}")
    if os.path.isdir(path) or not os.access(folder, os.W_OK):
        raise ConfigError(f"--prometheus {path}: it is a folder, or {folder} cannot be written")
    if os.path.isfile(path):
        with open(path, "rb") as file:
            start = file.read(len(PROMETHEUS_START))
        if start and start != PROMETHEUS_START:
            raise ConfigError(
                f"--prometheus {path}: the file there has metrics of another program; name another "
                "file"
            )
    return path


def check_tracker(name: str) -> str | None:
    """Return the name of a tracker whose package is installed; None for `none`."""
    if name == "none":
        return None
    if name not in TRACKERS:
        raise ConfigError(f"--tracker {name}: must be none, {' or '.join(TRACKERS)}")
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:  # A folder of that name without code has no origin.
        raise ConfigError(
            f"--tracker {name}: the package {name} of {TRACKERS[name]} is missing; install it by "
            f"`{how_to_install(name)}`"
        )
    return name


def make_monitoring(options: MonitoringOptions, last_step: int) -> Monitoring:
    """Return how a run that ends after `last_step` is watched.

    Raises:
      ConfigError: an option is not valid, or the package of a tracker is missing.
    """
    profile, prometheus = options.profile, options.prometheus
    return Monitoring(
        profile=None if profile is None else parse_step_range(profile, last_step),
        prometheus=None if prometheus is None else check_prometheus_path(prometheus),
        tracker=check_tracker(options.tracker or "none"),
    )
