"""What receives the rows of metrics in addition to the workdir's own files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from etils import epath

from data.members import call_later
from pretrain.config import Run, flatten_config, to_json
from pretrain.training.monitoring.options import Monitoring

PrometheusFile = call_later("pretrain.training.monitoring.prometheus:PrometheusFile")
BackgroundTracker = call_later("pretrain.training.monitoring.background:BackgroundTracker")
make_tracker = call_later("pretrain.training.monitoring.trackers:make_tracker")


class MetricsSink(Protocol):
    """Receives each row of metrics. A sink that fails never stops a run: it prints one line."""

    def write_row(self, row: Mapping[str, Any]) -> None:
        """Take a row with `step`."""
        ...

    def close(self, state: str) -> None:
        """Take how the run ended: "finished", "failed" or "preempted"."""
        ...


def open_sinks(
    monitoring: Monitoring,
    run: Run,
    workdir: epath.PathLike,
    log_message: Callable[[str], None],
) -> list[MetricsSink]:
    """Return the sinks of a run's metrics, for its first process."""
    sinks: list[MetricsSink] = []
    if monitoring.prometheus:
        sinks.append(PrometheusFile(monitoring.prometheus, workdir, log_message))
    if monitoring.tracker:
        tracker = make_tracker(monitoring.tracker, str(workdir))
        config = flatten_config(json.loads(to_json(run)))
        sinks.append(BackgroundTracker(monitoring.tracker, tracker, workdir, config, log_message))
    return sinks
