"""Stores of images: what is written is read, bad images are named, and damage is located."""

import hashlib
import json

import numpy as np
import pytest
from PIL import Image

from data.images.image_files import decode_image, make_pixels
from data.images.image_sources import open_image_source
from data.images.image_store import ImageRequest, ImageStore, write_image_store
from data.objectives.image_classification import ImageClassification
from data.objectives.masked_lm import MaskedLm
from data.store.kinds import open_source
from tests.image_files import CLASSES, write_class_folders


@pytest.fixture
def images(tmp_path):
    return write_class_folders(tmp_path / "images")


def write(tmp_path, *sources, output="store", **options):
    names = tuple(map(str, sources or (tmp_path / "images",)))
    return write_image_store(ImageRequest(names, **options), tmp_path / output)


def read_all(store):
    """Return {split: [(pixels, class)]} of a store."""
    found = {}
    for split in ("train", "heldout"):
        part = store.open_split(split)
        files = np.split(np.asarray(part.tokens), np.asarray(part.document_starts)[1:-1])
        labels = np.asarray(part.labels).astype(int)
        found[split] = [
            (make_pixels(decode_image(file.tobytes(), 3)), store.encoding.classes[label])
            for file, label in zip(files, labels, strict=True)
        ]
    return found


def test_a_folder_of_classes_is_stored_as_it_is(images, tmp_path):
    """Each image is in one split, with its class and its pixels; the split follows from its bytes."""
    store = write(tmp_path, held_out=0.3)
    assert isinstance(open_source(tmp_path / "store"), ImageStore)
    assert store.encoding.classes == CLASSES
    found = read_all(store)
    assert 6 <= len(found["heldout"]) <= 30
    pairs = [pair for part in found.values() for pair in part]
    assert len(pairs) == 60
    for pixels, label in pairs:
        assert any((pixels == other).all() for other in images[label])
    again = write(tmp_path, held_out=0.3, output="again")
    assert again.fingerprint == store.fingerprint
    assert again.manifest["splits"]["train"]["documents"] == len(found["train"])
    expected = sorted(
        hashlib.sha256(path.read_bytes()).digest() for path in tmp_path.glob("images/*/*.png")
    )
    part = store.open_split("heldout")
    files = np.split(np.asarray(part.tokens), np.asarray(part.document_starts)[1:-1])
    seen = sorted(hashlib.sha256(file.tobytes()).digest() for file in files)
    assert seen == [d for d in expected if int.from_bytes(d[:4], "little") < 0.3 * 2**32]


def test_hidden_images_are_left_out(images, tmp_path):
    disk = tmp_path / "images" / "disk"
    (disk / ".cache").mkdir()
    for name in ("._000.png", ".cache/a.png"):
        (disk / name).write_bytes(b"no image")
    (tmp_path / "images" / "._disk.png").write_bytes(b"no image")
    store = write(tmp_path)
    assert sum(split["documents"] for split in store.manifest["splits"].values()) == 60


def test_arrays_and_validation(tmp_path):
    """Arrays are stored without loss; --validation is the held-out split."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (30, 8, 8), np.uint8), np.arange(30) % 4
    np.savez(tmp_path / "a.npz", x=x[:20], y=y[:20])
    np.savez(tmp_path / "b.npz", images=x[20:, ..., None], labels=y[20:])
    store = write(tmp_path, tmp_path / "a.npz", validation=(str(tmp_path / "b.npz"),))
    assert store.encoding.classes == ("0", "1", "2", "3")
    for split, start in (("train", 0), ("heldout", 20)):
        for i, (pixels, label) in enumerate(read_all(store)[split]):
            assert (pixels == x[start + i, ..., None]).all() and label == str(y[start + i])


def test_sources_have_their_shares(images, tmp_path):
    write_class_folders(tmp_path / "more", count=5, seed=1)
    store = write(tmp_path, tmp_path / "images", tmp_path / "more", held_out=0.2)
    shares = [source["rate"] for source in store.manifest["sources"]]
    assert sum(shares) == pytest.approx(1) and shares[0] > 2 * shares[1]
    rows = store.open_rows("train", ImageClassification(size=20))
    assert rows.table.offsets.tolist()[-1] == store.manifest["splits"]["train"]["documents"]
    assert len(rows.table.offsets) == 3


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda root: (root / "disk" / "000.png").write_bytes(b""), "000.png: the file is empty"),
        (lambda root: (root / "disk" / "000.png").write_bytes((root / "disk" / "001.png").read_bytes()[:-30]),
         "000.png: a damaged image"),
        (lambda root: (root / "empty").mkdir(), "empty: a class without images"),
        (lambda root: (root / "a.png").write_bytes(b"x"), "one folder for each class.*a.png"),
    ],
)  # fmt: skip
def test_bad_images_are_named(images, tmp_path, break_it, message):
    break_it(tmp_path / "images")
    with pytest.raises(ValueError, match=message):
        write(tmp_path)
    assert not (tmp_path / "store").exists()


def test_bad_images_are_skipped_and_counted(images, tmp_path):
    for name in ("000", "001"):
        (tmp_path / "images" / "disk" / f"{name}.png").write_bytes(b"")
    (tmp_path / "images" / "square" / "003.png").write_bytes(b"no image")
    store = write(tmp_path, on_bad_image="skip")
    assert sum(split["documents"] for split in store.manifest["splits"].values()) == 57
    assert {key: one["count"] for key, one in store.manifest["images"]["skipped"].items()} == {
        "the file is empty": 2,
        "in none of the formats JPEG, PNG, WEBP, BMP, GIF": 1,
    }


def test_other_sources_are_refused(images, tmp_path):
    for name, error, message in (
        (tmp_path / "nothing", FileNotFoundError, "no such folder or file"),
        (tmp_path / "images" / "disk" / "000.png", ValueError, "a source is a folder"),
        (tmp_path / "images" / "disk", ValueError, "one folder for each class"),
    ):
        with pytest.raises(error, match=message):
            open_image_source(str(name))
    for arrays, message in (
        ({"x": np.zeros((2, 3, 3))}, "it has x, expected x and y"),
        ({"x": np.zeros((2, 3, 3)), "y": np.zeros(2, int)}, "images are uint8"),
        ({"x": np.zeros((2, 3, 3), np.uint8), "y": np.zeros(3, int)}, "for each image"),
        ({"x": np.zeros((2, 3, 3), np.uint8), "y": np.array([0, -1])}, "whole numbers from 0"),
        (
            {"x": np.zeros((2, 3, 3), np.uint8), "y": np.array([0, 10**15])},
            "label 1,000,000,000,000,000; a label is the number of a class, below 100,000",
        ),
        ({"x": np.zeros((2, 0, 3), np.uint8), "y": np.zeros(2, int)}, r"a.npz: .*\[2, 0, 3\]"),
        ({"x": np.zeros((2, 3, 3, 4), np.uint8), "y": np.zeros(2, int)}, "a.npz: .* 4 channels"),
        ({"x": np.array([{}, {}]), "y": np.zeros(2, int)}, "allow_pickle"),
    ):
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(ValueError, match=message):
            open_image_source(str(tmp_path / "a.npz"))
    (tmp_path / "a.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"a.npz: "):
        open_image_source(str(tmp_path / "a.npz"))
    write_class_folders(tmp_path / "more", count=2)
    (tmp_path / "more" / "disk").rename(tmp_path / "more" / "ring")
    with pytest.raises(ValueError, match="images of the class 'ring', which .*images has not"):
        write(tmp_path, tmp_path / "images", tmp_path / "more")
    with pytest.raises(ValueError, match="a source is given twice: .*images/"):
        write(tmp_path, validation=(f"{tmp_path}/images/",))
    with pytest.raises(ValueError, match="'disk', which --classes has not"):
        write(tmp_path, classes=("square", "stripes"))


def test_an_objective_of_texts_reads_no_images(images, tmp_path, store):
    texts, store = store, write(tmp_path)
    with pytest.raises(ValueError, match="MaskedLm reads texts: choose an objective of images"):
        store.open_rows("train", MaskedLm())
    with pytest.raises(ValueError, match="`prepare-images SOURCE --output STORE`"):
        texts.open_rows("train", ImageClassification())


def test_damaged_images_are_skipped(images, tmp_path):
    """Those whose bytes have changed, and no others; a damaged label refuses the store."""
    store = write(tmp_path, held_out=0.2)
    path = store.folder / "train" / "tokens.bin"
    content = bytearray(path.read_bytes())
    starts = np.asarray(store.open_split("train").document_starts)
    content[starts[10] + 5] ^= 255
    path.write_bytes(content)
    opened = open_source(tmp_path / "store")
    with pytest.raises(ValueError, match="tokens.bin"):
        opened.verify_or_salvage("refuse")
    remaining = opened.verify_or_salvage("skip")
    first, last = starts[10] // 4096 * 4096, (starts[10] // 4096 + 1) * 4096
    lost = [i for i in range(len(starts) - 1) if starts[i] < last and starts[i + 1] > first]
    assert remaining.skipped_documents["train"].tolist() == lost
    whole = np.asarray(store.open_split("train").labels)
    assert np.array_equal(remaining.open_split("train").labels, np.delete(whole, lost))
    batch = remaining.open_rows("train", ImageClassification(size=20)).build_plain(
        np.arange(3), np.arange(3)
    )
    assert batch["pixels"].shape == (3, 20, 20, 3)
    labels = store.folder / "train" / "labels.bin"
    labels.write_bytes(labels.read_bytes()[::-1])
    with pytest.raises(ValueError, match="labels.bin: its bytes have changed"):
        open_source(tmp_path / "store").verify_or_salvage("skip")


def test_a_store_of_images_is_not_replaced_by_accident(images, tmp_path):
    write(tmp_path)
    with pytest.raises(FileExistsError, match="add --overwrite"):
        write(tmp_path)
    manifest = json.loads((tmp_path / "store" / "manifest.json").read_text())
    assert manifest["dtype"] == "|u1" and manifest["vocabulary"]["kind"] == "images"
    Image.open(tmp_path / "images" / "disk" / "000.png").verify()  # sources are only read
