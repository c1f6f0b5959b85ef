"""Row 15: a damaged token store is named and refused before anything is trained or scored on it."""

import json
import random
import re
import shutil

import pytest

from data.store.reader import Store
from pretrain.__main__ import main
from tests.command import split_words
from tests.store_files import generation_folder


@pytest.fixture
def copy(configured, tmp_path):
    """Return a copy of a sound store, which a test may damage."""
    return shutil.copytree(configured("bert")[2].path, tmp_path / "store")


@pytest.mark.held_by(2)
@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("damage", ["flipped", "missing", "truncated"])
def test_a_damaged_store_is_named_and_refused(
    configured, finished, copy, refused, tmp_path, record_property, damage, split
):
    path, _, _ = configured("bert")
    rng = random.Random(f"{damage} {split}")
    shard = (
        generation_folder(copy)
        / split
        / rng.choice(["tokens.bin", "documents.bin", "sentences.bin"])
    )
    raw = bytearray(shard.read_bytes())
    if damage == "missing":
        shard.unlink()
    elif damage == "truncated":
        shard.write_bytes(raw[: rng.randrange(len(raw))])
    else:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        shard.write_bytes(raw)
    expected_messages = {
        "missing": f"{shard} is missing",
        "truncated": f"{shard} has ",
        "flipped": f"{shard}: crc32c ",
    }[damage]
    assert expected_messages in refused(
        "train", path, "--workdir", tmp_path / "run", f"data.store={copy}"
    )
    assert expected_messages in refused("evaluate", "--workdir", finished[1], "--store", copy)
    assert not (tmp_path / "run").exists()
    record_property("refused", 2)


def test_every_byte_counts_and_a_sound_store_is_read_once(
    copy, often, monkeypatch, tmp_path, record_property
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Store.open(copy).verify_checksums_once()
    with monkeypatch.context() as patch:
        patch.setattr(Store, "verify_checksums", lambda store: pytest.fail("read twice"))
        Store.open(copy).verify_checksums_once()
    rng, flips = random.Random(15), often(20, 300)
    for _ in range(flips):
        name = rng.choice(sorted(Store.open(copy).manifest["files"]))
        whole = (generation_folder(copy) / name).read_bytes()
        raw = bytearray(whole)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        (generation_folder(copy) / name).write_bytes(raw)
        with pytest.raises(ValueError, match=f"{name}: crc32c"):
            Store.open(copy).verify_checksums_once()
        (generation_folder(copy) / name).write_bytes(whole)
    record_property("flips found", flips)


def test_a_run_goes_on_without_the_damaged_documents_and_only_without_the_same(
    configured, copy, refused, capsys, tmp_path, record_property
):
    path, workdir = configured("bert")[0], tmp_path / "run"
    tokens = generation_folder(copy) / "train" / "tokens.bin"
    whole = tokens.read_bytes()
    tokens.write_bytes(bytes([whole[0] ^ 4]) + whole[1:])
    words = split_words(
        f"train {path} --workdir {workdir} data.store={copy} data.on_corrupt=skip",
        "evaluate.every=0",
    )
    assert "or leave the damaged documents out with data.on_corrupt=skip" in refused(
        *words, "data.on_corrupt=refuse"
    )
    assert main([*map(str, words), "train.stop_at_step=2"]) == 0
    lost = re.search(
        r"skipped because their bytes have changed: (\d+) of train documents",
        capsys.readouterr().err,
    )
    skipped_documents = json.loads((workdir / "left_out.json").read_text())
    assert (
        skipped_documents["train"] == list(range(int(lost[1])))
        and 0 < len(skipped_documents["train"]) < 60
        and skipped_documents["heldout"] == []
    )
    older = {"told": skipped_documents.pop("omissions")} | skipped_documents  # as 0.2 wrote it
    (workdir / "left_out.json").write_text(json.dumps(older))
    assert (
        main([*map(str, words), "train.stop_at_step=2"]) == 0
    )  # the same documents are skipped, so the run is complete
    tokens.write_bytes(whole[:-1] + bytes([whole[-1] ^ 4]))
    assert re.search(
        r"that left out \d+ of train documents .* now it is \d+ of train documents", refused(*words)
    )
    tokens.write_bytes(whole)
    assert (
        "of its token store, now it is no documents. Repair the store, or add --allow-changes"
        in refused(*words)
    )
    capsys.readouterr()
    assert main([*map(str, words), "train.stop_at_step=2", "--allow-changes"]) == 0
    assert "changed on continuing: left out of the token store: " in capsys.readouterr().out
    assert json.loads((workdir / "left_out.json").read_text())["omissions"] == "no documents"
    record_property("continued without the same", 1)
    record_property("refused", 2)
