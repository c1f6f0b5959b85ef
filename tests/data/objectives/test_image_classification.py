"""Rows of images: what an evaluation reads, and what training changes, as functions of the row."""

import dataclasses
import hashlib

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.images.image_store import ImageRequest, write_image_store
from data.objectives.image_classification import ImageClassification
from data.pipeline import Stream
from tests.image_files import write_class_folders

STRONG = ImageClassification(
    size=16, num_ops=2, erase_rate=0.5, mixup=0.8, cutmix=1.0, crop_ratio=0.8
)


@pytest.fixture(scope="module")
def images_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    return root, write_class_folders(root / "images", count=12)


@pytest.fixture(scope="module")
def store(images_root):
    root, _ = images_root
    request = ImageRequest((str(root / "images"),), held_out=0.3)
    return write_image_store(request, root / "store")


def make_stream(store, objective, split="train", batch_size=6, seed=5):
    return Stream(store, Data(objective=objective, batch_size=batch_size), split=split, seed=seed)


@pytest.mark.parametrize("objective", [ImageClassification(size=16), STRONG])
def test_batches_are_the_same_on_any_hosts_and_from_any_step(store, objective):
    stream = make_stream(store, objective)
    whole = stream.build_batch(7)
    batch_spec.check_batch(whole, objective, 6)
    for lo, hi in ((0, 1), (1, 6)):
        part = next(make_stream(store, objective).iterate_batches(7, lo, hi))
        assert all((part[key] == whole[key][lo:hi]).all() for key in whole)
    other = make_stream(store, objective, seed=6).build_batch(7)
    assert (other["pixels"] != whole["pixels"]).any()


def test_an_evaluation_changes_nothing_at_random(store, images_root):
    """Whole images, once each, in both splits; a split of training is read so too."""
    _, images = images_root
    plain = ImageClassification(size=20, crop_ratio=1.0)
    count = 0
    for split in ("heldout", "train"):
        stream = make_stream(store, plain, split)
        for batch in stream.iterate_evaluation_batches():
            for pixels, label, weight in zip(
                batch["pixels"], batch["labels"], batch["row_weights"]
            ):
                own = images[store.encoding.classes[label]]
                assert any((pixels == other).all() for other in own)
                count += int(weight)
    assert count == 36
    strong, mild = (
        list(make_stream(store, one).iterate_evaluation_batches())
        for one in (STRONG, ImageClassification(size=16, crop_ratio=0.8))
    )
    for one, two in zip(strong, mild, strict=True):
        assert (one["pixels"] == two["pixels"]).all()
        assert (one["label_shares"] == 1).all()


def test_each_epoch_changes_an_image_otherwise(store):
    stream = make_stream(store, ImageClassification(size=16), batch_size=1)
    seen = {}
    for step in range(2 * stream.num_rows):
        _, _, row = stream.load_rows(np.array([step]))
        seen.setdefault(int(row[0]), []).append(stream.build_batch(step)["pixels"])
    assert all(len(pair) == 2 for pair in seen.values())
    assert sum((one != two).any() for one, two in seen.values()) > 0.9 * len(seen)


def test_an_image_is_repeated_with_other_changes(store):
    """Repeated augmentation: three rows of a batch are one image (Touvron et al. 2021)."""
    objective = ImageClassification(size=16, repeats=3)
    batch = make_stream(store, objective).build_batch(1)
    once = make_stream(store, dataclasses.replace(objective, repeats=1), batch_size=2).build_batch(
        1
    )
    assert batch["labels"].tolist() == np.repeat(once["labels"], 3).tolist()
    assert len({pixels.tobytes() for pixels in batch["pixels"]}) >= 5


def test_mixed_rows_name_both_classes(store):
    batches = [make_stream(store, STRONG, batch_size=24).build_batch(step) for step in range(3)]
    shares = np.concatenate([batch["label_shares"] for batch in batches])
    assert 0.3 < shares.mean() < 0.7 and shares.min() < 0.1 and shares.max() > 0.9
    assert any((batch["labels"] != batch["mixed_labels"]).any() for batch in batches)
    assert all(len({*batch["mixed_labels"].tolist()}) == 3 for batch in batches)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, "size=0; from 1 to 4096"),
        ({"channels": 2}, "channels=2; 1 or 3"),
        ({"crop_ratio": 0.0}, "crop_ratio=0.0; a share above 0"),
        ({"min_area": 1.5}, "min_area=1.5"),
        ({"magnitude": 11.0}, "magnitude=11.0; from 0 to 10"),
        ({"op_rate": 1.5}, "op_rate=1.5; from 0 to 1"),
        ({"mixup": 3.0}, "mixup=3.0; from 0 to 2"),
        ({"erase_rate": -0.1}, "erase_rate=-0.1"),
        ({"repeats": 0}, "repeats=0"),
    ],
)
def test_settings_out_of_their_ranges_are_refused(store, change, message):
    with pytest.raises(ValueError, match=message):
        make_stream(store, ImageClassification(**change))


def test_batches_are_those_of_earlier_versions(tmp_path):
    """A newer version resumes a run with the same rows. Nothing here is resized by Pillow.

    A change ends every run under way: report it in docs/notebook and write the new digest here.
    """
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40, 16, 16, 3), np.uint8), np.arange(40) % 4
    np.savez(tmp_path / "a.npz", x=x, y=y)
    options = dict(min_area=1.0, crop_ratio=1.0, erase_rate=0.5, mixup=0.8, cutmix=1.0, repeats=2)
    store = write_image_store(ImageRequest((str(tmp_path / "a.npz"),)), tmp_path / "store")
    stream = make_stream(store, ImageClassification(size=16, **options))
    digest = hashlib.sha256()
    for step in range(8):
        for key, array in stream.build_batch(step).items():
            digest.update(key.encode() + array.tobytes())
    assert digest.hexdigest()[:16] == "acfb09fe1c589e15"
