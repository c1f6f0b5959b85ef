"""Files and folders appear whole or not at all: kills, several writers, full disks, targets of
every kind.
"""

import errno
import os
import stat
import subprocess
import sys
import textwrap
import threading

import pytest
from etils import epath

from data.store import atomic

# A writer that reports that all is written, and waits to be killed before the rename.
KILLED = """
    import pathlib, sys
    from data.store import atomic
    with getattr(atomic, sys.argv[1])(pathlib.Path(sys.argv[2])) as new:
        (new / "file" if new.is_dir() else new).write_text("new")
        print("written", flush=True)
        sys.stdin.read()
"""


def start_writer(root, how, target):
    """Start a process that has written all of `target` and has not renamed it."""
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), how, str(target)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout.readline() == "written\n"
    return writer


def list_names(folder):
    return sorted(path.name for path in folder.iterdir())


# ---- files -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, epath.Path, os.fspath])
def test_text_and_bytes_replace_what_is_there(tmp_path, kind):
    path = kind(tmp_path / "file")
    atomic.write_atomically(path, "größer\n")
    assert (tmp_path / "file").read_bytes() == "größer\n".encode()
    atomic.write_atomically(path, b"\xff\0")
    assert (tmp_path / "file").read_bytes() == b"\xff\0" and list_names(tmp_path) == ["file"]


def test_a_writer_that_raises_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def write_and_fail(new):
        new.write_text("new")
        assert path.read_text() == "old" and new.name == path.name
        raise RuntimeError("the writer fails")

    with pytest.raises(RuntimeError, match="the writer fails"), atomic.replace_file(path) as new:
        write_and_fail(new)
    assert path.read_text() == "old" and list_names(tmp_path) == ["file"]


def test_a_writer_that_is_killed_leaves_the_old_file_and_the_next_one_cleans_up(tmp_path, root):
    path = tmp_path / "file"
    path.write_text("old")
    writer = start_writer(root, "replace_file", path)
    assert len(list_names(tmp_path)) == 2
    with atomic.replace_file(path) as new:  # another writer while that one lives
        new.write_text("other")
    assert path.read_text() == "other" and len(list_names(tmp_path)) == 2
    writer.kill()
    writer.communicate()
    assert path.read_text() == "other" and len(list_names(tmp_path)) == 2
    atomic.write_atomically(path, "last")
    assert path.read_text() == "last" and list_names(tmp_path) == ["file"]


def test_writers_at_once_do_not_disturb_each_other(tmp_path):
    path, errors = tmp_path / "file", []
    contents = [str(number) * 10_000 for number in range(8)]

    def write_repeatedly(content):
        try:
            for _ in range(25):
                atomic.write_atomically(path, content)
                assert path.read_text() in contents
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write_repeatedly, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and path.read_text() in contents and list_names(tmp_path) == ["file"]


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        atomic.write_atomically(tmp_path / "file", "x")
        with atomic.replace_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750


def test_an_error_of_the_disk_names_the_target(tmp_path):
    with (
        pytest.raises(OSError, match="No space left") as caught,
        atomic.replace_file(tmp_path / "file"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as from `write`: without a name
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(tmp_path / "file")
    with pytest.raises(FileNotFoundError) as caught:
        atomic.write_atomically(tmp_path / "absent" / "file", "x")
    assert caught.value.filename == str(tmp_path / "absent" / "file")
    with pytest.raises(FileNotFoundError) as caught, atomic.replace_file(tmp_path / "file"):
        (tmp_path / "input").read_text()  # an error about another file has that file's name
    assert caught.value.filename == str(tmp_path / "input") and list_names(tmp_path) == []


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    atomic.write_atomically(tmp_path / "pipe", "x")
    assert os.read(reader, 10) == b"x" and (tmp_path / "pipe").is_fifo()
    os.close(reader)


def test_a_folder_is_not_replaced_by_a_file_nor_a_file_by_a_folder(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for how, target, error in (
        (atomic.replace_file, "folder", IsADirectoryError),
        (atomic.replace_folder, "file", NotADirectoryError),
    ):
        with pytest.raises(error, match=target), how(tmp_path / target):
            pytest.fail("refused only after the work was done")
    assert list_names(tmp_path) == ["file", "folder"]


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    atomic.write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "real").read_text() == "old"
    assert (tmp_path / "link").read_text() == "new" and not (tmp_path / "link").is_symlink()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("old")
    (tmp_path / "short").symlink_to(tmp_path / "folder")
    with atomic.replace_folder(tmp_path / "short") as new:
        (new / "file").write_text("new")
    assert (tmp_path / "folder" / "file").read_text() == "old"
    assert (tmp_path / "short" / "file").read_text() == "new"
    assert list_names(tmp_path) == ["folder", "link", "real", "short"]


def test_an_object_of_a_bucket_is_written_under_its_own_name(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "is_remote", lambda path: True)
    with atomic.replace_file(tmp_path / "file") as new:
        assert new == tmp_path / "file"
    monkeypatch.setattr(atomic, "as_path", epath.Path)
    for text in ("old", "new"):
        with atomic.replace_folder(tmp_path / "folder") as new:
            (new / "file").write_text(text)
    with pytest.raises(RuntimeError), atomic.replace_folder(tmp_path / "folder"):
        raise RuntimeError
    assert (tmp_path / "folder" / "file").read_text() == "new" and list_names(tmp_path) == [
        "folder"
    ]


# ---- folders -----------------------------------------------------------------


def test_a_folder_has_one_writer_and_a_killed_one_leaves_the_old_folder(tmp_path, root):
    target = tmp_path / "folder"
    with atomic.replace_folder(target) as new:
        (new / "file").write_text("old")
    writer = start_writer(root, "replace_folder", target)
    busy = pytest.raises(BlockingIOError, match="folder is being written by another process")
    with busy, atomic.replace_folder(target):
        pass
    writer.kill()
    writer.communicate()
    assert (target / "file").read_text() == "old" and len(list_names(tmp_path)) == 2
    with atomic.replace_folder(target) as new:
        assert list_names(new) == []
    assert list_names(target) == [] and list_names(tmp_path) == ["folder"]


def test_a_kill_between_the_two_renames_loses_no_folder(tmp_path):
    scratch = tmp_path / ".folder.part-0123abcd"
    (scratch / atomic.REPLACED_FOLDER).mkdir(parents=True)
    (scratch / atomic.REPLACED_FOLDER / "file").write_text("old")
    (scratch / "new").mkdir()
    (scratch / "lock").write_text(atomic.LOCK_MARK)
    with pytest.raises(RuntimeError), atomic.replace_folder(tmp_path / "folder"):
        raise RuntimeError
    assert (
        list_names(tmp_path) == ["folder"] and (tmp_path / "folder" / "file").read_text() == "old"
    )


def test_a_failing_rename_puts_the_old_folder_back(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("old")
    with (
        atomic.open_scratch_folder(tmp_path / "folder") as scratch,
        pytest.raises(FileNotFoundError),
    ):
        atomic.move_into_place(scratch / "absent", tmp_path / "folder", scratch)
    assert (tmp_path / "folder" / "file").read_text() == "old" and list_names(tmp_path) == [
        "folder"
    ]


def test_without_locks_nothing_is_taken_for_abandoned(tmp_path, monkeypatch):
    def refuse_lock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(atomic.fcntl, "flock", refuse_lock)
    (tmp_path / ".file.part-0123abcd").mkdir()
    atomic.write_atomically(tmp_path / "file", "x")
    assert (tmp_path / "file").read_text() == "x" and (tmp_path / ".file.part-0123abcd").is_dir()


# ---- folders that must be new ------------------------------------------------


def test_of_two_that_build_the_same_folder_the_first_to_end_wins(tmp_path):
    first, second = (atomic.build_folder(tmp_path / "run") for _ in range(2))
    part = first.__enter__()
    (part / "file").write_text("first")
    (second.__enter__() / "file").write_text("second")
    assert (part / "file").read_text() == "first"  # the second has removed no file of the first
    first.__exit__(None, None, None)
    with pytest.raises(FileExistsError, match="run: another process has filled it meanwhile"):
        second.__exit__(None, None, None)
    assert list_names(tmp_path) == ["run"] and (tmp_path / "run" / "file").read_text() == "first"


def test_an_empty_folder_is_built_and_one_with_a_file_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    with atomic.build_folder(tmp_path / "run") as part:
        (part / "file").write_text("")
    refused = pytest.raises(FileExistsError, match="run: exists and is not empty; name a new")
    with refused, atomic.build_folder(tmp_path / "run"):
        pytest.fail("it is not empty")
    failed = pytest.raises(RuntimeError, match="in the block")
    with failed, atomic.build_folder(tmp_path / "other"):
        raise RuntimeError("in the block")
    assert list_names(tmp_path) == ["run"]


def test_the_next_builder_removes_files_of_a_killed_one(tmp_path, root):
    writer = start_writer(root, "build_folder", tmp_path / "run")
    with atomic.build_folder(tmp_path / "other"):
        assert len(list_names(tmp_path)) == 2
    with atomic.build_folder(tmp_path / "run"):
        assert len(list_names(tmp_path)) == 3  # its creator is alive
    writer.kill()
    writer.communicate()
    with atomic.build_folder(tmp_path / "run") as part:
        (part / "file").write_text("")
    assert list_names(tmp_path) == ["other", "run"]


# ---- what looks like a scratch folder and is not this program's -----------------


def fill_folder(folder):
    """Make a folder with what another program or a person may have in it."""
    (folder / "new").mkdir(parents=True)
    (folder / "new" / "recording.wav").write_text("mine")
    (folder / "notes.txt").write_text("mine")


@pytest.mark.parametrize("lock", ["none", "empty", "other", "mark behind a link"])
def test_links_are_not_followed_when_litter_is_swept(tmp_path, lock):
    """A link that is named as a scratch folder keeps its target, even another scratch folder."""
    target = tmp_path / "mine"
    fill_folder(target)
    if lock != "none":
        text = {"empty": "", "other": "of another program"}.get(lock, atomic.LOCK_MARK)
        (target / "lock").write_text(text)
    (tmp_path / "work").mkdir()
    link = tmp_path / "work" / ".file.part-0123abcd"
    link.symlink_to(target)
    before = list_names(target)
    atomic.write_atomically(tmp_path / "work" / "file", "x")
    with atomic.open_scratch_folder(tmp_path / "work" / "file"):
        pass
    assert list_names(target) == before and (target / "new" / "recording.wav").exists()
    assert link.is_symlink() and list_names(tmp_path / "work") == [link.name, "file"]


@pytest.mark.parametrize("lock", [None, "", "of another program"])
def test_a_folder_without_the_mark_of_this_program_stays(tmp_path, lock):
    folder = tmp_path / ".file.part-0123abcd"
    fill_folder(folder)
    (folder / atomic.REPLACED_FOLDER).mkdir()
    if lock is not None:
        (folder / "lock").write_text(lock)
    before = list_names(folder)
    atomic.write_atomically(tmp_path / "file", "x")
    with atomic.replace_folder(tmp_path / "folder"):
        pass
    assert list_names(folder) == before and (folder / "new" / "recording.wav").exists()


def test_a_marked_folder_is_removed_but_not_what_its_links_lead_to(tmp_path):
    scratch, mine = tmp_path / ".file.part-0123abcd", tmp_path / "mine"
    fill_folder(mine)
    (scratch / "new").mkdir(parents=True)
    (scratch / "new" / "link").symlink_to(mine)
    (scratch / "link").symlink_to(mine)
    (scratch / "lock").write_text(atomic.LOCK_MARK)
    atomic.write_atomically(tmp_path / "file", "x")
    assert list_names(tmp_path) == ["file", "mine"] and (mine / "new" / "recording.wav").exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_lock_that_is_no_file_is_not_waited_for(tmp_path, kind):
    folder = tmp_path / ".file.part-0123abcd"
    fill_folder(folder)
    (tmp_path / "mark").write_text(atomic.LOCK_MARK)
    lock = folder / "lock"
    if kind == "link":
        lock.symlink_to(tmp_path / "mark")
    else:
        os.mkfifo(lock) if kind == "pipe" else lock.mkdir()
    atomic.write_atomically(tmp_path / "file", "x")
    assert (folder / "new" / "recording.wav").exists() and os.path.lexists(lock)


def test_permissions_outlast_a_write(tmp_path):
    atomic.write_atomically(tmp_path / "file", "one")
    os.chmod(tmp_path / "file", 0o600)
    atomic.write_atomically(tmp_path / "file", "two")
    assert (tmp_path / "file").read_text() == "two"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    for content in ("one", "two"):
        with atomic.replace_folder(tmp_path / "folder") as new:
            (new / "file").write_text(content)
        if content == "one":
            os.chmod(tmp_path / "folder", 0o700)
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700


def test_a_file_with_the_name_of_litter_stays_and_blocks_nobody(tmp_path):
    (tmp_path / ".file.part-1").write_text("of somebody else")
    atomic.write_atomically(tmp_path / "file", "one")
    with atomic.replace_folder(tmp_path / "folder") as new:
        (tmp_path / ".folder.part-1").write_text("of somebody else")
        (new / "a").write_text("a")
    with atomic.replace_folder(tmp_path / "folder") as new:
        (new / "b").write_text("b")
    assert (tmp_path / "file").read_text() == "one" and (tmp_path / "folder" / "b").exists()
    assert (tmp_path / ".file.part-1").read_text() == "of somebody else"
    assert (tmp_path / ".folder.part-1").read_text() == "of somebody else"
