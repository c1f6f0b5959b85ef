"""The offsets and labels of a store are checked before any row is made of them."""

import json
import pathlib
import shutil

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from data.images.image_store import ImageRequest, write_image_store
from data.objectives import Classification
from data.store import split as split_file
from data.store.kinds import open_source
from data.store.reader import Store
from data.store.split import Split
from tests.image_files import CLASSES, write_class_folders
from tests.store_files import generation_folder

FOLDER = pathlib.Path("folder")
HUGE = [10**9, 1 << 60, (1 << 63) - 1, -1, -(1 << 63)]


def read_numbers(store, file):
    return np.fromfile(
        generation_folder(store) / file, "<f4" if "labels" in file or "tags" in file else "<i8"
    )


def rewrite(store, **numbers):
    """Replace numbers of a store, with the sizes and checksums that belong to them."""
    path, folder = store / "manifest.json", generation_folder(store)
    manifest = json.loads(path.read_text())
    for name, array in numbers.items():
        file = f"train/{name}.bin"
        content = array.tobytes()
        (folder / file).write_bytes(content)
        manifest["files"][file]["crc32c"] = f"{google_crc32c.value(content):08x}"
    path.write_text(json.dumps(manifest))


@pytest.fixture
def copy(store, tmp_path):
    return shutil.copytree(store.path, tmp_path / "copy")


def test_all_offsets_moved_or_reversed_are_refused(copy):
    whole = {file: read_numbers(copy, f"train/{file}.bin") for file in ("documents", "sentences")}
    for file, numbers in whole.items():
        for wrong in (numbers + 1, numbers[::-1], np.zeros_like(numbers)):
            rewrite(copy, **whole | {file: wrong})
            with pytest.raises(ValueError, match=f"train/{file}.bin: its (first|last) offset is"):
                Store.open(copy).open_split("train")
    rewrite(copy, **whole)
    assert len(Store.open(copy).open_split("train").document_starts) == 37


@pytest.mark.parametrize("kind", ["t5", "labelled", "tagged", "choice", "answered", "captioned"])
def test_stores_with_other_files_are_checked(request, tmp_path, kind):
    copy = shutil.copytree(request.getfixturevalue(f"{kind}_store").path, tmp_path / "copy")
    for file in ("documents", "sentences"):
        whole = read_numbers(copy, f"train/{file}.bin")
        for place in (0, len(whole) // 2, -1):
            wrong = whole.copy()
            wrong[place] = whole[-1] + 1
            rewrite(copy, **{file: wrong})
            with pytest.raises(ValueError, match=f"train/{file}.bin: .* prepare it again"):
                open_source(copy).verify_or_salvage("refuse").open_split("train")
        rewrite(copy, **{file: whole})
        open_source(copy).verify_or_salvage("refuse").open_split("train")


def test_a_document_begins_a_sentence(copy):
    documents, sentences = (
        read_numbers(copy, f"train/{file}.bin") for file in ("documents", "sentences")
    )
    documents[5] += 1
    assert documents[5] not in sentences
    rewrite(copy, documents=documents)
    with pytest.raises(ValueError, match="documents.bin: offset 5 is [0-9]+, where no sentence"):
        Store.open(copy).open_split("train")


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(data=some.data(), block=some.integers(1, 9))
def test_any_changed_offset_is_refused_or_leaves_sound_offsets(data, block):
    lengths = some.lists(some.integers(0, 4), min_size=1, max_size=4)
    drawn = data.draw(some.lists(lengths, max_size=8))
    sentences = np.cumsum([0, *(length for one in drawn for length in one)], dtype="<i8")
    documents = np.cumsum([0, *map(sum, drawn)], dtype="<i8")
    total = int(sentences[-1])
    changed = data.draw(some.sampled_from([documents, sentences]))
    place = data.draw(some.integers(0, len(changed) - 1))
    changed[place] = data.draw(some.integers(-2, total + 2) | some.sampled_from(HUGE))
    is_sound = (
        all(
            a[0] == 0 and a[-1] == total and (np.sort(a) == a).all() for a in (documents, sentences)
        )
        and np.isin(documents, sentences).all()
    )
    split = Split(np.zeros(total, "<u2"), documents, sentences, ())
    name = "documents.bin" if changed is documents else "(sentences|documents).bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_file, "BLOCK_NUMBERS", block)
        if is_sound:
            split_file.check_split(FOLDER, split, 0)
        else:
            with pytest.raises(ValueError, match=f"^folder/{name}: .* prepare it again"):
                split_file.check_split(FOLDER, split, 0)


@pytest.mark.parametrize("value", [2, 1e9, -3, 0.5, np.nan, np.inf])
@pytest.mark.parametrize(("kind", "file"), [("labelled", "labels"), ("tagged", "tags")])
def test_a_label_is_the_number_of_a_class(request, tmp_path, kind, file, value):
    copy = shutil.copytree(request.getfixturevalue(f"{kind}_store").path, tmp_path / "copy")
    labels = read_numbers(copy, f"train/{file}.bin")
    labels[7] = value
    rewrite(copy, **{file: labels})
    with pytest.raises(ValueError, match=f"train/{file}.bin: label 7 is .* whole number below 2,"):
        open_source(copy).open_split("train")


def test_scores_are_finite_and_not_classes(labelled_store, tmp_path):
    copy = shutil.copytree(labelled_store.path, tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"labels": []}))
    labels = read_numbers(copy, "train/labels.bin")
    labels[7] = 1e9  # a score, and classes up to it take no memory
    rewrite(copy, labels=labels)
    rows = open_source(copy).open_rows("train", Classification(length=24))
    assert rows.build(np.array([7]), np.zeros(1, np.uint64))["label_weights"].tolist() == [1]
    labels[7] = -2.5
    rewrite(copy, labels=labels)
    with pytest.raises(ValueError, match=r"label 7 is -2.5, .* are scores; choose an objective of"):
        open_source(copy).open_rows("train", Classification(length=24))
    labels[7] = np.nan
    rewrite(copy, labels=labels)
    with pytest.raises(ValueError, match="labels.bin: label 7 is nan; expected a finite score"):
        open_source(copy).open_split("train")


def test_labels_of_images_are_numbers_of_their_classes(tmp_path):
    write_class_folders(tmp_path / "images")
    store = tmp_path / "store"
    write_image_store(ImageRequest((str(tmp_path / "images"),), held_out=0.3), store)
    labels = read_numbers(store, "train/labels.bin")
    labels[7] = len(CLASSES)
    rewrite(store, labels=labels)
    with pytest.raises(ValueError, match=f"label 7 is {len(CLASSES)}; .* below {len(CLASSES)},"):
        open_source(store).open_split("train")


def test_a_wrong_offset_is_not_salvaged(copy):
    """Damaged documents are left out, but an offset that was changed with its checksum is refused."""
    documents = read_numbers(copy, "train/documents.bin")
    documents[5] = 10**9
    rewrite(copy, documents=documents)
    tokens = generation_folder(copy) / "train" / "tokens.bin"
    raw = bytearray(tokens.read_bytes())
    raw[0] ^= 1
    tokens.write_bytes(raw)
    with pytest.raises(ValueError, match="train/documents.bin: offset 6 is .* 1,000,000,000"):
        Store.open(copy).verify_or_salvage("skip")


def test_a_large_store_is_checked_once(copy, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(split_file, "FEW_NUMBERS", 0)
    Store.open(copy).open_split("train")
    with monkeypatch.context() as patch:
        patch.setattr(split_file, "check_split", lambda *_: pytest.fail("read twice"))
        Store.open(copy).open_split("train")
    documents = read_numbers(copy, "train/documents.bin")
    documents[5] = 10**9
    rewrite(copy, documents=documents)
    with pytest.raises(ValueError, match="train/documents.bin: offset 6 is"):
        Store.open(copy).open_split("train")


@pytest.mark.parametrize("error", [RuntimeError, PermissionError])
def test_a_large_store_opens_without_a_home(copy, monkeypatch, error):
    """As of a user of a container, who has no entry, or one whose home cannot be read."""

    def fail(name):
        raise error("no home")

    monkeypatch.setattr(split_file, "FEW_NUMBERS", 0)
    monkeypatch.setattr("data.store.user_cache.find_cache", fail)
    assert len(Store.open(copy).open_split("train").tokens)
