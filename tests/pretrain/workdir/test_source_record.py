"""A run resumes from the token store that it began with, at any path, and from another one only
with --allow-changes.
"""

import itertools
import json
import shutil

import pytest

from data.store.reader import Store
from pretrain.__main__ import main
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.source_record import NAME, check_heldout, check_source, write_source
from pretrain.workdir.workdir import Workdir
from tests.small_store import write_store

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def other(stores, tmp_path_factory):
    """Write another store with the same vocabulary: the documents of the first one without the
    first.
    """
    store, documents = stores["bert"], []
    split = store.open_split("train")
    for i in range(1, len(split.document_starts) - 1):
        lo, hi = (int(at) for at in split.document_starts[i : i + 2])
        documents.append([split.tokens[lo:hi].tolist()])
    return write_store(
        tmp_path_factory.mktemp("other") / "store",
        store.vocabulary,
        documents,
        heldout=documents[:2],
    )


@pytest.fixture
def workdir(stores, tmp_path):
    write_source(stores["bert"].path, stores["bert"].fingerprint, Workdir.open(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "checkpoints" / "4").mkdir(parents=True)
    return tmp_path


def check_record(store, workdir, allow_changes):
    check_source(store.path, store.fingerprint, Workdir.open(workdir), allow_changes)


def test_the_same_store_elsewhere_is_the_same(stores, workdir, capsys):
    copy = shutil.copytree(stores["bert"].path, workdir / "elsewhere")
    check_record(Store.open(copy), workdir, allow_changes=False)
    assert not capsys.readouterr().out


def test_another_store_is_refused_and_allowed_by_word(stores, other, workdir, capsys):
    before = (workdir / NAME).read_text()
    with pytest.raises(ConfigError, match="holds a run of other data") as caught:
        check_record(other, workdir, allow_changes=False)
    for word in (str(stores["bert"].path), str(other.path), "--allow-changes"):
        assert word in str(caught.value)
    assert (workdir / NAME).read_text() == before
    check_record(other, workdir, allow_changes=True)
    assert f"-> '{other.path}'" in capsys.readouterr().out


def test_the_held_out_part_is_remembered(stores, other, tmp_path):
    store = stores["bert"]
    write_source(store.path, store.fingerprint, Workdir.open(tmp_path), store.heldout_digest)
    assert check_heldout(store, Workdir.open(tmp_path)) is None
    with pytest.raises(ConfigError, match="was prepared again: its held-out documents are not"):
        check_heldout(other, Workdir.open(tmp_path))


def test_a_record_without_a_held_out_part_names_what_it_cannot_show(stores, other, tmp_path):
    """Of version 0.2.0."""
    workdir = Workdir.open(tmp_path)
    assert check_heldout(stores["bert"], workdir) is None  # an import has no record at all
    write_source(stores["bert"].path, stores["bert"].fingerprint, workdir)
    assert check_heldout(stores["bert"], workdir) is None
    assert "that are held out now cannot be checked" in check_heldout(other, workdir)


def test_the_digest_of_the_held_out_part_is_of_it_alone(stores, tmp_path):
    store, split = stores["bert"], stores["bert"].open_split("heldout")
    bounds = split.document_starts.tolist()
    held_out = [[split.tokens[a:b].tolist()] for a, b in itertools.pairwise(bounds)]
    train = [[[5, 6, 7]], [[8, 9]]]
    first, second = (
        write_store(tmp_path / str(n), store.vocabulary, train[:n], heldout=held_out)
        for n in (1, 2)
    )
    third = write_store(tmp_path / "3", store.vocabulary, train, heldout=held_out[1:])
    assert first.heldout_digest == second.heldout_digest != third.heldout_digest
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", "[" * 100_000, '{"fingerprint": "a"}', "\x00" * 9],
    ids=lambda text: text[:9],
)
def test_a_record_that_cannot_be_read_is_named(stores, workdir, text):
    (workdir / NAME).write_text(text)
    with pytest.raises(ConfigError, match=f"{NAME} cannot be read"):
        check_record(stores["bert"], workdir, allow_changes=True)


def test_a_workdir_without_a_run_takes_any_store(stores, other, workdir):
    (workdir / "checkpoints" / "4").rmdir()  # as left by a start that completed no step
    check_record(other, workdir, allow_changes=False)
    (workdir / NAME).unlink()
    (workdir / "checkpoints" / "0").mkdir()  # as left by an import
    check_record(other, workdir, allow_changes=False)


@pytest.mark.slow
def test_train_refuses_another_store(configs, stores, other, tmp_path, capsys):
    words = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), "evaluate.every=0"]
    assert main([*words, "train.stop_at_step=1"]) == 0
    assert json.loads((tmp_path / "run" / NAME).read_text())["path"] == str(stores["bert"].path)
    words += ["train.stop_at_step=2", f"data.store={other.path}"]
    capsys.readouterr()
    assert main(words) == 2
    assert "holds a run of other data" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["1"]
    assert main([*words, "--allow-changes"]) == 0
    assert "changed on continuing: data" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / NAME).read_text())["path"] == str(other.path)
