"""Rows that are longer than the rows of the training are computed, with a note."""

import dataclasses

import pytest

from models.config.bert import BertConfig
from models.config.modernbert import ModernBertConfig
from models.config.modernbert_decoder import ModernBertDecoderConfig
from pretrain.inference.fill_mask import MaskFiller
from pretrain.inference.length_notice import LengthNotice, find_row_length
from pretrain.inference.text_generation import ContinuationWriter
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import open_trained
from tests.pretrain.convert.test_name_maps import random_params
from tests.pretrain.training.beginnings.test_twins import make_run, write_small_store

NOTE = "tokens is longer than the 16 tokens of the training rows, so its far positions are"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write_small_store(tmp_path_factory.mktemp("store") / "store", 270)


@pytest.fixture
def open_run(store, tmp_path):
    """Return open_run(kind, origin): a model of 64 positions, trained on rows of 16."""

    def open_new(kind, origin=None):
        run = make_run(store, kind, length=64)
        start_workdir(tmp_path / "run", run, random_params(run.model), store.vocabulary, origin)
        return open_trained(tmp_path / "run")

    return open_new


def test_masks_beyond_the_training_rows_are_filled_with_a_note(open_run, capsys):
    fill = MaskFiller(open_run(ModernBertConfig), 1, 1)
    fill(["the <mask>"], [None])
    assert not capsys.readouterr().err
    for _ in range(2):  # it is said once
        fill(["the <mask>" + " of" * 14], [None])
    assert capsys.readouterr().err.count(NOTE) == 1


def test_a_continuation_beyond_the_training_rows_has_a_note(open_run, capsys):
    write = ContinuationWriter(open_run(ModernBertDecoderConfig), 16, 1)
    write(["the"], [None])
    assert NOTE in capsys.readouterr().err


def test_without_a_known_length_there_is_no_note(open_run, capsys):
    """Of an import, whose `model.length` is what it was trained with; of a table of positions."""
    imported = open_run(ModernBertConfig, {"folder": "released"})
    LengthNotice(imported).report(64)
    assert not capsys.readouterr().err
    assert find_row_length(imported.run) == 16
    assert find_row_length(dataclasses.replace(imported.run, model=BertConfig())) is None
