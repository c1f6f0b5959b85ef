"""What the watch over a pod does next, poll by poll, on a pod that is a list of answers."""

import pytest

from pretrain.pod import archive
from pretrain.pod.answers import PodState, WorkerReport
from pretrain.pod.gcloud import GcloudError, PodRequest
from pretrain.pod.watch import PATIENCE_LOOKS, Watch
from pretrain.processes.watchdog import HUNG


class Scripted:
    """describe() and reports() return these in turn, the last repeatedly; exceptions are raised.
    Changes of the pod are recorded.
    """

    name, zone, project = "bert", "us-east5-a", ()

    def __init__(self, states=("ACTIVE",), reports=(), nodes=("READY",)):
        self.states, self.answers, self.did, self.kinds = (
            list(states),
            list(reports),
            [],
            list(nodes),
        )

    def take_answer(self, answers):
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def read_state(self):
        state = self.take_answer(self.states)
        return PodState(state) if isinstance(state, str) else state

    def list_reports(self):
        return [
            WorkerReport(f"w-{index}", *answer)
            for index, answer in enumerate(self.take_answer(self.answers))
        ]

    def list_node_states(self, slices):
        return self.kinds

    def push_tree(self, path, tree):
        self.did.append("push")

    def run_worker(self, *words, env=None):
        self.did.append(" ".join(words))

    def create_pod(self, request):
        self.did.append("create")

    def delete_pod(self):
        self.did.append("delete")


RUN, DONE, BUG, ABORT = ("running", 0), ("exited", 0), ("exited", 1), ("exited", 134)


class Pauses(list):
    def append(self, seconds):
        assert len(self) < 300, "the watch does not end"
        super().append(seconds)


@pytest.fixture
def watch_to_end(monkeypatch, capsys, tmp_path):
    """Return look(pod), which watches it to the end: (status, changes of the pod, waits, output)."""
    monkeypatch.setattr(archive, "hash_archive", lambda path: "tree")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive.locate_archive(Scripted()).parent.mkdir(parents=True)

    def watch_pod(pod, spot=True, tries=5):
        waits = Pauses()
        watching = Watch(
            pod,
            PodRequest("v4-16", "image", spot),
            ["train"],
            {},
            poll=1.0,
            tries=tries,
            sleep=waits.append,
        )
        status = watching.run()
        return status, pod.did, waits, capsys.readouterr().out

    return watch_pod


def test_done(watch_to_end):
    status, did, waits, messages = watch_to_end(
        Scripted(reports=[[RUN, RUN]] * 50 + [[DONE, RUN], [DONE, DONE]])
    )
    assert status == 0 and did == [] and set(waits) == {1.0} and len(waits) == 51
    assert (
        messages.count("2 of 2 workers run") == 1
    )  # weeks of one repeated line would hide the others


@pytest.mark.parametrize("spot", [True, False])
def test_an_error_of_the_program_is_not_tried_again(watch_to_end, spot):
    status, did, waits, messages = watch_to_end(Scripted(reports=[[RUN, RUN], [BUG, ABORT]]), spot)
    assert status == 1 and did == [] and "failed on w-0 with status 1" in messages
    assert len(waits) == (
        1 + PATIENCE_LOOKS if spot else 1
    )  # on a spot pod it may be another worker's preemption


def test_an_error_before_a_preemption_is_the_preemption(watch_to_end):
    pod = Scripted(
        ["ACTIVE", "ACTIVE", "SUSPENDING", "SUSPENDED", None, "ACTIVE"],
        [[RUN], [BUG], [("empty", 0)], [DONE]],
    )
    assert watch_to_end(pod)[:2] == (0, ["delete", "create", "push", "start train"])


def test_a_run_killed_by_a_signal_is_restarted_but_not_for_ever(watch_to_end):
    status, did, waits, _ = watch_to_end(
        Scripted(reports=[[ABORT, ("lost", 0)], [RUN, RUN], [DONE, DONE]])
    )
    assert (status, did, waits) == (0, ["start train"], [2.0, 1.0])
    status, did, waits, messages = watch_to_end(Scripted(reports=[[ABORT, ABORT]]))
    assert (
        status == 1
        and did == ["start train"] * 4
        and waits == [2.0, 4.0, 8.0, 16.0]
        and "giving up" in messages
    )
    assert watch_to_end(Scripted(reports=[[BUG, ("exited", HUNG)], [DONE, DONE]]), False)[:2] == (
        0,
        ["start train"],
    )  # their errors are a consequence of it


def test_failures_are_forgotten_after_a_while(watch_to_end):
    again = [[ABORT]] + [[RUN]] * PATIENCE_LOOKS
    status, did, _, _ = watch_to_end(Scripted(reports=again * 9 + [[DONE]]))
    assert status == 0 and len(did) == 9


def test_workers_that_outlive_the_others_are_ended(watch_to_end):
    status, did, waits, _ = watch_to_end(
        Scripted(reports=[[RUN, ("lost", 0)]] * (PATIENCE_LOOKS + 1) + [[RUN, RUN], [DONE, DONE]])
    )
    assert status == 0 and did == ["stop force", "start train"] and len(waits) == PATIENCE_LOOKS + 2


def test_a_pod_that_someone_else_deletes_or_suspends_is_left_alone(watch_to_end):
    for states in (
        ["ACTIVE", None],
        ["ACTIVE", "DELETING"],
        ["ACTIVE", PodState("SUSPENDED", "USER")],
    ):
        status, did, _, messages = watch_to_end(Scripted(states, [[RUN]]))
        assert (
            status == 1
            and did == []
            and ("someone else" in messages or "a user suspended" in messages)
        )
    # The same for a pod that the watch itself requested.
    status, did, _, _ = watch_to_end(Scripted(["SUSPENDED", None, "PROVISIONING", None], [[RUN]]))
    assert status == 1 and did == ["delete", "create"]


def test_a_watch_that_died_after_it_deleted_the_pod_is_taken_up(watch_to_end):
    interrupted = Scripted(["SUSPENDED", KeyboardInterrupt()], [[RUN]])
    with pytest.raises(KeyboardInterrupt):
        watch_to_end(interrupted)
    assert interrupted.did == ["delete"]
    pod = Scripted(["DELETING", None, "ACTIVE"], [[("empty", 0)]] * 2 + [[RUN], [DONE]])
    assert watch_to_end(pod)[:2] == (0, ["create", "push", "start train"])
    status, did, _, messages = watch_to_end(Scripted([None], [[RUN]]))
    assert (status, did) == (1, []) and "someone else deleted" in messages


def test_a_pod_that_is_there_again_is_no_longer_marked(watch_to_end):
    archive.locate_mark(Scripted()).touch()
    assert watch_to_end(Scripted(["ACTIVE", None], [[RUN]]))[:2] == (1, [])


def test_no_capacity_for_ever(watch_to_end):
    status, did, waits, _ = watch_to_end(Scripted(["FAILED", "DELETING", None] * 9, [[RUN]]))
    assert status == 1 and did == ["delete", "create"] * 4 and max(waits) == 16.0


def test_nodes_may_be_gone_before_the_queued_resource_reports_it(watch_to_end):
    deaf = [GcloudError("ssh: timed out")] * 3
    pod = Scripted(
        ["ACTIVE"] * 4 + ["DELETING", None, "ACTIVE"],
        [[RUN], *deaf, [("empty", 0)], [DONE]],
        nodes=["PREEMPTED"],
    )
    assert watch_to_end(pod)[:2] == (0, ["delete", "create", "push", "start train"])
    # Ssh that fails while the nodes are healthy deletes nothing.
    status, did, _, messages = watch_to_end(
        Scripted(reports=[[RUN], GcloudError("ssh: timed out")])
    )
    assert status == 1 and did == [] and "giving up" in messages


def test_an_outage_here_is_waited_out(watch_to_end):
    outage = [GcloudError("could not resolve host")] * 4
    status, did, waits, _ = watch_to_end(Scripted([*outage, "ACTIVE"], [[RUN], [DONE]]))
    assert (status, did, waits) == (0, [], [2.0, 4.0, 8.0, 16.0, 1.0])


def test_a_watch_that_died_between_create_and_push_is_taken_up(watch_to_end):
    status, did, _, _ = watch_to_end(
        Scripted(
            ["PROVISIONING", "ACTIVE"],
            [[("empty", 0)] * 2, [("empty", 0)] * 2, [RUN, RUN], [DONE, DONE]],
        )
    )
    assert (status, did) == (0, ["push", "start train"])
    status, did, _, _ = watch_to_end(
        Scripted(reports=[[("empty", 0)], [RUN], [DONE]])
    )  # a start that not every worker received
    assert (status, did) == (0, ["stop force", "push", "start train"])
