"""Answers of gcloud and of workers that are not what they should be are errors of gcloud."""

import json

import pytest

from pretrain.pod.answers import PodState, WorkerReport, parse_report
from pretrain.pod.gcloud import GcloudError, Pod

pytestmark = pytest.mark.fast


@pytest.fixture
def pod(monkeypatch):
    """Return a function that returns a pod whose commands print a text."""
    pod = Pod("bert", "us-east5-a")

    def answer(text):
        monkeypatch.setattr(Pod, "run_command", lambda self, *words, **options: text)
        return pod

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "x",
        {"state": "ACTIVE"},
        {"state": {"state": None}},
        {"tpu": []},
        {"tpu": {"nodeSpec": [None]}},
    ]
    + [{"tpu": {"nodeSpec": [{"multisliceParams": {"nodeCount": "many"}}]}}],
    ids=str,
)
def test_a_state_of_another_form_is_refused(answer, pod):
    with pytest.raises(GcloudError, match="describe bert returned another answer"):
        pod(json.dumps(answer)).read_state()


def test_a_state_without_nodes_is_one():
    answer = {"state": {"state": "ACCEPTED"}, "tpu": {"nodeSpec": []}}
    pod = Pod("bert", "us-east5-a")
    pod.run_command = lambda *words, **options: json.dumps(answer)
    assert pod.read_state() == PodState("ACCEPTED")


@pytest.mark.parametrize("line", ["cloze-worker vm exited ", "cloze-worker vm exitedcloze-worker"])
def test_a_damaged_report_is_refused(line, pod):
    with pytest.raises(GcloudError, match="the report of a worker is damaged: 'cloze-worker vm"):
        pod(f"cloze-worker a running 0\n{line}\n").list_reports()


def test_reports_are_those_of_all_workers(pod):
    lines = "warning: x\ncloze-worker w-1 exited 143\ncloze-worker w-0 running 0\n"
    reports = [WorkerReport("w-0", "running", 0), WorkerReport("w-1", "exited", 143)]
    assert pod(lines).list_reports() == reports
    assert parse_report("cloze-worker w-0 running 0") == reports[0]
