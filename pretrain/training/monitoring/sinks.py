"""What receives the rows of metrics beside the workdir's own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
from etils import epath

from pretrain.training.monitoring.options import Monitoring
from pretrain.training.monitoring.prometheus import PrometheusFile


class MetricsSink(Protocol):
    """Receives each row of metrics. A sink that fails never stops a run: it prints one line."""

    def write_row(self, row: Mapping[str, Any]) -> None:
        """Take a row with `step`."""
        ...

    def close(self, state: str) -> None:
        """Take how the run ended: "finished", "failed" or "preempted"."""
        ...


def open_sinks(
    monitoring: Monitoring, workdir: epath.Path, log_message: Callable[[str], None]
) -> list[MetricsSink]:
    """Return the sinks of a run's metrics; only the first process has any.

    Args:
      log_message: prints a line.
    """
    if jax.process_index():
        return []
    sinks: list[MetricsSink] = []
    if monitoring.prometheus:
        sinks.append(PrometheusFile(monitoring.prometheus, workdir, log_message))
    return sinks
