"""At most one run holds a workdir: acquisition, renewal, loss and release of the lease, on a file
system and on a stand-in for a bucket.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from pretrain.processes import process_identity as process
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.leases import lease
from pretrain.workdir.leases.lease import Lease, LeaseLost, LeaseUnreachable

BUCKET = pathlib.Path(__file__).parents[1] / "standins" / "bucket.py"


@pytest.fixture(autouse=True)
def strict():
    """No JAX here."""


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT", 0.05)
    monkeypatch.setattr(lease, "STALE", 0.6)


@pytest.fixture
def remote_lease(monkeypatch):
    """Return elsewhere(workdir): a Lease whose holder is a process of another machine."""

    def make_lease(workdir):
        with monkeypatch.context() as patch:
            patch.setattr(
                process, "identify_machine", lambda: ("another boot", "another namespace")
            )
            patch.setattr(socket, "gethostname", lambda: "faraway")
            return Lease(workdir, "train")

    return make_lease


@pytest.fixture
def clock(monkeypatch):
    """Return the holder's clock, moved by hand: clock[0] in seconds."""
    now = [1000.0]
    monkeypatch.setattr(lease, "read_boottime", lambda: now[0])
    return now


def stop_renewing(one):
    """Keep the holder alive without renewals, like a suspended process."""
    one._released.set()
    one._thread.join()
    one._released.clear()


def write_holder(folder, **changes):
    """Write a lease by hand and return its path."""
    one = Lease(folder, "train")
    folder.mkdir(exist_ok=True)
    (folder / "lease").write_text(json.dumps(one._me._asdict() | changes))
    return folder / "lease"


# ---- acquisition ------------------------------------------------------------------


def test_a_second_run_on_the_same_machine_is_refused_at_once_and_names_the_holder(tmp_path):
    with Lease(tmp_path, "train"):
        began = time.monotonic()
        with pytest.raises(ConfigError) as refused, Lease(tmp_path, "train"):
            pytest.fail("two runs hold it")
        assert time.monotonic() - began < lease.STALE
        content = json.loads((tmp_path / "lease").read_text())
        who = f"{tmp_path} is in use by process {os.getpid()} on host {socket.gethostname()} since {content['since']} (train)."
        assert str(refused.value).startswith(who) and "name another folder" in str(refused.value)
        assert (tmp_path / "lease").exists()  # the refused run has not removed it
    assert os.listdir(tmp_path) == []


def test_an_unused_workdir_is_removed(tmp_path):
    with Lease(tmp_path / "new", "train"):
        assert (tmp_path / "new" / "lease").exists()
    assert not (tmp_path / "new").exists()
    with Lease(tmp_path / "new", "train"):
        (tmp_path / "new" / "config.json").touch()
    assert os.listdir(tmp_path / "new") == ["config.json"]
    with pytest.raises(RuntimeError, match="in the run"), Lease(tmp_path / "new", "train"):
        raise RuntimeError("in the run")
    assert os.listdir(tmp_path / "new") == ["config.json"]


def test_a_dead_holder_of_this_machine_is_replaced_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "STALE", 1000.0)
    child = subprocess.Popen(["sleep", "100"])
    write_holder(tmp_path, pid=child.pid, start=process.read_start_time(child.pid))
    with (
        pytest.raises(ConfigError, match=f"in use by process {child.pid} "),
        Lease(tmp_path, "train"),
    ):
        pytest.fail("its holder is alive")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but not reaped
    with Lease(tmp_path, "train"):
        pass
    child.wait()
    write_holder(tmp_path, start=1)  # this process's pid, reused
    with Lease(tmp_path, "train") as mine:
        mine.verify_held()


def test_a_holder_on_another_machine_that_gives_a_sign_of_life_is_not_replaced(
    tmp_path, remote_lease, capsys
):
    with (
        remote_lease(tmp_path),
        pytest.raises(ConfigError, match="in use by process .* on host faraway since"),
        Lease(tmp_path, "train"),
    ):
        pytest.fail("its holder is alive")
    (line,) = capsys.readouterr().err.splitlines()
    assert "is in use by process" in line and "Waiting up to 0.6 s" in line


def test_a_silent_holder_on_another_machine_is_replaced_after_a_while_and_notices(
    tmp_path, remote_lease
):
    with remote_lease(tmp_path) as first:
        stop_renewing(first)
        began = time.monotonic()
        with Lease(tmp_path, "train") as second:
            assert time.monotonic() - began >= lease.STALE
            second.verify_held()
            with pytest.raises(LeaseLost, match=f"was taken by process {os.getpid()} on host"):
                first.verify_held()
            assert not first.is_held() and second.is_held()
            first.__exit__(None, None, None)
            second.verify_held()  # the old holder's end did not remove it


def test_of_two_that_take_over_one_wins(tmp_path, remote_lease):
    with remote_lease(tmp_path) as first:
        stop_renewing(first)
        assert sorted(race_for_lease(tmp_path, 2)) == ["held", "refused"]


def test_of_many_that_begin_at_once_one_wins(tmp_path):
    for n in range(5):
        assert sorted(race_for_lease(tmp_path / str(n), 4)) == [
            "held",
            "refused",
            "refused",
            "refused",
        ]


def race_for_lease(workdir, count):
    start, end, results = threading.Barrier(count), threading.Barrier(count), []

    def take_lease():
        start.wait()
        try:
            with Lease(workdir, "train"):
                results.append("held")
                end.wait(20)
        except ConfigError as error:
            results.append("refused" if "is in use by" in str(error) else str(error))
            end.wait(20)

    threads = [threading.Thread(target=take_lease) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


HOSTILE = {
    "torn": b'{"owner": "0f3a", "ho',
    "empty": b"",
    "not text": bytes(range(256)),
    "deep": b"[" * 60_000,
    "too large": b'{"owner": "' + b"x" * 100_000 + b'"}',
    "another form": b'{"owner": "0f3a"}',
}


@pytest.mark.held_by(2)
@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.slow
def test_a_lease_that_cannot_be_read_is_watched_and_then_replaced(tmp_path, content, capsys):
    (tmp_path / "lease").write_bytes(content)
    began = time.monotonic()
    with Lease(tmp_path, "train") as mine:
        assert time.monotonic() - began >= lease.STALE
        mine.verify_held()
    assert "an unknown process (its lease cannot be read)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        {"pid": 0}, {"pid": -1}, {"pid": 2**40}, {"pid": True}, {"pid": "1"}, {"host": 3},
        {"more": 1},
    ],
)  # fmt: skip
def test_values_out_of_bounds_are_no_holder(tmp_path, changes):
    assert lease.parse_holder(write_holder(tmp_path).read_bytes()) is not None
    assert lease.parse_holder(write_holder(tmp_path, **changes).read_bytes()) is None


def test_names_from_the_file_are_printed_short_and_without_control_characters(tmp_path):
    hostile = {
        "host": "a\x1b[2J\r\nerror: b\u202e" + "c" * 5000,
        "since": "now\x07" * 100,
        "command": "rm\n" * 100,
    }
    write_holder(tmp_path, **hostile)  # a live process of this machine: this one
    with pytest.raises(ConfigError) as refused, Lease(tmp_path, "train"):
        pytest.fail("its holder is alive")
    assert str(refused.value).isprintable() and len(str(refused.value)) < 700


def test_a_pipe_in_the_lease_s_place_is_refused(tmp_path):
    os.mkfifo(tmp_path / "lease")
    with (
        pytest.raises(ConfigError, match="lease is not a regular file. Remove it"),
        Lease(tmp_path, "train"),
    ):
        pytest.fail("a pipe is no lease")


def test_a_lock_file_that_a_killed_process_left_is_no_obstacle(tmp_path):
    (tmp_path / "lease.__lock").write_text("half a lease")
    with Lease(tmp_path, "train") as mine:
        mine.verify_held()


# ---- renewal ----------------------------------------------------------------------


def test_it_is_renewed_while_it_is_held(tmp_path):
    with Lease(tmp_path, "train") as mine:
        first = json.loads((tmp_path / "lease").read_text())
        end = time.monotonic() + 20
        while json.loads((tmp_path / "lease").read_text())["heartbeat"] < first["heartbeat"] + 3:
            assert time.monotonic() < end
            time.sleep(0.01)
        mine.check_held()


def test_a_lease_that_is_removed_is_lost(tmp_path):
    with Lease(tmp_path, "train") as mine:
        (tmp_path / "lease").unlink()
        with pytest.raises(LeaseLost, match="was removed. This run stops and writes nothing more"):
            mine.verify_held()
    assert os.listdir(tmp_path) == []


def test_the_thread_that_renews_notices_a_loss(tmp_path):
    messages = []
    with Lease(tmp_path, "train", messages.append) as mine:
        write_holder(tmp_path)
        mine._thread.join(20)
        with pytest.raises(LeaseLost, match="was taken by"):
            mine.check_held()
    assert len(messages) == 1 and messages[0].endswith(
        "This run stops and writes nothing more; its last checkpoint stays"
    )


def test_a_loss_is_reported_once_though_two_threads_notice(tmp_path):
    """While one thread ends the process, another neither reports the loss again nor continues."""
    messages, begun = [], threading.Event()

    def end_run(message):
        begun.set()
        time.sleep(0.2)
        messages.append(message)

    with Lease(tmp_path, "train", on_loss=end_run) as mine:
        (tmp_path / "lease").unlink()
        other = threading.Thread(target=mine._check_owner)
        other.start()
        begun.wait(10)
        with pytest.raises(LeaseLost, match="was removed"):
            mine.verify_held()
        assert len(messages) == 1  # it waited until the other was done
        mine._check_owner()
        other.join()
    assert len(messages) == 1


def test_a_check_reads_nothing_until_renewals_are_late(tmp_path, clock):
    with Lease(tmp_path, "train") as mine:
        stop_renewing(mine)
        write_holder(tmp_path)
        clock[0] += 0.4 * lease.STALE
        mine.check_held()
        clock[0] += 0.2 * lease.STALE
        with pytest.raises(LeaseLost):
            mine.check_held()


def test_storage_that_fails_is_forgiven_until_the_lease_is_stale(
    tmp_path, clock, monkeypatch, capsys
):
    with Lease(tmp_path, "train") as mine:
        stop_renewing(mine)

        def raise_unreachable(*_):
            raise LeaseUnreachable("the bucket does not answer")

        with monkeypatch.context() as patch:
            patch.setattr(mine, "_write_file", raise_unreachable)
            mine._released.clear()
            mine._thread = threading.Thread(target=mine._renew_periodically)
            mine._thread.start()
            time.sleep(0.3)
            clock[0] += 2 * lease.STALE
            mine.verify_held()  # it is readable and this run's
            patch.setattr(mine, "_read_file", raise_unreachable)
            with pytest.raises(
                LeaseLost, match="does not answer, and it was not renewed for 0.6 s"
            ):
                mine.check_held()
            mine._thread.join(20)
        assert capsys.readouterr().err.count("does not answer") == 1  # of some six renewals


def test_storage_that_cannot_be_read_for_a_moment_is_forgiven(tmp_path, clock, monkeypatch):
    with Lease(tmp_path, "train") as mine:
        stop_renewing(mine)

        def raise_unreachable(*_):
            raise LeaseUnreachable("the bucket does not answer")

        with monkeypatch.context() as patch:
            patch.setattr(mine, "_read_file", raise_unreachable)
            clock[0] += 0.9 * lease.STALE
            mine.verify_held()
        clock[0] += lease.STALE
        mine.verify_held()


def test_a_renewal_whose_answer_was_lost_is_no_loss(tmp_path):
    with Lease(tmp_path, "train") as mine:
        mine._generation = b"another"
        before = json.loads((tmp_path / "lease").read_text())["heartbeat"]
        end = time.monotonic() + 20
        while json.loads((tmp_path / "lease").read_text())["heartbeat"] < before + 3:
            assert time.monotonic() < end
            time.sleep(0.01)
        mine.verify_held()


# ---- holders elsewhere --------------------------------------------------------------


@pytest.mark.parametrize(
    ("workdir", "message"),
    [("s3://bucket/run", "s3:// is not read; expected"), ("gs://", "names no bucket")],
)
def test_storage_without_conditional_writes_is_refused(workdir, message):
    with pytest.raises(ValueError, match=message), Lease(workdir, "train"):
        raise AssertionError("it must not be held")


IN_A_BUCKET = """
import json, sys
from pretrain.processes import process_identity as process
from pretrain.workdir.leases import lease
from pretrain.settings.overrides import ConfigError

lease.HEARTBEAT, lease.STALE = 0.1, 1.0
one = lease.Lease("gs://some-bucket/runs/x", "train")
with one:
    try:
        lease.Lease("gs://some-bucket/runs/x", "train").__enter__()
    except ConfigError as error:
        print("refused:", error)
    while json.loads(one._store.read("lease").result().value)["heartbeat"] < 4:
        pass
    one._released.set()
    one._thread.join()
    one._released.clear()
    process.identify_machine = lambda: ("another", "machine")
    two = lease.Lease("gs://some-bucket/runs/x", "train")
    with two:
        print("two:", two.is_held())
        try:
            one.verify_held()
        except lease.LeaseLost as error:
            print("lost:", error)
    print("left:", two._store.read("lease").result().state)
"""


@pytest.mark.slow
def test_in_a_bucket_the_lease_is_held_by_generations(root, tmp_path):
    server = subprocess.Popen([sys.executable, str(BUCKET)], stdout=subprocess.PIPE, text=True)
    try:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        environment = os.environ | {
            "TENSORSTORE_GCS_HTTP_URL": url,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
            "GCE_METADATA_ROOT": "127.0.0.1:1",
        }
        done = subprocess.run(
            [sys.executable, "-c", IN_A_BUCKET],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        server.kill()
        requests = [json.loads(line) for line in server.communicate()[0].splitlines()]
    assert done.returncode == 0, done.stderr
    refused, two, lost, left = done.stdout.splitlines()
    assert (
        refused.startswith("refused: gs://some-bucket/runs/x is in use by process")
        and two == "two: True"
    )
    assert (
        lost.startswith("lost: the lease of gs://some-bucket/runs/x was taken by process")
        and left == "left: missing"
    )
    changes = [one for one in requests if one["method"] != "GET"]
    assert changes[0]["condition"] == "0" and all(
        one["condition"] for one in changes
    )  # none is unconditional
    assert [one["method"] for one in changes][-1] == "DELETE" and {
        one["name"] for one in changes
    } == {"runs/x/lease"}


# ---- processes ---------------------------------------------------------------

CHILD = "import sys, time; from pretrain.processes import process_identity as process; process.end_with_parent(); print(process.PARENT_VARIABLE in process.os.environ, flush=True); time.sleep(60)"
PARENT = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}], env=os.environ | {{"CLOZE_PARENT_PID": str(os.getpid())}}, start_new_session=True)
time.sleep(60)
"""


def assert_child_ends(root, code):
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert (
            parent.stdout.readline() == "False\n"
        )  # the child is ready and does not pass the variable on
        parent.kill()
        began = time.monotonic()
        assert parent.stdout.read() == ""  # until the child's end has closed it
        assert time.monotonic() - began < 5


def test_a_child_ends_with_its_parent(root):
    assert_child_ends(root, PARENT)


def test_a_child_whose_parent_has_ended_before_ends_at_once(root):
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=root,
        env=os.environ | {process.PARENT_VARIABLE: "1"},
        capture_output=True,
        timeout=50,
    )
    assert done.returncode == -signal.SIGKILL and not done.stdout


def test_a_process_without_the_variable_is_left_alone(root):
    code = CHILD.replace("time.sleep(60)", "sys.exit(0)")
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=50
        ).stdout
        == "False\n"
    )


def test_where_the_kernel_does_not_watch_a_thread_does(root):
    child = CHILD.replace("import sys, time;", "import sys, time; sys.platform = 'darwin';")
    assert_child_ends(root, PARENT.replace(repr(CHILD), repr(child)))


# ---- copies of a workdir ----------------------------------------------------------


def test_a_copy_of_a_live_workdir_is_free(tmp_path, capfd):
    """Its lease names the path and the folder that the holder writes to."""
    with Lease(tmp_path / "run", "train"):
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        with Lease(tmp_path / "copy", "train") as second:
            second.verify_held()
            with pytest.raises(ConfigError, match="is in use by"), Lease(tmp_path / "run", "train"):
                pass
            with pytest.raises(ConfigError, match="copy is in use"), Lease(tmp_path / "copy", "x"):
                pass
    notice = capfd.readouterr().err
    assert f"{tmp_path / 'copy'} is a copy of a workdir that process {os.getpid()}" in notice


def test_a_moved_or_linked_workdir_is_not_a_copy(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with Lease(tmp_path / "run", "train") as first:
        first._released.set()
        first._thread.join()
        with pytest.raises(ConfigError, match="is in use by"), Lease(tmp_path / "link", "train"):
            pass
        (tmp_path / "run").rename(tmp_path / "moved")
        with pytest.raises(ConfigError, match="is in use by"), Lease(tmp_path / "moved", "train"):
            pass
        (tmp_path / "moved").rename(tmp_path / "run")


def test_a_workdir_that_was_put_back_under_its_path_is_in_use(tmp_path):
    with Lease(tmp_path / "run", "train") as first:
        first._released.set()
        first._thread.join()
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        (tmp_path / "run").rename(tmp_path / "old")
        (tmp_path / "copy").rename(tmp_path / "run")  # another folder, the same path
        with pytest.raises(ConfigError, match="is in use by"), Lease(tmp_path / "run", "train"):
            pass


def test_a_lease_of_an_earlier_version_is_read(tmp_path):
    path = write_holder(tmp_path / "run")
    holder = json.loads(path.read_text())
    del holder["path"], holder["inode"]
    path.write_text(json.dumps(holder))
    with pytest.raises(ConfigError, match="is in use by"), Lease(tmp_path / "run", "train"):
        pass


@pytest.mark.parametrize(
    ("path", "workdir", "elsewhere"),
    [
        ("gs://a/run", "gs://a/copy", True),
        ("gs://a/run", "gs://a/run/", False),
        ("gs://a/run", "/mnt/a/run", False),
        ("/mnt/a/run", "gs://a/run", False),
    ],
)
def test_in_a_bucket_the_url_decides(path, workdir, elsewhere):
    holder = Lease("gs://a/run", "train")._me._replace(path=path)
    assert holder.writes_elsewhere(workdir) is elsewhere
