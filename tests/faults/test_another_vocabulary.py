"""Row 16: a checkpoint is opened only with its own vocabulary; another one is refused by its
fingerprint.
"""

import shutil

import pytest

from data.store.reader import Store
from data.vocabulary.layouts import SENTENCEPIECE_LAYOUTS
from tests.store_files import generation_folder

# Other tokens with the same number of ids; fewer ids; the same tokens with two special ids exchanged.
OTHERS = {
    "another tokenizer": (40, "bpe", {}),
    "another size": (38, "unigram", {}),
    "other special ids": (40, "unigram", {"pad_id": 1, "unk_id": 0}),
}


@pytest.fixture(scope="module", params=OTHERS)
def other_store(request, tiny_store, tmp_path_factory):
    """Return the path of a sound token store with another vocabulary."""
    size, algorithm, ids = OTHERS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SENTENCEPIECE_LAYOUTS, "bert", SENTENCEPIECE_LAYOUTS["bert"] | ids)
        return tiny_store(tmp_path_factory.mktemp("other") / "store", "bert", size, algorithm).path


def put_into(workdir, store):
    """Replace the workdir's vocabulary by the store's."""
    shutil.rmtree(workdir / "vocabulary")
    shutil.copytree(generation_folder(store) / "vocabulary", workdir / "vocabulary")


@pytest.mark.held_by(1)
def test_another_vocabulary_is_refused_by_every_verb(
    other_store, copied, configured, refused, tmp_path, record_property
):
    path, _, store = configured("bert")
    _, workdir = copied
    assert Store.open(other_store).vocabulary.fingerprint != store.vocabulary.fingerprint
    verbs = {
        "train": ("train", path, "--workdir", workdir, f"data.store={other_store}", "train.steps=13", "--allow-changes"),
        "evaluate": ("evaluate", "--workdir", workdir),
        "export": ("export", "--workdir", workdir, "--output", tmp_path / "export"),
        "predict": ("predict", "--workdir", workdir, "the fox"),
    }  # fmt: skip
    assert "data of another encoding" in refused(*verbs["train"])
    assert "different vocabulary" in refused(*verbs["evaluate"], "--store", other_store)
    put_into(workdir, other_store)
    assert "different vocabulary" in refused(*verbs["evaluate"])
    for words in (verbs["export"], verbs["predict"], (*verbs["evaluate"], "--store", other_store)):
        assert "is not the vocabulary that checkpoint 12 was trained with (fingerprint" in refused(
            *words
        )
    assert not (tmp_path / "export").exists()
    record_property("refused", 6)
