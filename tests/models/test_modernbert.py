"""ModernBERT as in its paper, its code and `transformers`: sizes, positions, windows, logits, heads."""

import dataclasses
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.choice import ChoiceConfig
from models.config.classifier import ClassifierConfig
from models.config.modernbert import ModernBertConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from models.layers.rotary import find_positions, make_rotation, rotate
from pretrain.convert import fine_tuned
from pretrain.convert.pretrained import CONVERTERS
from tests.models.promises.test_heads import make_headed, make_vocabulary

IDS = types.SimpleNamespace(pad=0, cls=2, sep=3)  # of a vocabulary
LENGTHS = (40, 129, 130, 600)


def count_params(config):
    ids = jnp.ones((1, 2), jnp.int32)
    params = jax.eval_shape(lambda: build(config).init(jax.random.key(0), ids, ids > 0))
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def test_initial_scales_are_megatrons():
    """0.02, and 0.02 / sqrt(2 depth) for what is added to the stream, cut at two sigmas."""
    config = ModernBertConfig(vocab=900, width=96, depth=4, num_heads=2, mlp=200)
    ids = jnp.ones((1, 2), jnp.int32)
    params = jax.jit(build(config).init)(jax.random.key(0), ids, ids > 0)["params"]
    layer = params["encoder"]["layers"]["global"]
    cut = 0.8796  # the standard deviation of a normal cut at two sigmas, where 1 is its own
    for kernel, scale in (
        (params["token_embedding"]["embedding"], 0.02),
        (layer["attention"]["query"]["kernel"], 0.02),
        (layer["mlp"]["gate"]["kernel"], 0.02),
        (layer["attention"]["out"]["kernel"], 0.02 / math.sqrt(8)),
        (layer["mlp"]["down"]["kernel"], 0.02 / math.sqrt(8)),
    ):
        assert np.std(kernel) == pytest.approx(scale * cut, rel=0.03)
        assert np.abs(kernel).max() <= 2 * scale * 1.0001


# ---- positions and windows ---------------------------------------------------------


def test_a_rotation_multiplies_complex_numbers():
    """Dimensions i and i + K/2 are a complex number, turned by position / base^(2i/K)."""
    x = np.random.default_rng(0).standard_normal((2, 9, 3, 8), np.float32)
    positions = np.array([[0, 1, 2, 3, 0, 1, 0, 1, 2], np.arange(100, 109)])
    rotation = make_rotation(jnp.asarray(positions), 8, 50.0)
    turns = np.exp(1j * positions[..., None] * 50.0 ** (-np.arange(0, 8, 2) / 8))[:, :, None]
    expected = (x[..., :4] + 1j * x[..., 4:]) * turns
    found = np.asarray(rotate(jnp.asarray(x), rotation))
    np.testing.assert_allclose(found, np.concatenate([expected.real, expected.imag], -1), atol=2e-5)


def test_positions_start_again_with_each_text():
    segments = jnp.asarray([[1, 1, 1, 2, 2, 3, 0, 0]])
    assert find_positions(8, segments).tolist() == [[0, 1, 2, 0, 1, 0, 0, 1]]
    assert find_positions(3).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(("layer", "reach"), [(0, 30), (1, 2), (2, 2), (3, 30)])
def test_every_third_layer_is_global(make, layer, reach):
    """The gradient of a state in the middle reaches `reach` tokens on each side; the other layers
    pass their input on.
    """
    config = ModernBertConfig(vocab=9, width=16, depth=4, num_heads=2, mlp=8, window=4)
    config = dataclasses.replace(config, scan=False)
    model, params = make(config)
    names = ["first/global", "layer_0/local_0", "layer_0/local_1", "layer_0/global"]

    def silence(path, leaf):
        place = "/".join(key.key for key in path)
        is_out = place.endswith(("attention/out/kernel", "mlp/down/kernel"))
        is_silent = is_out and f"encoder/{names[layer]}/" not in place
        return jnp.zeros_like(leaf) if is_silent else leaf

    silenced = jax.tree_util.tree_map_with_path(silence, params)
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 9, (1, 61)))

    def read_middle(scale_L1):
        table = silenced["token_embedding"]["embedding"]
        clone = build(config, ops=model.ops._replace(take_rows=lambda *_: table[ids] + scale_L1))
        return clone.apply({"params": silenced}, ids, ids >= 0, method="encode")[0][0, 30].sum()

    moved = jax.jit(jax.grad(read_middle))(jnp.zeros((61, 16)))
    read = np.flatnonzero(np.abs(moved).max(-1))
    assert (read.min(), read.max()) == (30 - reach, 30 + reach)


def test_texts_of_a_packed_row_are_read_as_rows_of_their_own(make, tiny_configs):
    model, params = make(dataclasses.replace(tiny_configs["modernbert"], length=64))
    rng = np.random.default_rng(0)
    lengths = [17, 9, 22]
    ids = rng.integers(5, 50, (1, 50))
    segments = np.zeros((1, 50), np.int32)
    alone, start = [], 0
    for number, length in enumerate(lengths, 1):
        segments[:, start : start + length] = number
        row = np.zeros((1, 50), int)
        row[:, :length] = ids[:, start : start + length]
        alone.append((row, length))
        start += length
    apply = jax.jit(lambda *arrays: model.apply({"params": params}, *arrays)[0])
    packed = apply(ids, segments > 0, None, None, segments)
    separate = [apply(row, np.arange(50)[None] < length)[:, :length] for row, length in alone]
    np.testing.assert_allclose(packed[:, :start], np.concatenate(separate, axis=1), atol=2e-5)


def test_a_row_beyond_the_positions_is_refused_with_the_remedy(make, tiny_configs):
    model, params = make(tiny_configs["modernbert"])
    ids = jnp.ones((1, 33), jnp.int32)
    with pytest.raises(ValueError, match="a larger model.length needs no new parameters"):
        model.apply({"params": params}, ids, ids > 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(window=0), "window is 0; it must be at least 1"),
        (dict(window=127), "window is 127; it must be even"),
        (dict(global_every=0), "global_every is 0; it must be at least 1"),
        (dict(global_rotary_base=0.0), "global_rotary_base is 0.0; it must be above 1"),
        (dict(local_rotary_base=-1.0), "local_rotary_base is -1.0; it must be above 1"),
    ],
)
def test_impossible_sizes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ModernBertConfig(**change)


def test_odd_heads_are_refused():
    config = ModernBertConfig(vocab=9, width=15, depth=1, num_heads=3, mlp=8)
    with pytest.raises(ValueError, match=r"heads of width 5: .* must be even"):
        count_params(config)


# ---- transformers --------------------------------------------------------------------


def write_theirs(config, **settings):
    """Return a model of transformers for a configuration of ours, and its config.json."""
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    pytest.importorskip("torch", reason="the extra `peers` is not installed")
    described = CONVERTERS["modernbert"].to_hf_config(config, IDS) | settings
    theirs = transformers.ModernBertConfig.from_dict(described, attn_implementation="eager")
    return transformers.ModernBertForMaskedLM(theirs).eval(), described


def load_tensors(theirs, tensors):
    import torch

    state = {name: torch.tensor(array) for name, array in tensors.items()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"decoder.weight"}
    theirs.tie_weights()


@pytest.mark.more
@pytest.mark.parametrize("depth", [7, 6])
def test_logits_are_those_of_transformers(make, tiny_configs, depth):
    """At lengths around the window and beyond, rows padded."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    config = dataclasses.replace(
        tiny_configs["modernbert"], length=600, window=128, depth=depth, global_every=3, dropout=0.0
    )
    model, params = make(config)
    theirs, _ = write_theirs(config)
    load_tensors(theirs, CONVERTERS["modernbert"].to_hf(config, params))
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        ids = rng.integers(5, 50, (2, length))
        valid = np.arange(length) < [[length], [length - 7]]
        ours, _ = jax.jit(model.apply)({"params": params}, ids, valid)
        with torch.no_grad():
            expected = theirs(
                torch.tensor(ids), attention_mask=torch.tensor(valid).long()
            ).logits.numpy()
        np.testing.assert_allclose(np.asarray(ours)[valid], expected[valid], atol=1e-4)


@pytest.mark.more
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("head", [ClassifierConfig, TaggerConfig, SpanReaderConfig, ChoiceConfig])
def test_heads_are_those_of_transformers(tiny_configs, head, pooling):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    tiny = dataclasses.replace(tiny_configs["modernbert"], pooling=pooling)
    config, params = make_headed("modernbert", head, {"modernbert": tiny})
    described = fine_tuned.to_hf_config(config, make_vocabulary(config))
    kind = getattr(transformers, described["architectures"][0])
    theirs = kind(kind.config_class.from_dict(described, attn_implementation="eager")).eval()
    load_tensors(theirs, fine_tuned.to_hf(config, params))
    ids = np.random.default_rng(0).integers(5, 50, (2, 3, 20))
    valid = np.broadcast_to(np.arange(20) < np.array([20, 11, 16])[:, None], ids.shape)
    if head is not ChoiceConfig:
        ids, valid = ids[0], valid[0]
    ours = build(config).apply({"params": params}, ids, valid)
    with torch.no_grad():
        output = theirs(torch.tensor(ids), attention_mask=torch.tensor(valid).long())
    if head is SpanReaderConfig:
        expected = np.stack([output.start_logits, output.end_logits], axis=-1)
    else:
        expected = output.logits.numpy()
    seen = valid[..., None] if head in (TaggerConfig, SpanReaderConfig) else True
    np.testing.assert_allclose(np.where(seen, ours, 0), np.where(seen, expected, 0), atol=1e-4)


SIZES = dict(vocab=50, width=24, depth=7, num_heads=3, mlp=40, window=20, global_rotary_base=5e4)


@pytest.mark.parametrize("era", ["both", "transformers 4", "transformers 5"])
def test_a_folder_of_either_spelling_is_read(era):
    config = ModernBertConfig(**SIZES)
    described = CONVERTERS["modernbert"].to_hf_config(config, IDS)
    older = {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}
    newer = {"layer_types", "rope_parameters"}
    assert older | newer <= described.keys()
    dropped = {"transformers 4": newer, "transformers 5": older}.get(era, set())
    read = {key: value for key, value in described.items() if key not in dropped}
    assert CONVERTERS["modernbert"].from_hf_config(read) == config


@pytest.mark.more
def test_transformers_reads_both_spellings_alike():
    config = ModernBertConfig(**SIZES)
    theirs, described = write_theirs(config)
    assert theirs.config.rope_parameters["full_attention"]["rope_theta"] == 5e4
    assert theirs.config.layer_types == described["layer_types"]
    older = {key: value for key, value in described.items() if key != "rope_parameters"}
    again = type(theirs.config).from_dict({**older, "layer_types": None})
    assert again.rope_parameters == theirs.config.rope_parameters
    assert again.layer_types == theirs.config.layer_types


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            dict(layer_types=["full_attention"] * 7),
            "does not repeat a full_attention layer every 3",
        ),
        (dict(layer_types=["full_attention"] * 6), "one entry for each of num_hidden_layers"),
        (dict(rope_parameters={"full_attention": {"rope_type": "yarn"}}), "rope_type 'yarn'"),
        (dict(rope_parameters={"linear": {}}), "rope_parameters has 'linear'"),
        (dict(rope_parameters=[1]), "rope_parameters is .1.; expected an object"),
        (dict(rope_parameters={"full_attention": 1}), "full_attention is 1; expected an object"),
        (dict(rope_scaling={"type": "linear"}), "rope_scaling has rope_type 'linear'"),
        (dict(rope_parameters={"full_attention": {"rope_theta": 0}}), "it must be above 1"),
        (dict(local_attention=127), "window is 127; it must be even"),
        (dict(mlp_bias=True), "mlp_bias is True"),
        (dict(classifier_pooling="max"), "classifier_pooling"),
    ],
)
def test_a_folder_that_is_another_model_is_refused(change, message):
    described = CONVERTERS["modernbert"].to_hf_config(ModernBertConfig(**SIZES), IDS)
    with pytest.raises(ValueError, match=message):
        CONVERTERS["modernbert"].from_hf_config(described | change)
