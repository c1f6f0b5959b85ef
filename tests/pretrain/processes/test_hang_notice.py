"""What one process announces of its hang, the others find; their errors count as that hang."""

import types

import jax
import pytest

from pretrain.processes import hang_notice, processes
from pretrain.processes.watchdog import HUNG


class Store:
    """The coordinator's key-value store as process `own` sees it."""

    def __init__(self, monkeypatch, own):
        self.entries, self.own, self.broken = {"cloze/host/1": "b"}, own, False
        monkeypatch.setattr(processes, "get_client", lambda: self)
        state = types.SimpleNamespace(client=self, process_id=own)
        monkeypatch.setattr(processes, "get_jax_state", lambda: state)
        monkeypatch.setattr(processes, "exit_process", lambda status: status)

    def key_value_set(self, key, value):
        self.entries[key] = value

    def key_value_try_get(self, key):
        return self.entries[key]

    def key_value_dir_get(self, prefix):
        if self.broken:
            raise jax.errors.JaxRuntimeError("UNAVAILABLE: no connection")
        return [entry for entry in self.entries.items() if entry[0].startswith(prefix)]


def test_a_process_finds_the_hang_of_another_and_not_its_own(monkeypatch):
    store = Store(monkeypatch, own=1)
    hang_notice.announce_hang("'data' has lasted 11 s")
    assert hang_notice.find_hung_peer() == ""
    other = Store(monkeypatch, own=0)
    assert hang_notice.find_hung_peer() == ""
    other.entries = store.entries
    assert hang_notice.find_hung_peer() == "'data' has lasted 11 s, in process 1 on host b"


@pytest.mark.parametrize("status", [1, 2])
def test_an_error_that_another_hang_caused_ends_as_a_hang(monkeypatch, capsys, status):
    store = Store(monkeypatch, own=0)
    assert hang_notice.exit_after_error(status) == status
    assert capsys.readouterr().err == ""
    store.entries["cloze/hung/1"] = "'data' has lasted 11 s"
    assert hang_notice.exit_after_error(status) == HUNG
    assert capsys.readouterr().err == (
        "error: hung: 'data' has lasted 11 s, in process 1 on host b. "
        "This process ends with status 75\n"
    )


def test_a_coordinator_that_is_gone_has_no_announcement(monkeypatch):
    store = Store(monkeypatch, own=0)
    store.entries["cloze/hung/1"] = "'data' has lasted 11 s"
    store.broken = True
    assert hang_notice.exit_after_error(2) == 2


def test_a_single_process_has_no_peers(monkeypatch):
    monkeypatch.setattr(processes, "get_client", lambda: None)
    assert hang_notice.make_peers() is None and hang_notice.exit_after_error(2) == 2
    assert hang_notice.find_hung_peer() == ""  # a watchdog may look once more after the end
