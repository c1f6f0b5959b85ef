"""Row 15: a token store that is not what was written is named and refused before anything is trained or scored on it."""

import random
import shutil

import pytest

from data.store import Store


@pytest.fixture
def copy(configured, tmp_path):
    """A copy of a sound store that may be damaged."""
    return shutil.copytree(configured("bert")[2].path, tmp_path / "store")


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("damage", ["flipped", "missing", "truncated"])
def test_a_damaged_store_is_named_and_refused(configured, finished, copy, refused, tmp_path, record_property, damage, split):
    path, _, _ = configured("bert")
    rng = random.Random(f"{damage} {split}")
    shard = copy / split / rng.choice(["tokens.bin", "documents.bin", "sentences.bin"])
    raw = bytearray(shard.read_bytes())
    if damage == "missing":
        shard.unlink()
    elif damage == "truncated":
        shard.write_bytes(raw[: rng.randrange(len(raw))])
    else:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        shard.write_bytes(raw)
    told = {"missing": f"{shard} is missing", "truncated": f"{shard} has ", "flipped": f"{shard}: crc32c "}[damage]
    assert told in refused("train", path, "--workdir", tmp_path / "run", f"data.store={copy}")
    assert told in refused("evaluate", "--workdir", finished[1], "--store", copy)
    assert not (tmp_path / "run").exists()
    record_property("refused", 2)


def test_every_byte_counts_and_a_sound_store_is_read_once(copy, often, monkeypatch, tmp_path, record_property):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Store.open(copy).verify_once()
    with monkeypatch.context() as patch:
        patch.setattr(Store, "verify", lambda store: pytest.fail("read twice"))
        Store.open(copy).verify_once()
    rng, flips = random.Random(15), often(20, 300)
    for _ in range(flips):
        name = rng.choice(sorted(Store.open(copy).manifest["files"]))
        whole = (copy / name).read_bytes()
        raw = bytearray(whole)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        (copy / name).write_bytes(raw)
        with pytest.raises(ValueError, match=f"{name}: crc32c"):
            Store.open(copy).verify_once()
        (copy / name).write_bytes(whole)
    record_property("flips found", flips)
