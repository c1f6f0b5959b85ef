"""ESM C: sizes, and the logits of `transformers`; tests/models/test_esm2.py has heads and packed rows."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.vocabulary.letters.alphabets import make_alphabet
from models import build
from models.config.esmc import EsmcConfig
from pretrain.convert.pretrained import CONVERTERS
from tests.models.test_esm2 import load_theirs, make_rows

IDS = types.SimpleNamespace(pad=1, cls=0, sep=2, mask=32)  # of a vocabulary
CONVERTER = CONVERTERS["esmc"]


@pytest.mark.parametrize(
    ("width", "depth", "num_heads", "mlp", "published"),
    [
        (960, 30, 15, 2560, 332_997_184),
        (1152, 36, 18, 3072, 575_036_992),
        (2560, 80, 40, 6912, 6_352_005_184),
    ],
)
def test_published_sizes(width, depth, num_heads, mlp, published):
    config = EsmcConfig(width=width, depth=depth, num_heads=num_heads, mlp=mlp)
    ids = jnp.ones((1, 2), jnp.int32)
    shapes = jax.eval_shape(lambda: build(config).init(jax.random.key(0), ids, ids > 0))["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == published
    assert config.vocab >= make_alphabet("esmc").size


@pytest.mark.more
def test_logits_are_those_of_transformers(make, tiny_configs):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    config = dataclasses.replace(tiny_configs["esmc"], length=40, rotary_base=500.0)
    model, params = make(config)
    described, tensors = CONVERTER.to_hf_config(config, IDS), CONVERTER.to_hf(config, params)
    compute = load_theirs(transformers.EsmcForMaskedLM, described, tensors)
    ids, valid = make_rows()
    ours, _ = jax.jit(model.apply)({"params": params}, ids, valid)
    np.testing.assert_allclose(np.asarray(ours)[valid], compute(ids, valid)[valid], atol=1e-4)
    assert CONVERTER.from_hf_config(described) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(num_key_value_heads=1), "num_key_value_heads is 1"),
        (dict(attention_bias=True), "attention_bias is True"),
        (dict(rope_parameters={"rope_type": "yarn"}), "rope_type 'yarn'"),
    ],
)
def test_a_folder_that_is_another_model_is_refused(tiny_configs, change, message):
    described = CONVERTER.to_hf_config(tiny_configs["esmc"], IDS)
    with pytest.raises(ValueError, match=message):
        CONVERTER.from_hf_config(described | change)
