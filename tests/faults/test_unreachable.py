"""Row 25: what cannot be reached (a data set without a network, a bucket without rights) ends the
command within seconds, with one line that says what to do.
"""

import socket
import threading
import time

import pytest
from etils.epath import backend

from data.corpus import buckets, network

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


# ---- buckets ------------------------------------------------------------------


class Bucket:
    """TensorFlow's access to buckets, where `answers` are {path: bool, error, or seconds to hang}."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def exists(self, path):
        self.asked.append(path)
        answer = self.answers.get(path, False)
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, bool):
            time.sleep(answer)
        return bool(answer)

    def isdir(self, path):
        return self.exists(path)


@pytest.fixture
def bucket(monkeypatch):
    """Return bucket(answers), which puts a `Bucket` in TensorFlow's place."""
    monkeypatch.setattr(buckets, "_checked", set())

    def answer(answers):
        stub = Bucket(answers)
        monkeypatch.setattr(backend, "tf_backend", stub)
        return stub

    return answer


def denied(text="Error executing an HTTP request: HTTP response code 403 with body 'no access'"):
    from tensorflow import errors

    return errors.PermissionDeniedError(None, None, f"{text}\n\t when reading gs://b/x")


def unresolved():
    from tensorflow import errors

    text = "Error executing an HTTP request: libcurl code 6 meaning 'Could not resolve hostname'"
    return errors.FailedPreconditionError(None, None, text)


def name_uses(configured, url, tmp_path):
    """Return the commands that read or write a URL."""
    config = configured("bert")[0]
    return {
        "source": ("prepare", f"{url}.txt", "--output", tmp_path / "store"),
        "vocabulary": ("prepare", "builtin", "--vocabulary", url, "--output", tmp_path / "store"),
        "store": ("train", config, "--workdir", tmp_path / "run", f"data.store={url}"),
        "workdir": ("train", config, "--workdir", url),
        "predict": ("predict", "--workdir", url, "a [MASK]"),
        "evaluate": ("evaluate", "--workdir", url),
        "report": ("report", "--workdir", url),
    }


USES = ("source", "vocabulary", "store", "workdir", "predict", "evaluate", "report")


@pytest.mark.held_by(2)
@pytest.mark.parametrize("use", USES)
def test_schemes_that_are_not_read_say_what_to_do(use, configured, refused, tmp_path):
    remedies = {"https": "curl -LO", "s3": "aws s3 cp", "hdfs": "copy it to"}
    if use == "source":  # which reads the others (tests/data/corpus/test_urls.py)
        remedies = {"hdfs": "copy it to"}
    for scheme, remedy in remedies.items():
        line = refused(*name_uses(configured, f"{scheme}://b/x", tmp_path)[use])
        assert f"{scheme}://b/x" in line and "is not read" in line and remedy in line, line
        assert "gs://BUCKET/PATH" in line


@pytest.mark.held_by(2)
@pytest.mark.parametrize("use", USES)
def test_a_bucket_without_rights_names_the_login(use, configured, refused, bucket, tmp_path):
    url = f"gs://b/x{'.txt' * (use == 'source')}"
    bucket({url: denied()})
    line = refused(*name_uses(configured, "gs://b/x", tmp_path)[use])
    assert f"error: {url}: PermissionDeniedError" in line and "403" in line, line
    assert "GOOGLE_APPLICATION_CREDENTIALS" in line and "Storage Object Viewer" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.held_by(2)
@pytest.mark.parametrize("use", USES)
def test_a_bucket_that_is_missing_is_named(use, configured, refused, bucket, tmp_path):
    bucket({})
    line = refused(*name_uses(configured, "gs://b/x", tmp_path)[use])
    assert "there is no bucket gs://b;" in line and "buckets create gs://b" in line, line


def test_who_may_not_see_the_bucket_itself_may_read_what_is_in_it(bucket):
    stub = bucket({"gs://b": denied()})
    buckets.check_bucket("gs://b/new")
    buckets.check_bucket("gs://b/new")
    assert stub.asked == ["gs://b/new", "gs://b"]  # asked once


def test_without_a_network_a_bucket_is_given_up_within_seconds(
    refused, bucket, offline, tmp_path, configured, record_property
):
    bucket({"gs://b/x.txt": 20.0})
    began = time.monotonic()
    line = refused(*name_uses(configured, "gs://b/x", tmp_path)["source"])
    assert "gs://b/x.txt: there is no network" in line and "Check the network" in line
    assert time.monotonic() - began < 10
    record_property("seconds", round(time.monotonic() - began, 2))


def test_a_bucket_that_never_answers_is_given_up(bucket, monkeypatch):
    bucket({"gs://b/x": 3.0})
    monkeypatch.setattr(buckets, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(buckets, "TIMEOUT", 0.2)
    monkeypatch.setattr(buckets, "find_unreachable", lambda hosts: "")
    with pytest.raises(buckets.BucketError, match="gs://b/x: no answer within 0.2 s"):
        buckets.check_bucket("gs://b/x")


@pytest.mark.held_by(1)
@pytest.mark.parametrize("make_error", [denied, unresolved])
def test_an_error_of_a_bucket_later_on_is_one_line(refused, monkeypatch, make_error):
    def fail(args):
        raise make_error()

    monkeypatch.setattr("pretrain.cli.describe.run", fail)
    line = refused("describe", "bert_base")
    remedy = "Check the network" if make_error is unresolved else "GOOGLE_APPLICATION_CREDENTIALS"
    assert "Error executing an HTTP request" in line and remedy in line


def test_other_errors_keep_their_traceback(monkeypatch):
    from pretrain.__main__ import main

    def fail(args):
        raise TypeError("a defect of the program")

    monkeypatch.setattr("pretrain.cli.describe.run", fail)
    with pytest.raises(TypeError, match="a defect"):
        main(["describe", "bert_base"])
