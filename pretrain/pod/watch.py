"""Watch a training on a pod until it ends; request a preempted pod again and restart the training.

The watch keeps only a few counts between two looks: each look asks gcloud for the pod's state and
takes the next step. So it can be interrupted and started again (`pod watch`) at any time. It
deletes only a queued resource that Google itself has suspended or that has failed, and leaves a
mark next to the archive until it has requested the pod again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pretrain.pod import archive
from pretrain.pod.environment import name_start
from pretrain.pod.gcloud import GcloudError
from pretrain.processes.watchdog import HUNG

if TYPE_CHECKING:
    from pretrain.pod.answers import WorkerReport
    from pretrain.pod.gcloud import Pod, PodRequest

PENDING_STATES = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING")
DEAD_STATES = ("SUSPENDED", "FAILED")
# Looks: workers may disagree for as many, and a run that lasts as many counts as healthy.
PATIENCE_LOOKS = 10


class WatchEnded(Exception):
    """The watch ends with the exit status `status`; the text is the reason."""

    def __init__(self, status: int, reason: str) -> None:
        """Set the exit status and the reason."""
        super().__init__(reason)
        self.status = status


class Watch:
    """The watch over one training.

    Attributes:
      healthy_looks: looks in a row at which all workers ran.
      unsettled_looks: looks in a row at which some workers had ended and others might still follow.
      unanswered_looks: looks in a row at which no worker answered.
      deleted_by_watch: whether this watch, or an interrupted one, deleted the queued resource.
      needs_refill: whether the pod is new or will be: nothing is pushed or started on it.
      logged_lines: the last line logged, by kind.
    """

    def __init__(
        self,
        pod: Pod,
        request: PodRequest,
        arguments: Sequence[str],
        env: Mapping[str, str],
        poll: float = 60.0,
        tries: int = 20,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Set up a watch.

        Args:
          request: the pod to request after a preemption.
          poll: seconds between looks. After failures the wait doubles, up to 30 times as long.
          tries: failures in a row (of gcloud, of queued resources, of trainings that ended by a
            signal) after which the watch gives up. `PATIENCE_LOOKS` looks at a running training
            reset it.
          sleep: waits for a number of seconds.
        """
        self.pod, self.request, self.arguments, self.env = pod, request, arguments, env
        self.poll, self.tries, self.sleep = poll, tries, sleep
        self.failures = self.healthy_looks = self.unsettled_looks = self.unanswered_looks = 0
        self.deleted_by_watch = archive.locate_mark(pod).exists()
        self.needs_refill = False
        self.logged_lines: dict[str, str] = {}

    def run(self) -> int:
        """Watch until the training has ended and return the exit status."""
        while True:
            try:
                try:
                    wait = self.poll_pod()
                except GcloudError as error:
                    wait = self.count_failure(str(error))
            except WatchEnded as over:
                self.log_line(str(over))
                return over.status
            self.sleep(wait)

    def poll_pod(self) -> float:
        """Look at the pod once, take the next step and return the seconds until the next look."""
        state = self.pod.read_state()
        name = state.state if state else "absent"
        self.log_change("pod", f"pod {self.pod.name} is {name}")
        if state is None:
            return self.recreate_pod()
        if name == "DELETING" and not self.deleted_by_watch:
            raise WatchEnded(
                1, f"someone else is deleting pod {self.pod.name}: it is not requested again"
            )
        if name in DEAD_STATES:
            return self.delete_lost_pod(str(state), state.initiator)
        if name != "ACTIVE":  # starting or stopping
            return self.poll
        reports = self.read_reports()
        if reports is None:
            return self.delete_lost_pod("its nodes are PREEMPTED")
        if self.deleted_by_watch:  # it is there again, or was not deleted
            self.mark_deleted(False)
        if self.needs_refill:
            self.refill_pod(reports)
            return self.poll
        return self.handle_reports(reports)

    def recreate_pod(self) -> float:
        """Request the pod again, if a watch deleted it, and return the wait."""
        if not self.deleted_by_watch:
            raise WatchEnded(
                1, f"someone else deleted pod {self.pod.name}: it is not requested again"
            )
        self.pod.create_pod(self.request)
        self.mark_deleted(False)
        self.log_line(f"requested {self.request.slices} x {self.request.type} again")
        return self.poll

    def delete_lost_pod(self, name: str, initiator: str = "") -> float:
        """Delete a dead queued resource, which still holds the name and the quota.

        Args:
          initiator: who suspended it: USER or SERVICE.
        """
        if initiator == "USER":
            raise WatchEnded(
                1,
                f"a user suspended pod {self.pod.name}: it is not requested again; "
                "`pod delete` removes what remains of it",
            )
        wait = self.count_failure(
            f"pod {self.pod.name} was taken away ({name}); "
            "its queued resource is deleted, then requested again"
        )
        self.needs_refill = True
        self.mark_deleted(True)
        self.pod.delete_pod()
        return wait

    def mark_deleted(self, deleted: bool) -> None:
        """Record, for the next watch too, whether a watch has deleted the pod."""
        self.deleted_by_watch = deleted
        archive.mark_deleted(self.pod, deleted)

    def refill_pod(self, reports: Sequence[WorkerReport], tree: str | None = None) -> None:
        """Push the archive to the new pod, as `tree` (its hash by default), and start it."""
        path = archive.locate_archive(self.pod)
        tree = tree or archive.hash_archive(path)
        self.log_line("the pod is new: pushing the same code, then starting the same training")
        # Some workers may run it already, from an earlier attempt that not all workers received.
        if any(report.state == "running" for report in reports):
            self.pod.run_worker("stop", "force")
        self.pod.push_tree(path, tree)
        self.start_training(tree)
        self.needs_refill = False

    def start_training(self, tree: str) -> None:
        """Start the training on all workers, from the tree of that name."""
        self.pod.run_worker("start", *self.arguments, env=name_start(self.env, tree))
        self.healthy_looks = self.unsettled_looks = 0

    def read_reports(self) -> list[WorkerReport] | None:
        """Return the workers' reports; None if they are unavailable because the nodes are gone."""
        try:
            reports = self.pod.list_reports()
            if not reports:
                raise GcloudError("no worker answered")
        except GcloudError:
            self.unanswered_looks += 1
            if self.unanswered_looks >= 3 and {"PREEMPTED", "TERMINATED"} & set(
                self.pod.list_node_states(self.request.slices)
            ):
                self.unanswered_looks = 0
                return None
            raise
        self.unanswered_looks = 0
        return reports

    def handle_reports(self, reports: Sequence[WorkerReport]) -> float:
        """Act on the workers' reports and return the seconds until the next look."""
        if all(report.state == "empty" for report in reports):
            self.needs_refill = True
            return 0.0
        ended = [report for report in reports if report.state != "running"]
        num_running = len(reports) - len(ended)
        self.log_change(
            "training",
            f"training: {num_running} of {len(reports)} workers run" + format_ended(ended),
        )
        if not ended:
            self.unsettled_looks, self.healthy_looks = 0, self.healthy_looks + 1
            if self.healthy_looks >= PATIENCE_LOOKS:
                self.failures = 0
            return self.poll
        # A worker that hangs causes the errors of the others.
        hung = any(report.exit_status == HUNG for report in ended)
        broken = [
            report
            for report in ended
            if report.state == "exited" and 0 < report.exit_status < 128 and not hung
        ]
        # Other workers may still be saving. An apparent error may be another worker's preemption,
        # which gcloud reports later.
        is_final = len(ended) == len(reports) and not (broken and self.request.spot)
        if not is_final and self.unsettled_looks < PATIENCE_LOOKS:
            self.unsettled_looks += 1
            return self.poll
        if num_running:
            self.log_line("some workers have ended and others still run: stopping those")
            self.pod.run_worker("stop", "force")
        return self.finish_or_restart(ended, broken)

    def finish_or_restart(
        self, ended: Sequence[WorkerReport], broken: Sequence[WorkerReport]
    ) -> float:
        """Finish the watch, or restart a training that another attempt may complete.

        Args:
          ended: reports of the workers on which it has ended.
          broken: the ones that ended by an error of the program.
        """
        stopped = [report.exit_status for report in ended if report.state == "stopped"]
        if stopped:
            raise WatchEnded(
                stopped[0], "the training was stopped by `pod stop`; the same `pod run` resumes it"
            )
        if broken:
            first = broken[0]
            raise WatchEnded(
                first.exit_status,
                f"the training failed on {first.host} with status {first.exit_status}; "
                "it is not restarted: see `pod logs`",
            )
        if all(report.state == "exited" and report.exit_status == 0 for report in ended):
            raise WatchEnded(
                0,
                "the training is done. The pod is still there and costs money: "
                f"`pod delete --name {self.pod.name}`",
            )
        wait = self.count_failure(
            "the training was killed by a signal, hung, or ended without a status"
            + format_ended(ended)
        )
        self.start_training(archive.hash_archive(archive.locate_archive(self.pod)))
        return wait

    def count_failure(self, reason: str) -> float:
        """Count a failure and return the seconds to wait."""
        self.failures += 1
        self.logged_lines.clear()
        self.log_line(f"failure {self.failures} of at most {self.tries} in a row: {reason}")
        if self.failures >= self.tries:
            raise WatchEnded(
                1,
                f"giving up. Pod {self.pod.name} is left as it is: look at it, "
                "then resume with `pod watch`",
            )
        return self.poll * min(2**self.failures, 30)

    def log_change(self, kind: str, text: str) -> None:
        """Log a line unless the last one of its kind was the same, to keep the log short."""
        if self.logged_lines.get(kind) != text:
            self.log_line(text)
        self.logged_lines[kind] = text

    def log_line(self, text: str) -> None:
        """Print a line with the time."""
        print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)


def format_ended(ended: Sequence[WorkerReport]) -> str:
    """Return the states of the first four workers, as the end of a line."""
    states = "".join(f"; {report.host} {report.state} {report.exit_status}" for report in ended[:4])
    return states + ("; ..." if len(ended) > 4 else "")
