"""Row 25: what cannot be reached (a data set without a network, a bucket without rights) ends the
command within seconds, with one line that says what to do.
"""

import socket
import threading
import time

import pytest

from data.corpus import network

NO_NAME = socket.gaierror(-2, "Name or service not known")


@pytest.fixture
def offline(monkeypatch):
    """Let every connection fail as without a network; return the addresses that were tried."""
    tried = []

    def refuse_connection(address, *args, **options):
        tried.append(address)
        raise NO_NAME

    monkeypatch.setattr(socket, "create_connection", refuse_connection)
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tried


@pytest.fixture
def downloads(monkeypatch):
    """Return the builders whose download was begun; each download fails."""
    tfds, begun = pytest.importorskip("tensorflow_datasets"), []

    def fail_download(builder, **options):
        begun.append(builder.name)
        raise ConnectionError("Max retries exceeded\nwith url: /RTE.zip")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail_download)
    return begun


COMMANDS = (
    ("finetune", "--from", "absent", "--task", "rte", "--workdir", "w"),
    ("prepare", "tfds:glue/rte", "--field", "sentence1", "--output", "store"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_data_set_is_not_downloaded_without_a_network(
    words, refused, offline, downloads, tmp_path, monkeypatch, record_property
):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("tensorflow_datasets")  # its import is not measured
    began = time.monotonic()
    line = refused(*words)
    assert "tfds:glue/rte is not on disk" in line and "there is no network" in line
    assert "Name or service not known" in line and "--train FILE --heldout FILE" in line
    assert not downloads and len(offline) == 3 and time.monotonic() - began < 10
    record_property("seconds", round(time.monotonic() - began, 2))


def test_a_download_that_fails_says_why_and_what_else_to_do(
    refused, downloads, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("data.corpus.tfds_source.find_unreachable", lambda hosts: "")
    line = refused(*COMMANDS[0])
    assert downloads == ["glue"] and "ConnectionError: Max retries exceeded." in line
    assert "--train FILE --heldout FILE" in line and "TFDS_DATA_DIR" in line


def test_hosts_that_do_not_answer_are_waited_for_once(monkeypatch):
    free = threading.Event()

    def hang(address, timeout):
        free.wait(30)
        raise NO_NAME

    monkeypatch.setattr(socket, "create_connection", hang)
    began = time.monotonic()
    assert network.find_unreachable(["a", "b", "c"], 0.2) == (
        "a: no answer within 0.2 s; b: no answer within 0.2 s; c: no answer within 0.2 s"
    )
    assert time.monotonic() - began < 2
    free.set()


def test_one_host_that_answers_is_a_network(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(network, "HTTPS_PORT", server.getsockname()[1])
        assert network.find_unreachable(["127.0.0.1", "absent.invalid"]) == ""


def test_a_proxy_is_tried_in_place_of_the_hosts(monkeypatch):
    monkeypatch.setenv("no_proxy", "")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        assert network.find_unreachable(["absent.invalid"]) == ""
    assert network.find_unreachable(["absent.invalid"]).startswith("127.0.0.1: ")
