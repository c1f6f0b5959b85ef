"""`train --prometheus FILE.prom`: the newest metrics for node_exporter's textfile collector.

The format is the text exposition format 0.0.4 of Prometheus. Each metric is a gauge, `cloze_NAME`,
with the workdir as a label. A character that a name may not have becomes `_`, and the label `key`
then has the metric's own name, so that no two series are the same.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from data.store.atomic import write_atomically

PREFIX = "cloze_"
TIME_KEY = "row_timestamp_seconds"


class PrometheusFile:
    """A file that always holds the newest value of each metric, replaced atomically."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        workdir: str | os.PathLike[str],
        log_message: Callable[[str], None],
        seconds: float = 1.0,
    ) -> None:
        """Write nothing yet.

        Args:
          seconds: the least time between two writes; the last row is always written.
        """
        self.path, self.workdir = path, os.fspath(workdir)
        self.log_message, self.seconds = log_message, seconds
        self.values: dict[str, float] = {}
        self.last_write = -math.inf
        self.num_failures = 0

    def write_row(self, row: Mapping[str, Any]) -> None:
        """Take the numbers of a row; the others keep their newest values."""
        self.values |= {key: value for key, value in row.items() if isinstance(value, (int, float))}
        self.values[TIME_KEY] = time.time()
        if time.monotonic() - self.last_write >= self.seconds:
            self._write_file()

    def close(self, state: str) -> None:
        """Write the newest values and whether the run has `state`."""
        del state  # A file that is no longer written shows it by its timestamp.
        if self.values:
            self._write_file()
        if self.num_failures > 1:
            self.log_message(f"{self.path} could not be written {self.num_failures} times")

    def _write_file(self) -> None:
        self.last_write = time.monotonic()
        text = format_exposition(self.values, {"workdir": self.workdir})
        try:
            write_atomically(self.path, text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            self.num_failures += 1
            if self.num_failures == 1:
                self.log_message(
                    f"--prometheus {self.path} cannot be written, the run continues: {error}"
                )


def format_exposition(values: Mapping[str, float], labels: Mapping[str, str]) -> str:
    """Return the text exposition format of gauges with the same labels."""
    families: dict[str, list[str]] = {}
    for key, value in sorted(values.items()):
        name = PREFIX + re.sub(r"[^a-zA-Z0-9_]", "_", key)
        pairs = dict(labels) | ({} if name == PREFIX + key else {"key": key})
        inside = ",".join(f'{label}="{escape_label(text)}"' for label, text in pairs.items())
        families.setdefault(name, []).append(f"{name}{{{inside}}} {format_number(value)}")
    lines = []
    for name, series in families.items():
        lines += [f"# TYPE {name} gauge", *series]
    return "".join(f"{line}\n" for line in lines)


def escape_label(text: str) -> str:
    """Return a label's value as it stands between quotation marks."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def format_number(value: float) -> str:
    """Return a number as Prometheus reads it."""
    if math.isnan(value):
        return "NaN"
    return ("+Inf" if value > 0 else "-Inf") if math.isinf(value) else repr(value)
