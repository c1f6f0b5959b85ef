"""T5Gemma as in `transformers`: sizes, logits, folders; and its windows and initial values."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.t5gemma import T5GemmaConfig
from pretrain.convert.pretrained import CONVERTERS

IDS = types.SimpleNamespace(pad=0, eos=1, bos=2)  # of a vocabulary
# Odd and even depths, and grouped keys.
SIZES = dict(vocab=50, width=24, depth=3, decoder_depth=2, num_heads=4, head_width=10, mlp=40)
CONFIG = T5GemmaConfig(**SIZES, num_key_heads=2, window=6, length=140)
# They bend the scores and logits of a tiny model, too.
CAPS = {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.5}


def test_initial_values():
    """A normal of 0.02; the norms begin as 1 + 0."""
    config = dataclasses.replace(CONFIG, vocab=900, width=96, depth=1, decoder_depth=1)
    ids = jnp.ones((1, 2), jnp.int32)
    params = jax.jit(build(config).init)(jax.random.key(0), ids, ids > 0, ids)["params"]
    layer = params["decoder"]["last"]["local"]
    for kernel in (
        params["token_embedding"]["embedding"],
        params["target_embedding"]["embedding"],
        layer["cross"]["query"]["kernel"],
        layer["mlp"]["down"]["kernel"],
    ):
        assert np.std(kernel) == pytest.approx(0.02, rel=0.05)
    assert not np.any(layer["mlp_out_norm"]["scale"]) and not np.any(
        params["decoder_norm"]["scale"]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(window=0), "window is 0; it must be at least 1"),
        (dict(rotary_base=1.0), "rotary_base is 1.0; it must be above 1"),
        (dict(head_width=5), "head_width is 5; .* it must be even"),
    ],
)
def test_impossible_sizes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        T5GemmaConfig(**change)


@pytest.mark.parametrize("lengths", [(4, 33), (33, 4)], ids=["targets", "inputs"])
def test_a_row_beyond_the_positions_is_refused_with_the_remedy(make, tiny_configs, lengths):
    model, params = make(tiny_configs["t5gemma"])
    inputs, labels = (jnp.ones((1, length), jnp.int32) for length in lengths)
    with pytest.raises(ValueError, match="a larger model.length needs no new parameters"):
        jax.eval_shape(model.apply, {"params": params}, inputs, inputs > 0, labels)


# ---- transformers --------------------------------------------------------------------


def write_theirs(config, **settings):
    """Return a model of transformers for a configuration of ours; settings: of both its parts."""
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    pytest.importorskip("torch", reason="the extra `peers` is not installed")
    described = CONVERTERS["t5gemma"].to_hf_config(config, IDS)
    described |= {part: described[part] | settings for part in ("encoder", "decoder")}
    theirs = transformers.T5GemmaConfig.from_dict(described, attn_implementation="eager")
    return transformers.T5GemmaForConditionalGeneration(theirs).eval()


@pytest.fixture(scope="module")
def pair(make):
    """Yield (our module, our parameters, their model with the same)."""
    model, params = make(CONFIG)
    theirs = write_theirs(CONFIG, **CAPS)
    import torch

    state = CONVERTERS["t5gemma"].to_hf(CONFIG, params)
    state = {name: torch.tensor(array) for name, array in state.items()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    theirs.tie_weights()
    assert missing == ["lm_head.out_proj.weight"] and not unexpected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(T5GemmaConfig, "attention_cap", CAPS["attn_logit_softcapping"])
        patch.setattr(T5GemmaConfig, "logit_cap", CAPS["final_logit_softcapping"])
        yield model, params, theirs


@pytest.mark.more
@pytest.mark.parametrize(("M", "L"), [(13, 60), (40, 7), (5, 4), (129, 130)])
def test_logits_equal_theirs(pair, M, L):
    """Rows with padding, below and beyond the window of 6, in pairs and in blocks."""
    import torch

    model, params, theirs = pair
    rng = np.random.default_rng(0)
    valid, known = (
        np.arange(length) < np.array([length, length - 2, 2])[:, None] for length in (M, L)
    )
    inputs, labels = (
        np.where(mask, rng.integers(3, 50, mask.shape), 0).astype(np.int32)
        for mask in (valid, known)
    )
    ours = jax.jit(model.apply)({"params": params}, inputs, valid, labels)
    with torch.no_grad():
        output = theirs(
            torch.tensor(inputs).long(),
            attention_mask=torch.tensor(valid).long(),
            labels=torch.tensor(labels).long(),
        )
    expected = output.logits.numpy()
    seen = known[..., None]
    np.testing.assert_allclose(np.where(seen, ours, 0), np.where(seen, expected, 0), atol=1e-4)
    assert np.abs(expected).max() > 2  # near the cap


@pytest.mark.more
def test_what_transformers_writes_is_read():
    """Its config.json leaves out what is a default of its parts."""
    theirs = write_theirs(CONFIG).config
    assert CONVERTERS["t5gemma"].from_hf_config(theirs.to_diff_dict()) == CONFIG


def test_an_older_spelling_of_the_rotary_base_is_read():
    described = CONVERTERS["t5gemma"].to_hf_config(
        dataclasses.replace(CONFIG, rotary_base=5e4), IDS
    )
    for part in ("encoder", "decoder"):
        del described[part]["rope_parameters"]
    assert CONVERTERS["t5gemma"].from_hf_config(described).rotary_base == 5e4


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("encoder", dict(hidden_size=32), "encoder.hidden_size is 32 and decoder.hidden_size 24"),
        ("decoder", dict(layer_types=["full_attention"] * 2), "decoder.layer_types does not alter"),
        ("encoder", dict(layer_types=["sliding_attention"]), "encoder.layer_types does not alter"),
        (
            "decoder",
            dict(rope_parameters={"rope_type": "yarn"}),
            "decoder.rope_p.* rope_type 'yarn'",
        ),
        ("encoder", dict(rope_scaling={"type": "linear"}), "encoder.rope_scaling has .* 'linear'"),
        ("decoder", dict(hidden_activation="silu"), "decoder.hidden_activation is 'silu'"),
        ("decoder", dict(query_pre_attn_scalar=24), "decoder.query_pre_attn_scalar is 24"),
        ("decoder", dict(attn_logit_softcapping=None), "decoder.attn_logit_softcapping is null"),
        ("decoder", CAPS, "decoder.attn_logit_softcapping is 1.5; T5GemmaConfig knows only 50.0"),
        ("encoder", None, "encoder is 'base'; expected an object of settings"),
    ],
)
def test_a_folder_that_is_another_model_is_refused(part, change, message):
    described = CONVERTERS["t5gemma"].to_hf_config(CONFIG, IDS)
    described[part] = "base" if change is None else described[part] | change
    with pytest.raises(ValueError, match=message):
        CONVERTERS["t5gemma"].from_hf_config(described)


def test_a_decoder_that_begins_with_the_padding_is_not_exported():
    with pytest.raises(ValueError, match="transformers would hide it"):
        CONVERTERS["t5gemma"].to_hf_config(dataclasses.replace(CONFIG, start=0), IDS)
