"""A rewritten store is a new generation: readers of the previous one are not disturbed, and unread
generations are removed.
"""

import copy
import json
import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest

from data.source import MANIFEST_FILE
from data.store import generations
from data.store.generations import GENERATION_NAME, replace_store
from data.store.reader import Store
from data.store.writer import StoreWriter
from tests.small_store import write_store
from tests.store_files import generation_folder


def rewrite_store(path, vocabulary, documents):
    """Write another store over the one at `path` and return it."""
    with replace_store(path) as folder, StoreWriter(folder, vocabulary) as writer:
        writer.begin_source("documents")
        for document in documents:
            lengths = np.array([len(sentence) for sentence in document])
            ids = np.array([i for sentence in document for i in sentence])
            writer.add_documents("train", ids, np.array([lengths.sum()]), lengths)
        writer.finish([1.0])
    return Store.open(path)


def list_names(path):
    return sorted(entry.name for entry in path.iterdir())


@pytest.fixture
def path(tmp_path, vocabulary, documents):
    """Return the folder of a store that no object of this process has open."""
    write_store(tmp_path / "s", vocabulary, documents[:9], heldout=documents[9:12])
    return tmp_path / "s"


def test_a_reader_keeps_its_generation_until_it_is_done(path, vocabulary, documents):
    old = Store.open(path)
    before, split = old.open_split("train").tokens.tolist(), old.open_split("train")
    new = rewrite_store(path, vocabulary, documents[20:30])
    assert new.open_split("train").tokens.tolist() != before
    # Files opened only now also belong to the old generation.
    assert old.open_split("heldout").document_starts.size == 4 and old.vocabulary == vocabulary
    old.verify_checksums()
    assert list_names(path) == sorted([old.folder.name, new.folder.name, MANIFEST_FILE])
    folder = old.folder.name
    del old
    rewrite_store(path, vocabulary, documents[12:15])
    assert folder in list_names(path)  # a split of it is still in use
    assert split.tokens.tolist() == before
    del split
    last = rewrite_store(path, vocabulary, documents[15:18])
    assert list_names(path) == sorted([new.folder.name, last.folder.name, MANIFEST_FILE])
    del new


READER = """
import sys
from data.store.reader import Store
store = Store.open(sys.argv[1])
print(store.folder.name, flush=True)
sys.stdin.readline()
print(int(store.open_split("train").tokens.sum()), flush=True)
"""


def test_another_process_keeps_its_generation_and_its_death_gives_it_back(
    path, vocabulary, documents, root
):
    expected = int(Store.open(path).open_split("train").tokens.sum())
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(path)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    (held,) = {process.stdout.readline().strip() for process in processes}
    rewrite_store(path, vocabulary, documents[20:30])
    assert held in list_names(path)
    out, _ = processes[0].communicate("\n", timeout=30)
    assert int(out) == expected  # read after the rewrite
    rewrite_store(path, vocabulary, documents[21:30])
    assert held in list_names(path)
    processes[1].send_signal(signal.SIGKILL)
    processes[1].communicate()
    rewrite_store(path, vocabulary, documents[22:30])
    assert held not in list_names(path) and len(list_names(path)) == 2


def test_the_same_contents_again_replace_damaged_files(path, vocabulary, documents):
    first = rewrite_store(path, vocabulary, documents[:4])
    tokens = first.folder / "train" / "tokens.bin"
    raw = bytearray(tokens.read_bytes())
    raw[0] ^= 1
    tokens.write_bytes(raw)
    again = rewrite_store(path, vocabulary, documents[:4])
    assert again.folder.name == f"{first.folder.name}-1"
    again.verify_checksums()
    assert again.fingerprint == first.fingerprint
    with pytest.raises(ValueError, match="crc32c"):
        first.verify_checksums()


def test_a_rewrite_between_manifest_and_files_is_read_again(
    path, vocabulary, documents, monkeypatch
):
    """The generation of the manifest that was read is removed before its files are opened."""
    usual, folders = Store.open_generation.__func__, []

    def open_slowly(cls, given, manifest):
        if not folders:
            folders.append(manifest["generation"])
            rewrite_store(path, vocabulary, documents[20:30])
            rewrite_store(path, vocabulary, documents[21:30])
            assert not (path / manifest["generation"]).exists()
        return usual(cls, given, manifest)

    monkeypatch.setattr(Store, "open_generation", classmethod(open_slowly))
    assert Store.open(path).open_split("train").document_starts.size == 10
    assert len(folders) == 1


@pytest.mark.parametrize("moment", ["rename", "replace", "rmtree"])
def test_a_writer_that_is_killed_leaves_one_whole_store(
    path, vocabulary, documents, monkeypatch, moment
):
    """The writer stops before it moves the new files, before it moves the manifest, or before it
    removes the old files.
    """
    old = Store.open(path).fingerprint

    module = generations.shutil if moment == "rmtree" else generations.os
    usual = getattr(module, moment)

    def die_at_moment(source, *rest, **options):
        if moment == "rmtree" and GENERATION_NAME.fullmatch(os.path.basename(source)) is None:
            return usual(source, *rest, **options)  # of the scratch folder
        raise KeyboardInterrupt

    def write_and_die():
        with replace_store(path) as folder:
            with StoreWriter(folder, vocabulary) as writer:
                writer.begin_source("documents")
                writer.add_documents("train", np.array([5, 6]), np.array([2]), np.array([2]))
                writer.finish([1.0])
            monkeypatch.setattr(module, moment, die_at_moment)

    with pytest.raises(KeyboardInterrupt):
        write_and_die()
    monkeypatch.undo()
    left = Store.open(path)
    left.verify_checksums()
    assert (left.fingerprint == old) == (moment != "rmtree")
    del left
    last = rewrite_store(path, vocabulary, documents[:3])
    assert list_names(path) == sorted([last.folder.name, MANIFEST_FILE])
    assert list_names(path.parent) == ["s"]


def test_only_generations_are_removed(path, vocabulary, documents):
    (path / "notes").mkdir()
    (path / "notes" / "thesis.txt").write_text("x")
    (path / "README").write_text("mine")
    os.symlink(path.parent, path / "0123456789ab")
    rewrite_store(path, vocabulary, documents[:3])
    assert (path / "notes" / "thesis.txt").read_text() == "x" and path.exists()
    assert {"README", "0123456789ab"} <= set(list_names(path))


@pytest.mark.parametrize(
    "content",
    ['{"version": 1}', '{"version": 2}', "{", "[]", '{"manifest_version": 3, "version": "1.0"}'],
)
def test_a_folder_with_the_manifest_of_another_program_is_never_replaced(
    tmp_path, vocabulary, documents, content
):
    mine = tmp_path / "mine"
    for name in ("train", "heldout", "vocabulary", "checksums", "unfinished", "0123456789ab"):
        (mine / name).mkdir(parents=True)
        (mine / name / "recording.wav").write_text("mine")
    (mine / MANIFEST_FILE).write_text(content)
    before = sorted(mine.rglob("*"))
    with pytest.raises(FileExistsError, match="mine exists and is not a token store .*another pro"):
        rewrite_store(mine, vocabulary, documents[:3])
    assert sorted(mine.rglob("*")) == before and (mine / MANIFEST_FILE).read_text() == content
    with pytest.raises(ValueError, match=str(mine)) as refused:
        Store.open(mine)
    assert "--overwrite" not in str(refused.value)
    assert list_names(tmp_path) == ["mine"]


def test_what_is_put_there_while_a_store_is_written_stays(tmp_path, vocabulary):
    output = tmp_path / "s"
    filled = pytest.raises(FileExistsError, match="s exists and is not a token store; it will")
    with filled, replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        writer.begin_source("documents")
        writer.add_documents("train", np.array([5]), np.array([1]), np.array([1]))
        writer.finish([1.0])
        output.mkdir()
        (output / "thesis.txt").write_text("mine")
    assert list_names(tmp_path) == ["s"] and list_names(output) == ["thesis.txt"]


def test_folders_of_others_beside_the_generations_stay(path, vocabulary, documents):
    for name in ("unfinished", "train", "0123456789ab"):
        (path / name).mkdir()
        (path / name / "readers").write_text("mine")
    new = rewrite_store(path, vocabulary, documents[:3])
    assert list_names(path) == sorted(
        [new.folder.name, MANIFEST_FILE, "unfinished", "train", "0123456789ab"]
    )


def test_a_store_is_written_through_a_link_to_a_folder(tmp_path, vocabulary, documents):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    rewrite_store(tmp_path / "link", vocabulary, documents[:3])
    assert (tmp_path / "link").is_symlink() and len(list_names(tmp_path / "disk")) == 2
    (tmp_path / "far").symlink_to(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="far is a link to .*absent, which is not there"):
        rewrite_store(tmp_path / "far", vocabulary, documents[:3])
    assert not (tmp_path / "absent").exists()


def test_a_store_of_the_first_layout_is_refused_and_rewritten(path, vocabulary, documents):
    folder, manifest = generation_folder(path), json.loads((path / MANIFEST_FILE).read_text())
    for entry in list(folder.iterdir()):
        entry.rename(path / entry.name)
    folder.rmdir()
    (path / MANIFEST_FILE).write_text(json.dumps(manifest | {"version": 1}))
    with pytest.raises(ValueError, match=r"version 1 of the store.*--overwrite"):
        Store.open(path)
    new = rewrite_store(path, vocabulary, documents[:3])
    assert list_names(path) == sorted([new.folder.name, MANIFEST_FILE, "readers"])


@pytest.mark.parametrize(
    "change",
    [
        {"generation": "../../etc"},
        {"generation": None},
        {"generation": "0123456789ab/.."},
        {"files": {"../../outside": {"bytes": 1, "crc32c": "0"}}},
        {"files": {"/etc/passwd": {"bytes": 1, "crc32c": "0"}}},
        {"files": {"train/../x": {"bytes": 1, "crc32c": "0"}}},
        {"files": 5},
        {"files": [1]},
        {"files": None},
        {"files": {"train/tokens.bin": 7}},
        {"files": {"train/tokens.bin": {"bytes": "many", "crc32c": "0"}}},
    ],
    ids=str,
)
def test_a_manifest_that_points_elsewhere_is_refused(path, change):
    manifest = json.loads((path / MANIFEST_FILE).read_text())
    (path / MANIFEST_FILE).write_text(json.dumps(manifest | change))
    with pytest.raises(ValueError, match="is broken: it names no generation, or files outside"):
        Store.open(path)


def test_two_rewrites_at_once_are_one(path, vocabulary, documents):
    with replace_store(path) as folder, StoreWriter(folder, vocabulary) as writer:
        writer.begin_source("documents")
        writer.add_documents("train", np.array([5]), np.array([1]), np.array([1]))
        with pytest.raises(BlockingIOError, match="is being written by another process"):
            rewrite_store(path, vocabulary, documents[:2])
        writer.finish([1.0])
    assert Store.open(path).manifest["splits"]["train"]["tokens"] == 1


def test_a_link_to_a_store_stays_one(path, vocabulary, documents, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link"
    link.symlink_to(path)
    new = rewrite_store(link, vocabulary, documents[:3])
    assert link.is_symlink() and Store.open(path).fingerprint == new.fingerprint
    assert list_names(link.parent) == ["link"] and len(list_names(path)) == 2


def test_a_file_is_not_replaced_by_a_store(tmp_path, vocabulary, documents):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(NotADirectoryError):
        rewrite_store(tmp_path / "notes", vocabulary, documents[:3])
    assert (tmp_path / "notes").read_text() == "mine" and list_names(tmp_path) == ["notes"]


def test_a_generation_with_unknown_readers_stays(path, vocabulary, documents):
    folder = generation_folder(path)
    (folder / "readers").unlink()  # as an incomplete copy may leave it
    store = Store.open(path)
    rewrite_store(path, vocabulary, documents[:3])
    assert folder.exists()
    store.verify_checksums()


def test_a_copy_of_a_store_holds_nothing_and_closes_nothing(path, vocabulary, documents):
    store = Store.open(path)
    for twin in (pickle.loads(pickle.dumps(store)), copy.deepcopy(store)):
        assert twin.generation_lock is None and twin.fingerprint == store.fingerprint
    del twin
    os.fstat(store.generation_lock.descriptor)
    rewrite_store(path, vocabulary, documents[:3])
    store.verify_checksums()


def test_a_store_that_lives_as_long_as_the_program_is_closed(path, monkeypatch):
    """Python may have emptied the module `os` by then."""
    lock = generations.lock_generation(Store.open(path).folder)
    assert lock is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", None)
        lock.__del__()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(lock.descriptor)
    lock.descriptor = os.open(os.devnull, os.O_RDONLY)  # which the end of the lock closes
