"""What gcloud and the workers of a pod answer."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

REPORT = re.compile(r"cloze-worker (\S+) ([a-z]+) (\d{1,9})\s*")


@dataclasses.dataclass(frozen=True)
class PodState:
    """The state of a queued resource.

    Attributes:
      state: gcloud's name of the state, such as "ACTIVE".
      initiator: who caused SUSPENDING or SUSPENDED: USER or SERVICE.
      type, spot, slices: as in `PodRequest`.
      error: why it FAILED, or "".
    """

    state: str
    initiator: str = ""
    type: str = ""
    spot: bool = False
    slices: int = 1
    error: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.error}" if self.error else self.state


@dataclasses.dataclass(frozen=True)
class WorkerReport:
    """The state of the training on one worker.

    Attributes:
      state: running, exited, stopped (by `pod stop`), lost (ended without a status), idle (never
        started) or empty (nothing was pushed).
    """

    host: str
    state: str
    exit_status: int


def parse_state(answer: Any) -> PodState | None:
    """Return the state in the JSON of gcloud's `describe`; None for a JSON of another form."""
    try:
        nodes = answer.get("tpu", {}).get("nodeSpec") or [{}]
        state = answer.get("state", {})
        found = PodState(
            state.get("state", "UNKNOWN"),
            state.get("stateInitiator", ""),
            nodes[0].get("node", {}).get("acceleratorType", ""),
            "spot" in answer,
            max(len(nodes), int(nodes[0].get("multisliceParams", {}).get("nodeCount", 1))),
            state.get("failedData", {}).get("error", {}).get("message", ""),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    texts = found.state, found.initiator, found.type, found.error
    return found if all(isinstance(text, str) for text in texts) else None


def parse_report(line: str) -> WorkerReport | None:
    """Return the report in a line that worker.sh printed; None for a damaged one."""
    found = REPORT.fullmatch(line)
    return WorkerReport(found[1], found[2], int(found[3])) if found else None
