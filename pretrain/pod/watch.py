"""Watching a training on a pod to its end: when the pod is taken away it is asked for again, filled with the same code, and goes on.

The watch keeps nothing between two looks but a few counts: each look asks gcloud for the pod's state and does the next right thing, so it
may be ended and begun again (`pod watch`) at any time. It deletes only a queued resource that Google itself has suspended or failed.
"""

import time

from pretrain.distributed.watchdog import HUNG
from pretrain.pod import archive
from pretrain.pod.gcloud import GcloudError

COMING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING")
GONE = ("SUSPENDED", "FAILED")
PATIENT = 10  # looks: how long workers may disagree, how long a run must last to count as well, how long an error may be a preemption


class Over(Exception):
    """The watch ends with this exit status; the text says why."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Watch:
    """The watch over one training.

    poll: seconds between looks; waits after failures double from there up to 30 times as long. tries: failures in a row (of gcloud, of
    queued resources, of trainings that ended by a signal) after which it gives up; PATIENT looks at a running training make it forget them.
    """

    def __init__(self, pod, request, words, env, poll=60.0, tries=20, sleep=time.sleep):
        self.pod, self.request, self.words, self.env = pod, request, words, env
        self.poll, self.tries, self.sleep = poll, tries, sleep
        self.failures = self.well = self.odd = self.deaf = 0
        self.ours = False  # whether it is this watch that deleted the queued resource
        self.empty = False  # whether the pod is new, or will be: nothing pushed, nothing started
        self.said = {}

    def run(self):
        """Watch until the training is over; returns the exit status."""
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

    def look(self):
        """Look once, do what is to be done; returns the seconds until the next look."""
        state = self.pod.describe()
        name = state.name if state else "absent"
        self.note("pod", f"pod {self.pod.name} is {name}")
        if state is None:
            return self.create()
        if name == "DELETING" and not self.ours:
            raise Over(
                1, f"pod {self.pod.name} is being deleted by someone else: not asked for again"
            )
        if name in GONE:
            return self.lost(name, state.initiator)
        if name != "ACTIVE":  # on its way, or on its way out
            return self.poll
        reports = self.ask()
        if reports is None:
            return self.lost("its nodes are PREEMPTED")
        if self.empty:
            self.refill(reports)
            return self.poll
        return self.judge(reports)

    def create(self):
        if not self.ours:
            raise Over(1, f"pod {self.pod.name} was deleted by someone else: not asked for again")
        self.pod.create(self.request)
        self.ours = False
        self.tell(f"asked for {self.request.slices} x {self.request.type} again")
        return self.poll

    def lost(self, name, initiator=""):
        """The queued resource is dead: delete what is left of it, for a dead one keeps the name and the quota."""
        if initiator == "USER":
            raise Over(
                1,
                f"pod {self.pod.name} was suspended by a user: not asked for again; `pod delete` removes what is left",
            )
        wait = self.failed(
            f"pod {self.pod.name} was taken away ({name}); what is left is deleted, to ask for it again"
        )
        self.ours = self.empty = True
        self.pod.delete()
        return wait

    def refill(self, reports, tree=None):
        """Push the same code to the new pod and give the same command."""
        path = archive.cache(self.pod.name)
        self.tell("the pod is new: pushing the same code, then the same command")
        if any(
            report.state == "running" for report in reports
        ):  # from an earlier try that not every worker heard
            self.pod.worker("stop", "force")
        self.pod.push(path, tree or archive.identity(path))
        self.start()
        self.empty = False

    def start(self):
        self.pod.worker("start", *self.words, env=self.env)
        self.well = self.odd = 0

    def ask(self):
        """The workers' reports; None where they cannot be had because the nodes are gone."""
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

    def judge(self, reports):
        """What the reports mean; returns the seconds until the next look."""
        if all(report.state == "empty" for report in reports):
            self.empty = True
            return 0.0
        ended = [report for report in reports if report.state != "running"]
        self.note(
            "training",
            f"training: {len(reports) - len(ended)} of {len(reports)} workers run"
            + describe(ended),
        )
        if not ended:
            self.odd, self.well = 0, self.well + 1
            if self.well >= PATIENT:
                self.failures = 0
            return self.poll
        hung = any(report.code == HUNG for report in ended)  # then the others' errors come of that
        broken = [
            report
            for report in ended
            if report.state == "exited" and 0 < report.code < 128 and not hung
        ]
        # Others may be saving still; and what looks like an error may be the neighbour's preemption, which gcloud tells of later.
        settled = len(ended) == len(reports) and not (broken and self.request.spot)
        if not settled and self.odd < PATIENT:
            self.odd += 1
            return self.poll
        if len(ended) < len(reports):
            self.tell("some workers ended and the others do not: ending those")
            self.pod.worker("stop", "force")
        return self.over(ended, broken)

    def over(self, ended, broken):
        """The training ended: by itself, by request, by an error of its own, or by something that is worth another try."""
        stopped = [report.code for report in ended if report.state == "stopped"]
        if stopped:
            raise Over(
                stopped[0], "the training was stopped by `pod stop`; the same `pod run` goes on"
            )
        if broken:
            first = broken[0]
            raise Over(
                first.code,
                f"the training failed on {first.host} with status {first.code}; it is not tried again: `pod logs`",
            )
        if all(report.state == "exited" and report.code == 0 for report in ended):
            raise Over(
                0,
                f"the training is done. The pod is still there and costs money: `pod delete --name {self.pod.name}`",
            )
        wait = self.failed(
            "the training ended by a signal, hung, or without a trace" + describe(ended)
        )
        self.start()
        return wait

    def failed(self, why):
        """Count a failure; returns how long to wait."""
        self.failures += 1
        self.said.clear()
        self.tell(f"failure {self.failures} of at most {self.tries} in a row: {why}")
        if self.failures >= self.tries:
            raise Over(
                1,
                f"giving up. Nothing more is done about pod {self.pod.name}: look at it, then `pod watch` goes on",
            )
        return self.poll * min(2**self.failures, 30)

    def note(self, kind, text):
        """Tell what is seen at a look, unless the last one saw the same: weeks of one line would hide the others."""
        if self.said.get(kind) != text:
            self.tell(text)
        self.said[kind] = text

    def tell(self, text):
        print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)


def describe(ended):
    return "".join(f"; {report.host} {report.state} {report.code}" for report in ended[:4]) + (
        "; ..." if len(ended) > 4 else ""
    )
