"""A push that cannot succeed says so early, in one line, and publishes nothing."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from data.corpus.hub import client
from data.corpus.hub.client import HubError
from pretrain.__main__ import main
from pretrain.convert.safe_folder import FolderError
from pretrain.publish.upload import Target, push_folder
from tests.pretrain.convert.hub.stand_in import READER, STRANGER, WRITER

ABSENT = ("push", "--workdir", "no/such/run")  # whose export would fail, had it begun


def get_error(capsys, *words):
    """Run a command that fails; return the one line that it prints."""
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert not any(token in error for token in (WRITER, READER, STRANGER))
    return error


@pytest.mark.held_by(3)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("small", "expected USER/NAME"),
        ("ann/../bob", "has 3 parts"),
        ("ann/..", "is no name of a repository"),
        ("../small", "is no name of a repository"),
        ("ann/a..b", "is no name of a repository"),
        ("ann/a--b", "is no name of a repository"),
        ("ann/small.git", "is no name of a repository"),
        ("ann/smäll", "is no name of a repository"),
        ("ann/small\n", "is no name of a repository"),
        ("ann/", "is no name of a repository"),
        ("/small", "is no name of a repository"),
        ("ann/small model", "is no name of a repository"),
        ("datasets/small", "names one of the datasets"),
        ("ann/" + "a" * 93, "at most 96"),
        ("https://huggingface.co/ann/small", "parts"),
    ],
)
def test_a_malformed_name_is_refused_first(hub, capsys, name, reason):
    assert reason in get_error(capsys, *ABSENT, "--repo", name)
    assert not hub.requests


@pytest.mark.held_by(3)
@pytest.mark.parametrize("branch", ["a..b", "-x", "a b", "a//b", "/a", "a/", "a.lock", "é", "a/.b"])
def test_a_malformed_branch_is_refused_first(hub, capsys, branch):
    assert "no revision" in get_error(capsys, *ABSENT, "--repo", "ann/a", f"--revision={branch}")
    assert not hub.requests


def test_tokens(hub, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    error = get_error(capsys, *ABSENT, "--repo", "ann/small")
    assert "no token" in error and "HF_TOKEN" in error and not hub.requests
    for token, repository, reason in (
        ("hf_unknown", "ann/small", "401 (Invalid"),
        (READER, "ann/small", "the token of ann may only read"),
        (STRANGER, "ann/old", "403 (you are not allowed to write to this repository)"),
        (STRANGER, "ann/small", "cannot create it under ann; it can under bob"),
    ):
        monkeypatch.setenv("HF_TOKEN", token)
        assert reason in get_error(capsys, *ABSENT, "--repo", repository)
    # the login of the library
    monkeypatch.delenv("HF_TOKEN")
    with open(client.load_library().constants.HF_TOKEN_PATH, "w") as file:
        file.write(WRITER)
    assert "no/such/run" in get_error(capsys, *ABSENT, "--repo", "ann/small")
    assert set(hub.repositories) == {"ann/old"} and not hub.count("commit|storage")


def test_the_network_is_absent_or_forbidden(hub, capsys, monkeypatch):
    constants = client.load_library().constants
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    error = get_error(capsys, *ABSENT, "--repo", "ann/small")
    assert "http://127.0.0.1:9 cannot be reached" in error and "HF_ENDPOINT" in error
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in get_error(capsys, *ABSENT, "--repo", "ann/small")


def test_the_library_is_absent(capsys, monkeypatch):
    monkeypatch.setattr("data.members.has_module", lambda name: False)
    error = get_error(capsys, *ABSENT, "--repo", "ann/small")
    assert "needs huggingface_hub" in error and "[hub]" in error


def test_a_model_that_transformers_has_not(hub, runs, stores, tmp_path, capsys):
    from pretrain.api.importing import make_initializer
    from pretrain.training.new_workdir import start_workdir

    run, encoding = runs["elmo"], stores["bert"].encoding
    start_workdir(tmp_path / "run", run, make_initializer(run)(), encoding)
    error = get_error(capsys, "push", "--workdir", str(tmp_path / "run"), "--repo", "ann/small")
    assert "--format jax" in error and "ann/small" not in hub.repositories


def test_a_public_repository_does_not_become_private(hub, exported, capsys):
    error = get_error(capsys, *ABSENT, "--repo", "ann/old", "--private")
    assert "exists and is public" in error


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    "name",
    [".env", "model.bin", "x.py", "notes.txt", "generator/.env", "params/d/x", "sub/README.md"],
)
def test_a_folder_with_other_files_is_refused(hub, folder, name):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("secret")
    with pytest.raises(FolderError, match=f"has {name}, which no export writes"):
        push_folder(folder, Target("ann/small"))
    assert not hub.requests


def test_links_pipes_and_absent_folders_are_refused(hub, folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (folder / "vocab.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(FolderError, match=r"vocab.txt: is a link"):
        push_folder(folder, Target("ann/small"))
    (folder / "vocab.txt").unlink()
    os.mkfifo(folder / "vocab.txt")
    with pytest.raises(FolderError, match=r"vocab.txt: is no regular file"):
        push_folder(folder, Target("ann/small"))
    (folder / "vocab.txt").unlink()
    (folder / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(FolderError, match="not a whole"):
        push_folder(folder, Target("ann/small"))
    with pytest.raises(FileNotFoundError, match="no such folder"):
        push_folder(tmp_path / "absent", Target("ann/small"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FolderError, match=r"no config.json"):
        push_folder(tmp_path / "empty", Target("ann/small"))
    assert not hub.requests


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.gguf", "other.safetensors"])
def test_weights_of_another_kind_beside_the_model(hub, exported, name):
    hub.add("ann/small", {name: b"1"})
    with pytest.raises(HubError, match=f"has {name}, which no export writes"):
        push_folder(exported, Target("ann/small"))
    assert set(hub.files("ann/small")) == {name}


# ---- failures on the way ------------------------------------------------------------


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("request_", "status"),
    [("PUT /storage", 500), ("/verify", 500), ("/commit/", 500), ("/batch", 403), ("PUT", 403)],
)
def test_a_failed_upload_publishes_nothing_and_can_be_repeated(hub, exported, request_, status):
    before = dict(hub.repositories["ann/old"].refs)
    hub.fail(request_, status)
    with pytest.raises(HubError, match=f"nothing was published: ann/old: .*{status}"):
        push_folder(exported, Target("ann/old"))
    assert hub.repositories["ann/old"].refs == before
    hub.failures.clear()
    assert "model.safetensors" in push_folder(exported, Target("ann/old")).files
    assert "model.safetensors" in hub.files("ann/old")


def test_a_new_repository_without_a_model_is_named(hub, exported):
    hub.fail("PUT /storage", 500)
    with pytest.raises(
        HubError, match="nothing was published; ann/small is new and has no model yet"
    ):
        push_folder(exported, Target("ann/small"))
    assert set(hub.files("ann/small")) == {".gitattributes"}


def test_a_short_failure_is_repeated_by_the_client(hub, exported):
    hub.fail("PUT /storage", 503, times=2)
    push_folder(exported, Target("ann/small"))
    assert hub.count("PUT /storage") == 3 and "model.safetensors" in hub.files("ann/small")


def test_a_commit_whose_answer_is_lost_is_found(hub, exported):
    hub.lost = "/commit/"
    pushed = push_folder(exported, Target("ann/old"))
    assert pushed.commit == hub.repositories["ann/old"].refs["main"]
    assert pushed.url == f"{hub.url}/ann/old/commit/{pushed.commit}"
    hub.hooks["/commit/"] = lambda: setattr(hub, "lost", ".")
    with pytest.raises(HubError, match="It is unknown whether a commit was made: ann/old: http"):
        push_folder(exported, Target("ann/old"))


def test_a_file_that_the_repository_ignores_is_reported(hub, exported):
    hub.add("ann/small", {".gitignore": b"tokenizer*"})
    with pytest.raises(HubError, match=r"lacks tokenizer.json; does a .gitignore"):
        push_folder(exported, Target("ann/small"))


def test_the_token_of_a_run_of_several_processes_is_used_once(hub, imported, monkeypatch, capsys):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "127.0.0.1:1234")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    assert main(["push", "--workdir", str(imported), "--repo", "ann/small"]) == 0
    assert "process 1 uploads nothing" in capsys.readouterr().err and not hub.requests


def test_of_two_pushes_at_once_one_is_whole_and_the_other_refused(hub, exported, folder):
    (folder / "README.md").write_text("another card")
    hub.add("ann/small", {".gitattributes": b""})
    barrier, outcomes = threading.Barrier(2), {}
    hub.hooks["/commit/"] = lambda: barrier.wait(20)

    def push(place):
        try:
            outcomes[place] = push_folder(place, Target("ann/small")).commit
        except HubError as error:
            outcomes[place] = error

    threads = [threading.Thread(target=push, args=(place,)) for place in (exported, folder)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [place for place, outcome in outcomes.items() if isinstance(outcome, str)]
    (error,) = [outcome for outcome in outcomes.values() if isinstance(outcome, HubError)]
    assert "nothing was published" in str(error) and "run the command again" in str(error)
    files = hub.files("ann/small")
    assert {name: files[name] for name in files if name != ".gitattributes"} == {
        path.name: path.read_bytes() for path in winner.iterdir()
    }
    hub.hooks.clear()
    push_folder(folder, Target("ann/small"))
    assert hub.files("ann/small")["README.md"] == b"another card"


def test_a_killed_push_publishes_nothing(hub, exported, tmp_path, root):
    """SIGKILL while the weights are sent."""
    hub.add("ann/small", {"README.md": b"old"})
    sends, goes_on = threading.Event(), threading.Event()

    def hold_request():
        sends.set()
        goes_on.wait(60)

    hub.hooks["PUT /storage"] = hold_request
    code = (
        "import sys; from pretrain.publish.upload import Target, push_folder\n"
        "push_folder(sys.argv[1], Target('ann/small'))"
    )
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
    environment |= {"HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(root)}
    words = [sys.executable, "-c", code, str(exported)]
    process = subprocess.Popen(words, env=environment)
    try:
        assert sends.wait(60) and process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        status = process.wait()
        goes_on.set()
    assert status == -signal.SIGKILL
    assert hub.files("ann/small") == {"README.md": b"old"} and not hub.count("/commit/")
    hub.hooks.clear()
    push_folder(exported, Target("ann/small"))
    assert "model.safetensors" in hub.files("ann/small")
