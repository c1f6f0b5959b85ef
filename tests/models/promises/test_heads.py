"""The names of every head on every family that takes one, both ways and next to `transformers`."""

import dataclasses
import types

import jax
import numpy as np
import pytest

from data.config import Data
from models.config.embedder import EmbedderConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.config import Run
from pretrain.convert import fine_tuned
from pretrain.convert.head_maps import HEAD_CONVERSIONS, list_unread_modules
from pretrain.convert.name_map import ImportReport
from pretrain.families import FAMILIES
from pretrain.finetune.encoders import make_head_objective
from tests.pretrain.finetune.encoders import draw_params

IDS = {"pad": 0, "bos": 2, "eos": 1, "cls": 2, "sep": 3, "mask": 4, "unk": 5}
# Sizes that transformers has too.
FITTING = {"gpt": {"mlp": 96}, "gpt3": {"depth": 4, "window": 32}}
# A head that scores single tokens is refused by a model that reads from left to right.
PAIRS = [
    (name, head)
    for name, family in FAMILIES.items()
    if family.hugging_face and family.hugging_face.head_map
    for head in HEAD_CONVERSIONS
    if not (family.config.is_causal and head in (TaggerConfig, SpanReaderConfig))
]
EXPORTED = [
    (name, head)
    for name, head in PAIRS
    if FAMILIES[name].hugging_face.head_map.has_class(HEAD_CONVERSIONS[head].suffix)
]


def name_pair(value):
    return value if isinstance(value, str) else value.__name__


def make_vocabulary(config):
    """Return the ids of special tokens, with those that the model has."""
    own = {
        role: getattr(config.encoder, field) - offset
        for field, (role, offset) in config.vocabulary_ids.items()
    }
    return types.SimpleNamespace(**IDS | own)


def make_headed(name, head, tiny_configs):
    """Return (configuration, random parameters) of a tiny model with a head."""
    encoder = dataclasses.replace(tiny_configs[name], **FITTING.get(name, {}))
    config = head(encoder=encoder.as_encoder())
    return config, draw_params(Run(model=config, data=Data(objective=make_head_objective(config))))


@pytest.mark.held_by("bert", "gpt2", "xlnet")
@pytest.mark.parametrize(("name", "head"), EXPORTED, ids=name_pair)
def test_a_head_goes_there_and_comes_back(name, head, tiny_configs):
    """All parameters have a tensor and all tensors a parameter; no head has a name by chance."""
    config, params = make_headed(name, head, tiny_configs)
    tensors = fine_tuned.to_hf(config, params)
    blank = jax.tree.map(np.zeros_like, params)
    again, report = fine_tuned.from_hf(config, tensors, blank)
    unread = list_unread_modules(config)
    assert all(missing.startswith(unread) for missing in report.missing)
    assert report == ImportReport(report.missing, ())
    is_blank = [not leaf.any() for leaf in jax.tree.leaves(again)]
    assert sum(is_blank) == len(report.missing)
    for found, expected in zip(jax.tree.leaves(again), jax.tree.leaves(params), strict=True):
        if found.any():
            np.testing.assert_array_equal(found, expected)


@pytest.mark.more
@pytest.mark.parametrize(("name", "head"), EXPORTED, ids=name_pair)
def test_transformers_has_the_same_tensors(name, head, tiny_configs):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    config, params = make_headed(name, head, tiny_configs)
    tensors = fine_tuned.to_hf(config, params)
    described = fine_tuned.to_hf_config(config, make_vocabulary(config))
    (architecture,) = described["architectures"]
    if not hasattr(transformers, architecture):
        pytest.skip(f"transformers {transformers.__version__} has no {architecture}")
    kind = getattr(transformers, architecture)
    settings = kind.config_class.from_dict(described)
    with torch.device("meta"):
        theirs = kind(settings)
    copies = theirs.all_tied_weights_keys
    expected = {key: tuple(value.shape) for key, value in theirs.named_parameters()}
    found = {key: value.shape for key, value in tensors.items()}
    if head is EmbedderConfig:  # a base model: without the prefix of its heads, and the pooler
        prefix = f"{kind.base_model_prefix}."
        found = {key.removeprefix(prefix): shape for key, shape in found.items()}
        expected = {key: shape for key, shape in expected.items() if not key.startswith("pooler")}
    assert {key: found.get(key) for key in expected.keys() - copies.keys()} == {
        key: shape for key, shape in expected.items() if key not in copies
    }
    assert found.keys() <= theirs.state_dict().keys()
