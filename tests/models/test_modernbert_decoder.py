"""ModernBERT's decoder twin: the encoder's parameters, read from left to right."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.classifier import ClassifierConfig
from models.config.modernbert import ModernBertConfig
from models.config.modernbert_decoder import ModernBertDecoderConfig
from models.generation.decoding import Greedy, continue_prompts
from pretrain.config import load
from pretrain.convert import fine_tuned
from pretrain.convert.pretrained import CONVERTERS
from tests.models.promises.test_heads import make_headed, make_vocabulary

IDS = types.SimpleNamespace(pad=0, eos=3, cls=2, sep=3)  # of a vocabulary
CONVERTER = CONVERTERS["modernbert-decoder"]
LENGTHS = (40, 65, 300)  # around the 64 keys of a local layer, and beyond


def shape_params(config, *arguments):
    ids = jnp.ones((1, 2), jnp.int32)
    init = build(config).init
    return jax.eval_shape(lambda: init(jax.random.key(0), ids, *arguments))["params"]


def test_the_parameters_are_the_encoders():
    """Path by path, hence 149,655,232 of them."""
    decoder = shape_params(ModernBertDecoderConfig())
    encoder = shape_params(ModernBertConfig(), jnp.ones((1, 2), bool))
    assert jax.tree.map(jnp.shape, decoder) == jax.tree.map(jnp.shape, encoder)
    assert sum(leaf.size for leaf in jax.tree.leaves(decoder)) == 149_655_232
    assert load("ettin_decoder_150m").model == ModernBertDecoderConfig(global_rotary_base=1e4)


@pytest.mark.parametrize(("layer", "reach"), [(0, 40), (1, 3), (2, 3), (3, 40)])
def test_local_layers_read_half_a_window_back(make, layer, reach):
    """The gradient of the state at 40 reaches `reach` tokens back and none ahead; the other layers
    pass their input on.
    """
    config = ModernBertDecoderConfig(vocab=9, width=16, depth=4, num_heads=2, mlp=8, window=8)
    model, params = make(dataclasses.replace(config, scan=False))
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
        clone = model.clone(ops=model.ops._replace(take_rows=lambda *_: table[ids] + scale_L1))
        return clone.apply({"params": silenced}, ids, method="compute_states")[0, 40].sum()

    moved = jax.jit(jax.grad(read_middle))(jnp.zeros((61, 16)))
    read = np.flatnonzero(np.abs(moved).max(-1))
    assert (read.min(), read.max()) == (40 - reach, 40)


def test_texts_of_a_packed_row_are_read_as_rows_of_their_own(make, tiny_configs):
    config = dataclasses.replace(tiny_configs["modernbert_decoder"], length=64)
    model, params = make(config)
    ids = np.random.default_rng(0).integers(5, 50, (1, 48))
    starts = [0, 17, 26, 48]
    segments = np.repeat([[1, 2, 3]], np.diff(starts), axis=1)
    rows = np.zeros((3, 48), int)
    for row, a, b in zip(rows, starts, starts[1:]):
        row[: b - a] = ids[0, a:b]
    apply = jax.jit(lambda *arrays: model.apply({"params": params}, *arrays))
    separate = [row[: b - a] for row, a, b in zip(apply(rows), starts, starts[1:])]
    np.testing.assert_allclose(apply(ids, segments)[0], np.concatenate(separate), atol=2e-5)


def test_the_cache_gives_what_reading_again_gives(make, tiny_configs):
    """Greedy continuations beyond the window of local layers, token by token."""
    config = dataclasses.replace(tiny_configs["modernbert_decoder"], length=40, window=8)
    model, params = make(config)
    rng, lengths = np.random.default_rng(1), np.array([9, 4, 1])
    prompts = rng.integers(2, 50, (3, 9)).astype(np.int32)
    found = continue_prompts(model, params, prompts, lengths, length=20, strategy=Greedy())
    apply = jax.jit(lambda ids: model.apply({"params": params}, ids).argmax(-1))
    for prompt, length, written in zip(prompts, lengths, np.asarray(found)):
        row = np.zeros((1, 40), np.int32)
        row[0, :length] = prompt[:length]
        for i in range(20):
            row[0, length + i] = apply(row)[0, length + i - 1]
        assert written.tolist() == row[0, length : length + 20].tolist()


def test_a_row_beyond_the_positions_is_refused_with_the_remedy(make, tiny_configs):
    model, params = make(tiny_configs["modernbert_decoder"])
    message = "a row of 33 tokens .* a larger model.length needs no new parameters"
    with pytest.raises(ValueError, match=message):
        model.apply({"params": params}, jnp.ones((1, 33), jnp.int32))
    with pytest.raises(ValueError, match=message):
        continue_prompts(model, params, np.ones((1, 30), np.int32), np.array([30]), length=3)


# ---- transformers --------------------------------------------------------------------


def make_theirs(described, tensors):
    """Return a model of transformers with the entries of a config.json and our tensors."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    kind = getattr(transformers, described["architectures"][0])
    theirs = kind(kind.config_class.from_dict(described, attn_implementation="eager")).eval()
    state = {name: torch.tensor(array) for name, array in tensors.items()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"decoder.weight"}
    theirs.tie_weights()
    return theirs


@pytest.mark.more
def test_logits_are_those_of_transformers(make, tiny_configs):
    """At lengths around the window and beyond, rows padded."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    config = dataclasses.replace(
        tiny_configs["modernbert_decoder"], length=300, window=128, global_every=3
    )
    model, params = make(config)
    theirs = make_theirs(CONVERTER.to_hf_config(config, IDS), CONVERTER.to_hf(config, params))
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        ids = rng.integers(5, 50, (2, length))
        valid = np.arange(length) < [[length], [length - 7]]
        ours = jax.jit(model.apply)({"params": params}, ids)
        with torch.no_grad():
            output = theirs(torch.tensor(ids), attention_mask=torch.tensor(valid).long())
        np.testing.assert_allclose(np.asarray(ours)[valid], output.logits.numpy()[valid], atol=1e-4)


@pytest.mark.more
def test_continuations_are_those_of_transformers(make, tiny_configs):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    config = dataclasses.replace(tiny_configs["modernbert_decoder"], window=8)
    model, params = make(config)
    theirs = make_theirs(CONVERTER.to_hf_config(config, IDS), CONVERTER.to_hf(config, params))
    prompt = np.random.default_rng(2).integers(5, 50, (1, 12))
    found = continue_prompts(
        model, params, prompt.astype(np.int32), np.array([12]), length=16, strategy=Greedy()
    )
    ids = torch.tensor(prompt)
    written = theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=16,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert np.asarray(found)[0].tolist() == written[0, 12:].tolist()


@pytest.mark.more
def test_a_classifier_is_that_of_transformers(tiny_configs):
    """It reads the last token, through the head that pretraining has trained."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    config, params = make_headed("modernbert_decoder", ClassifierConfig, tiny_configs)
    described = fine_tuned.to_hf_config(config, make_vocabulary(config))
    theirs = make_theirs(described, fine_tuned.to_hf(config, params))
    ids = np.random.default_rng(0).integers(5, 50, (3, 20))
    valid = np.arange(20) < np.array([20, 11, 16])[:, None]
    ids = np.where(valid, ids, described["pad_token_id"])
    ours = build(config).apply({"params": params}, ids, valid)
    with torch.no_grad():
        output = theirs(torch.tensor(ids), attention_mask=torch.tensor(valid).long())
    np.testing.assert_allclose(ours, output.logits.numpy(), atol=1e-4)


@pytest.mark.parametrize("era", ["both", "transformers 4", "transformers 5"])
def test_a_folder_of_either_spelling_is_read(era):
    sizes = dict(vocab=50, width=24, depth=7, num_heads=3, mlp=40, window=20)
    config = ModernBertDecoderConfig(**sizes, global_rotary_base=5e4)
    described = CONVERTER.to_hf_config(config, IDS)
    older = {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}
    newer = {"layer_types", "rope_parameters"}
    assert older | newer <= described.keys() and "classifier_pooling" not in described
    dropped = {"transformers 4": newer, "transformers 5": older}.get(era, set())
    read = {key: value for key, value in described.items() if key not in dropped}
    assert CONVERTER.from_hf_config(read) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(layer_types=["full_attention"] * 7), "not repeat a full_attention layer every 3"),
        (dict(local_attention=63), "window is 63; it must be even"),
        (dict(rope_parameters={"sliding_attention": {"rope_theta": 0}}), "it must be above 1"),
        (dict(attention_bias=True), "attention_bias is True"),
    ],
)
def test_a_folder_that_is_another_model_is_refused(change, message):
    sizes = dict(vocab=50, width=24, depth=7, num_heads=3, mlp=40)
    described = CONVERTER.to_hf_config(ModernBertDecoderConfig(**sizes), IDS)
    with pytest.raises(ValueError, match=message):
        CONVERTER.from_hf_config(described | change)
