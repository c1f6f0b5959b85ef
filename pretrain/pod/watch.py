"""Watch a training on a pod until it ends; request a preempted pod again and restart the training.

The watch keeps only a few counts between two looks: each look asks gcloud for the pod's state and
takes the next step. So it can be interrupted and started again (`pod watch`) at any time. It
deletes only a queued resource that Google itself has suspended or that has failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pretrain.distributed.watchdog import HUNG
from pretrain.pod import archive
from pretrain.pod.gcloud import GcloudError

if TYPE_CHECKING:
    from pretrain.pod.gcloud import Pod, PodRequest, WorkerReport

COMING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING")
GONE = ("SUSPENDED", "FAILED")
# Number of looks: how long workers may disagree, how long a run must last to count as healthy, and
# how long an error may turn out to be a preemption.
PATIENT = 10


class Over(Exception):
    """The watch ends with the exit status `status`; the text is the reason."""

    def __init__(self, status: int, text: str) -> None:
        """Set the exit status and the reason."""
        super().__init__(text)
        self.status = status


class Watch:
    """The watch over one training.

    Attributes:
      failures: failures in a row.
      healthy_looks: looks in a row at which all workers ran.
      unsettled_looks: looks in a row at which some workers had ended and others might still follow.
      unanswered_looks: looks in a row at which no worker answered.
      deleted_by_watch: whether this watch deleted the queued resource.
      needs_refill: whether the pod is new or will be: nothing is pushed or started on it.
      logged_lines: the last line logged, by kind.
    """

    def __init__(
        self,
        pod: Pod,
        request: PodRequest,
        words: Sequence[str],
        env: Mapping[str, str],
        poll: float = 60.0,
        tries: int = 20,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Set up a watch.

        Args:
          request: the pod to request after a preemption.
          arguments: the arguments of `python -m pretrain` to start the training with.
          env: the training's environment variables.
          poll: seconds between looks. After failures the wait doubles, up to 30 times as long.
          tries: failures in a row (of gcloud, of queued resources, of trainings that ended by a
            signal) after which the watch gives up. `PATIENCE_LOOKS` looks at a running training
            reset it.
          sleep: waits for a number of seconds.
        """
        self.pod, self.request, self.words, self.env = pod, request, words, env
        self.poll, self.tries, self.sleep = poll, tries, sleep
        self.failures = self.well = self.odd = self.deaf = 0
        self.ours = False
        self.empty = False
        self.said: dict[str, str] = {}

    def run(self) -> int:
        """Watch until the training has ended and return the exit status."""
        while True:
            try:
                try:
                    wait = self.look()
                except GcloudError as error:
                    wait = self.failed(str(error))
            except Over as over:
                self.tell(str(over))
                return over.status
            self.sleep(wait)

    def look(self) -> float:
        """Look at the pod once, take the next step and return the seconds until the next look."""
        state = self.pod.describe()
        name = state.name if state else "absent"
        self.note("pod", f"pod {self.pod.name} is {name}")
        if state is None:
            return self.create()
        if name == "DELETING" and not self.ours:
            raise Over(
                1, f"someone else is deleting pod {self.pod.name}: it is not requested again"
            )
        if name in GONE:
            return self.lost(name, state.initiator)
        if name != "ACTIVE":  # starting or stopping
            return self.poll
        reports = self.ask()
        if reports is None:
            return self.lost("its nodes are PREEMPTED")
        if self.empty:
            self.refill(reports)
            return self.poll
        return self.judge(reports)

    def create(self) -> float:
        """Request the pod again, if this watch deleted it, and return the wait."""
        if not self.ours:
            raise Over(1, f"someone else deleted pod {self.pod.name}: it is not requested again")
        self.pod.create(self.request)
        self.ours = False
        self.tell(f"requested {self.request.slices} x {self.request.type} again")
        return self.poll

    def lost(self, name: str, initiator: str = "") -> float:
        """Delete a dead queued resource, which still holds the name and the quota.

        Args:
          name: its state.
          initiator: who suspended it: USER or SERVICE.
        """
        if initiator == "USER":
            raise Over(
                1,
                f"a user suspended pod {self.pod.name}: it is not requested again; "
                "`pod delete` removes what remains of it",
            )
        wait = self.failed(
            f"pod {self.pod.name} was taken away ({name}); "
            "its queued resource is deleted, then requested again"
        )
        self.ours = self.empty = True
        self.pod.delete()
        return wait

    def refill(self, reports: Sequence[WorkerReport], tree: str | None = None) -> None:
        """Push the same code to the new pod and start the same training.

        Args:
          tree: name of the folder to push to; the hash of the archive by default.
        """
        path = archive.cache(self.pod.name)
        self.tell("the pod is new: pushing the same code, then starting the same training")
        # Some workers may run it already, from an earlier attempt that not all workers received.
        if any(report.state == "running" for report in reports):
            self.pod.worker("stop", "force")
        self.pod.push(path, tree or archive.identity(path))
        self.start()
        self.empty = False

    def start(self) -> None:
        """Start the training on all workers."""
        self.pod.worker("start", *self.words, env=self.env)
        self.well = self.odd = 0

    def ask(self) -> list[WorkerReport] | None:
        """Return the workers' reports; None if they are unavailable because the nodes are gone.

        Raises:
          GcloudError: if no worker answers for another reason.
        """
        try:
            reports = self.pod.reports()
            if not reports:
                raise GcloudError("no worker answered")
        except GcloudError:
            self.deaf += 1
            if self.deaf >= 3 and {"PREEMPTED", "TERMINATED"} & set(
                self.pod.nodes(self.request.slices)
            ):
                self.deaf = 0
                return None
            raise
        self.deaf = 0
        return reports

    def judge(self, reports: Sequence[WorkerReport]) -> float:
        """Act on the workers' reports and return the seconds until the next look."""
        if all(report.state == "empty" for report in reports):
            self.empty = True
            return 0.0
        ended = [report for report in reports if report.state != "running"]
        num_running = len(reports) - len(ended)
        self.note(
            "training",
            f"training: {num_running} of {len(reports)} workers run" + describe(ended),
        )
        if not ended:
            self.odd, self.well = 0, self.well + 1
            if self.well >= PATIENT:
                self.failures = 0
            return self.poll
        # A worker that hangs causes the errors of the others.
        hung = any(report.code == HUNG for report in ended)
        broken = [
            report
            for report in ended
            if report.state == "exited" and 0 < report.code < 128 and not hung
        ]
        # Other workers may still be saving. An apparent error may be another worker's preemption,
        # which gcloud reports later.
        is_final = len(ended) == len(reports) and not (broken and self.request.spot)
        if not is_final and self.odd < PATIENT:
            self.odd += 1
            return self.poll
        if num_running:
            self.tell("some workers have ended and others still run: stopping those")
            self.pod.worker("stop", "force")
        return self.over(ended, broken)

    def over(self, ended: Sequence[WorkerReport], broken: Sequence[WorkerReport]) -> float:
        """Finish the watch, or restart a training that another attempt may complete.

        Args:
          ended: reports of the workers on which it has ended.
          broken: those of them that ended by an error of the program.

        Raises:
          Over: if the training completed, was stopped by request or failed by its own error.
        """
        stopped = [report.code for report in ended if report.state == "stopped"]
        if stopped:
            raise Over(
                stopped[0],
                "the training was stopped by `pod stop`; the same `pod run` resumes it",
            )
        if broken:
            first = broken[0]
            raise Over(
                first.code,
                f"the training failed on {first.host} with status {first.code}; "
                "it is not restarted: see `pod logs`",
            )
        if all(report.state == "exited" and report.code == 0 for report in ended):
            raise Over(
                0,
                "the training is done. The pod is still there and costs money: "
                f"`pod delete --name {self.pod.name}`",
            )
        wait = self.failed(
            "the training was killed by a signal, hung, or ended without a status" + describe(ended)
        )
        self.start()
        return wait

    def failed(self, why: str) -> float:
        """Count a failure and return the seconds to wait.

        Raises:
          Over: if there were too many failures in a row.
        """
        self.failures += 1
        self.said.clear()
        self.tell(f"failure {self.failures} of at most {self.tries} in a row: {why}")
        if self.failures >= self.tries:
            raise Over(
                1,
                f"giving up. Pod {self.pod.name} is left as it is: look at it, "
                "then resume with `pod watch`",
            )
        return self.poll * min(2**self.failures, 30)

    def note(self, kind: str, text: str) -> None:
        """Log a line unless the last one of its kind was the same, to keep the log short."""
        if self.said.get(kind) != text:
            self.tell(text)
        self.said[kind] = text

    def tell(self, text: str) -> None:
        """Print a line with the time."""
        print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)


def describe(ended: Sequence[WorkerReport]) -> str:
    """Return the states of the first four workers, as the end of a line."""
    states = "".join(f"; {report.host} {report.state} {report.code}" for report in ended[:4])
    return states + ("; ..." if len(ended) > 4 else "")
