"""`pod create` looks at the store in its bucket before a slice is paid for."""

import json
import shutil

import pytest
from etils.epath import backend

from data.corpus import buckets
from pretrain.cli.verb_check import check_verb
from tests.local_bucket import Bucket


@pytest.fixture
def bucket(tmp_path, monkeypatch, stores):
    """Return the folder of gs://bucket, which has the store `books`."""
    monkeypatch.setattr(buckets, "_checked", set())
    monkeypatch.setattr(backend, "tf_backend", Bucket(tmp_path / "bucket"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(stores["bert"].path, tmp_path / "bucket" / "books")
    return tmp_path / "bucket"


def check(*overrides, config="bert_tiny", store="gs://bucket/books", workdir="gs://bucket/run"):
    words = ["train", config, "--workdir", workdir, f"data.store={store}", *overrides]
    check_verb(words, looks_at_store=True)


def test_a_run_that_fits_its_store_passes(bucket, stores, capsys):
    size = stores["bert"].vocabulary.size
    check()
    assert f"model.vocab={size} follows gs://bucket/books" in capsys.readouterr().err
    check(f"model.vocab={size}")
    assert capsys.readouterr().err == ""
    cached = (bucket.parent / "cache").rglob("*")
    assert not any(path.suffix == ".bin" for path in cached)  # only what the check reads


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.vocab=20"], "model.vocab=20 is smaller than the token store's vocabulary of"),
        (["model.length=8"], "are longer than the model's 8 positions"),
    ],
)
def test_a_run_that_does_not_fit_its_store_is_refused(overrides, message, bucket):
    with pytest.raises(ValueError, match=message):
        check(*overrides)


def test_a_store_or_bucket_that_is_not_there_is_refused(bucket, capsys):
    with pytest.raises(FileNotFoundError, match="gs://bucket/films is not a token store") as error:
        check(store="gs://bucket/films")
    assert "gcloud storage cp -r STORE gs://bucket/films" in str(error.value)
    for paths in ({"store": "gs://bucket0/books"}, {"workdir": "gs://bucket0/run"}):
        with pytest.raises(buckets.BucketError, match="there is no bucket gs://bucket0"):
            check(**paths)


def test_a_store_whose_copy_was_cut_short_is_refused(bucket):
    manifest = json.loads((bucket / "books" / "manifest.json").read_text())
    (bucket / "books" / manifest["generation"] / "train" / "tokens.bin").unlink()
    with pytest.raises(ValueError, match=r"gs://bucket/books/\S+/train/tokens\.bin is missing"):
        check()


def test_images_need_a_model_of_images(bucket):
    with pytest.raises(
        ValueError, match="image_classification reads images, and this is a token store"
    ):
        check(config="vit_tiny")


def test_a_bucket_that_cannot_be_reached_from_here_is_one_line(bucket, capsys, monkeypatch):
    class Refusing(Bucket):
        def __init__(self):
            self.exists = self.refuse

        def refuse(self, path):
            raise OSError("libcurl code 6, could not resolve hostname")

    monkeypatch.setattr(backend, "tf_backend", Refusing())
    check()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("# not checked here: gs://bucket/")
    assert "could not resolve hostname" in line


def test_a_folder_of_the_workers_is_checked_where_this_machine_has_it(bucket, capsys):
    check(store="/no/such/folder/here")
    assert "# not checked here: data.store=/no/such/folder/here" in capsys.readouterr().err
    with pytest.raises(ValueError, match="model.vocab=20 is smaller"):
        check("model.vocab=20", store=str(bucket / "books"))


def test_without_the_look_no_bucket_is_asked(bucket, capsys):
    check_verb(["train", "bert_tiny", "--workdir", "gs://a-b/c", "data.store=gs://a-b/d"])
    assert capsys.readouterr().err == ""
