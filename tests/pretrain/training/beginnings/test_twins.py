"""`train --from`: Ettin's cross-training, and what is refused of it."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives.causal_lm import CausalLm
from data.objectives.masked_lm import MaskedLm
from data.vocabulary.load import train_vocabulary
from models.config.bert import BertConfig
from models.config.modernbert import ModernBertConfig
from models.config.modernbert_decoder import ModernBertDecoderConfig
from pretrain.api import export, train
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from pretrain.settings.overrides import ConfigError
from pretrain.training.beginnings.beginning import find_twins, start_from
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import open_trained
from tests.pretrain.conftest import make_texts
from tests.pretrain.convert.test_name_maps import random_params
from tests.small_store import write_store

SIZES = dict(length=16, width=16, depth=3, num_heads=2, mlp=24, global_every=2, window=8)
OBJECTIVES = {
    ModernBertConfig: MaskedLm(length=16, max_predictions=4, mask_rate=0.2),
    ModernBertDecoderConfig: CausalLm(length=16),
    BertConfig: MaskedLm(length=16, max_predictions=4, mask_rate=0.2),
}
KINDS = {"encoder": ModernBertConfig, "decoder": ModernBertDecoderConfig}


def write_small_store(folder, size):
    vocabulary = train_vocabulary(make_texts(200), size, layout="roberta", algorithm="byte_bpe")
    documents = vocabulary.encode_batch(make_texts(200))
    return write_store(folder, vocabulary, [[ids] for ids in documents])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write_small_store(tmp_path_factory.mktemp("store") / "store", 270)


def make_run(store, kind, **sizes):
    model = kind(**{"vocab": store.vocabulary.size, **SIZES, **sizes})
    return Run(
        model=model,
        data=Data(objective=OBJECTIVES[kind], store=str(store.path), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=1),
        train=Train(steps=1, compute_dtype="float32"),
        evaluate=Evaluate(every=0),
        checkpoint=Checkpoint(every=1),
    )


@pytest.fixture(scope="module")
def places(store, tmp_path_factory):
    """Return {name: a run}, and {name folder: its export}."""
    root, places = tmp_path_factory.mktemp("places"), {}
    for name, kind in KINDS.items():
        places[name], places[f"{name} folder"] = str(root / name), str(root / f"{name}_hf")
        run = make_run(store, kind)
        start_workdir(places[name], run, random_params(run.model), store.vocabulary)
        export(places[name], places[f"{name} folder"])
    return places


@pytest.mark.parametrize("place", ["encoder", "decoder", "encoder folder", "decoder folder"])
@pytest.mark.parametrize("name", KINDS)
def test_each_begins_with_the_others_parameters(name, place, store, places, tmp_path, capsys):
    """Head included, from a run and from its export; `scan` may differ."""
    run = make_run(store, KINDS[name], vocab=512, scan=False, local_rotary_base=2e4)
    begun = start_from(run, str(tmp_path / "new"), places[place])
    assert begun.model == dataclasses.replace(run.model, vocab=store.vocabulary.size)
    found, given = open_trained(tmp_path / "new"), open_trained(places[place.split()[0]])
    assert found.step == 0 and found.run == begun
    layers = found.params["encoder"].pop("layer_0"), given.params["encoder"].pop("layers")
    jax.tree.map(np.testing.assert_array_equal, found.params, given.params)
    jax.tree.map(lambda one, two: np.testing.assert_array_equal(one, two[0]), *layers)
    printed = capsys.readouterr()
    assert "changed from" in printed.out and "10000.0 -> 20000.0" in printed.out
    assert "initialized at random: none" in printed.out
    assert "model.vocab=270 follows" in printed.err


def test_a_decoder_goes_on_as_an_encoder_and_back(store, places, tmp_path, capsys):
    """And the same command resumes a run that has begun so."""
    encoder, decoder = str(tmp_path / "encoder"), str(tmp_path / "decoder")
    run = make_run(store, ModernBertConfig)
    train(run, encoder, pretrained=places["decoder"])
    assert start_from(run, encoder, places["decoder"]) == run
    printed = capsys.readouterr()
    assert printed.out.count("parameters come from") == 1 and "note:" not in printed.err
    start_from(run, encoder, places["encoder"])
    assert "it began with decoder at step 0, not with encoder" in capsys.readouterr().err
    start_from(make_run(store, ModernBertDecoderConfig), decoder, encoder)
    before, after = open_trained(encoder).params, open_trained(decoder).params
    jax.tree.map(np.testing.assert_array_equal, after, before)
    assert json.loads((tmp_path / "decoder/origin.json").read_text())["pretrained_step"] == 1


@pytest.mark.parametrize(
    ("kind", "sizes", "message"),
    [
        (BertConfig, {}, "a BertConfig begins with the parameters of a BertConfig"),
        (ModernBertConfig, dict(mlp=20), "model.mlp: 24 -> 20. Give both models the same sizes$"),
        (ModernBertConfig, dict(global_every=1), "model.global_every: 2 -> 1"),
        (ModernBertConfig, dict(depth=2), "model.depth: 3 -> 2"),
        (ModernBertConfig, dict(mlp=48), "the same sizes, or add --tile"),
    ],
)
def test_other_parameters_are_refused(kind, sizes, message, store, places, tmp_path):
    names = {field.name for field in dataclasses.fields(kind)}
    run = make_run(store, ModernBertConfig)
    model = kind(
        **{key: size for key, size in {"vocab": 270, **SIZES, **sizes}.items() if key in names}
    )
    run = dataclasses.replace(run, model=model)
    with pytest.raises(ConfigError, match=message):
        start_from(run, str(tmp_path / "new"), places["decoder"])
    assert not (tmp_path / "new").exists()


def test_another_vocabulary_is_refused(places, tmp_path):
    other = write_small_store(tmp_path / "other", 280)
    run = make_run(other, ModernBertConfig, vocab=280)
    with pytest.raises(ConfigError, match=r"has another vocabulary .* prepare it with `--vocab"):
        start_from(run, str(tmp_path / "new"), places["decoder"], keeps_vocab=True)
    assert not (tmp_path / "new").exists()


def test_twins_are_named_once():
    from pretrain.families import FAMILIES

    assert find_twins(FAMILIES["modernbert"]) == ["modernbert", "modernbert_decoder"]
    assert find_twins(FAMILIES["modernbert_decoder"]) == ["modernbert_decoder", "modernbert"]
    assert find_twins(FAMILIES["bert"]) == ["bert"]
