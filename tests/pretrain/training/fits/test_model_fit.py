"""A source fits a model before its rows are read."""

import dataclasses

import pytest

from data.images.image_store import ImageRequest, write_image_store
from pretrain.config import load
from pretrain.settings.overrides import ConfigError
from pretrain.training.fits.model_fit import check_fit
from tests.image_files import CLASSES, write_class_folders


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Return a store of images, one of whose offsets is damaged."""
    folder = tmp_path_factory.mktemp("images")
    write_class_folders(folder / "images", count=210, size=4)
    store = write_image_store(ImageRequest((str(folder / "images"),)), folder / "store")
    path = store.folder / "train" / "documents.bin"
    content = bytearray(path.read_bytes())
    content[550 * 8 + 3] ^= 0xFF
    path.write_bytes(content)
    return store


def test_a_damaged_store_of_images_is_judged_before_it_is_salvaged(damaged):
    run = load("vit_tiny", [f"data.store={damaged.path}", f"model.classes={len(CLASSES)}"])
    check_fit(run, damaged)
    with pytest.raises(ValueError, match=r"have changed .*data.on_corrupt=skip"):
        damaged.verify_or_salvage("refuse")
    salvaged = damaged.verify_or_salvage("skip")
    assert 0 < len(salvaged.skipped_documents["train"]) < 600
    assert salvaged.open_rows("train", run.data.objective).table.count > 100
    few = dataclasses.replace(run.model, classes=2)
    with pytest.raises(ConfigError, match="3 classes, and the head scores 2"):
        check_fit(dataclasses.replace(run, model=few), damaged)
