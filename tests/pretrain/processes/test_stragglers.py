"""The slowest process is the one that waits least for its devices, by means since its last report."""

import json

import pytest

from pretrain.processes import processes, stragglers
from pretrain.processes.stragglers import StragglerMonitor


class Client:
    """A coordinator's store."""

    def __init__(self, messages):
        self.messages = messages

    def key_value_set(self, key, value, allow_overwrite):
        assert allow_overwrite  # otherwise the second report fails
        self.messages[key] = value

    def key_value_dir_get(self, folder):
        return [(key, value) for key, value in self.messages.items() if key.startswith(folder)]


@pytest.fixture
def key_values(monkeypatch):
    """Return the reports by key; time stands still."""
    values = {
        "cloze/preflight/facts/1": "{}",
        "cloze/waits/1": json.dumps([0.3, 0.1]),
        "cloze/waits/10": json.dumps([0.0, 0.5]),
    }
    monkeypatch.setattr(processes, "get_client", lambda: Client(values))
    monkeypatch.setattr("jax.process_count", lambda: 11)
    monkeypatch.setattr(stragglers.time, "monotonic", lambda: values.get("now", 100.0))
    return values


def test_a_single_process_reports_nothing(monkeypatch):
    monkeypatch.setattr(stragglers, "REPORT_INTERVAL", 0)
    assert StragglerMonitor().report_waits(0.1, 0.2) == {}


def test_the_first_process_names_the_slowest_now_and_then(key_values):
    monitor = StragglerMonitor()
    assert monitor.report_waits(0.0, 0.4) == {} and "cloze/waits/0" not in key_values
    key_values["now"] = 100.0 + stragglers.REPORT_INTERVAL
    assert monitor.report_waits(0.2, 0.6) == {
        "input_seconds_max": 0.3,
        "device_seconds_min": 0.1,
        "slowest_host": 1,
    }
    assert json.loads(key_values["cloze/waits/0"]) == pytest.approx(
        [0.1, 0.5]
    )  # the mean of two steps
    assert monitor.report_waits(9.0, 9.0) == {}  # just reported
    key_values |= {
        "now": key_values["now"] + stragglers.REPORT_INTERVAL,
        "cloze/waits/1": json.dumps([0.0, 99.0]),
    }
    assert monitor.report_waits(1.0, 0.2) == {
        "input_seconds_max": 5.0,
        "device_seconds_min": 0.5,
        "slowest_host": 10,
    }


def test_the_other_processes_only_report(key_values, monkeypatch):
    monkeypatch.setattr("jax.process_index", lambda: 7)
    monitor = StragglerMonitor()
    key_values["now"] = 100.0 + stragglers.REPORT_INTERVAL
    assert monitor.report_waits(0.1, 0.2) == {} and json.loads(key_values["cloze/waits/7"]) == [
        0.1,
        0.2,
    ]


def test_waits_of_the_loop_are_measured(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(stragglers.time, "perf_counter", lambda: now[0])

    monitor, reports = StragglerMonitor(), []
    monkeypatch.setattr(monitor, "report_waits", lambda *seconds: reports.append(seconds) or {})
    for seconds in (3.0, 0.5):
        with monitor.measure_input():
            now[0] += seconds
        assert monitor.input_seconds == seconds
        now[0] += 100.0  # the loop's own work
        for _ in range(2):
            with monitor.measure_device_wait():
                now[0] += 2 * seconds
        monitor.end_step(seconds)
    assert reports == [(3.0, 12.0), (0.5, 2.0)]
