"""A store of a run has its vocabulary, merges included."""

from types import SimpleNamespace

import pytest

from data.config import Data
from data.vocabulary.load import train_vocabulary
from data.vocabulary.released import read_byte_bpe
from models.config.gpt import GptConfig
from pretrain.settings.overrides import ConfigError
from pretrain.training.fits import fitting_store
from pretrain.workdir.workdir import Workdir

TEXTS = ["the cat sat on the mat and the rat ate the hat that sat there"] * 30


def test_a_store_with_other_merges_is_refused(monkeypatch, tmp_path):
    vocabulary = train_vocabulary(TEXTS, 275, "gpt2", "byte_bpe")
    vocabulary.save(tmp_path)
    vocab, merges = ((tmp_path / name).read_text() for name in ("vocab.json", "merges.txt"))
    fewer = read_byte_bpe(vocab, "\n".join(merges.splitlines()[:2]) + "\n")
    assert fewer.fingerprint == vocabulary.fingerprint
    run = SimpleNamespace(data=Data(), model=GptConfig())
    monkeypatch.setattr(Workdir, "run", run)
    monkeypatch.setattr(fitting_store, "describe_omissions", lambda store: "")
    monkeypatch.setattr(fitting_store, "check_labels", lambda run, store: None)
    monkeypatch.setattr(fitting_store, "load_encoding", lambda workdir: vocabulary)

    def open_store(encoding):
        opened = SimpleNamespace(encoding=encoding, path="store")
        opened.verify_or_salvage = lambda on_corrupt: opened
        monkeypatch.setattr(fitting_store, "open_source", lambda path: opened)
        return fitting_store.open_fitting_store("store", Workdir.open("workdir"))

    assert open_store(vocabulary).path == "store"
    with pytest.raises(ConfigError, match="store was prepared with a different vocabulary from"):
        open_store(fewer)
