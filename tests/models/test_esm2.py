"""ESM-2: sizes, dropped masks, packed rows, and the logits of `transformers`; heads and packed rows of
ESM C as well.
"""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.vocabulary.letters.alphabets import make_alphabet
from models import build
from models.config.classifier import ClassifierConfig
from models.config.esm2 import Esm2Config
from models.config.tagger import TaggerConfig
from models.esm2 import drop_masks
from pretrain.convert import fine_tuned
from pretrain.convert.pretrained import CONVERTERS
from pretrain.families.esm2 import compute_rates
from tests.models.promises.test_heads import make_headed, make_vocabulary

IDS = types.SimpleNamespace(pad=1, cls=0, sep=2, mask=32)  # of a vocabulary
CONVERTER = CONVERTERS["esm"]


@pytest.mark.parametrize(
    ("width", "depth", "num_heads", "published"),
    [
        (320, 6, 20, 7_512_474),
        (480, 12, 20, 33_501_394),
        (640, 30, 20, 148_140_154),
        (1280, 33, 20, 651_043_254),
        (2560, 36, 40, 2_839_005_634),
        (5120, 48, 40, 15_129_100_194),
    ],
)
def test_published_sizes(width, depth, num_heads, published):
    config = Esm2Config(width=width, depth=depth, num_heads=num_heads, mlp=4 * width)
    ids = jnp.ones((1, 2), jnp.int32)
    shapes = jax.eval_shape(lambda: build(config).init(jax.random.key(0), ids, ids > 0))["params"]
    found = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert found == published


def test_masks_are_dropped_inputs():
    """Each text of a packed row is scaled by 0.88 and its own share; a text of masks is 0."""
    x = np.random.default_rng(0).standard_normal((2, 7, 3)).astype(np.float32)
    segments = np.array([[1, 1, 1, 1, 2, 2, 3], [1, 1, 1, 2, 2, 0, 0]])
    is_mask = np.array([[0, 1, 0, 0, 0, 0, 1], [0, 0, 0, 1, 0, 0, 0]], bool)
    found = drop_masks(x, is_mask, segments > 0, jnp.array(segments))
    scale = np.array([[4 / 3] * 4 + [1] * 2 + [0], [1] * 3 + [2] * 2 + [0] * 2]) * 0.88
    real = segments > 0
    expected = np.where(is_mask[..., None], 0, x * scale[..., None])
    np.testing.assert_allclose(np.asarray(found)[real], expected[real], rtol=1e-6)
    whole = drop_masks(x, is_mask, real)
    shares = [5 / 7, 4 / 5]
    expected = np.where(is_mask[..., None], 0, x * 0.88 / np.reshape(shares, (2, 1, 1)))
    np.testing.assert_allclose(np.asarray(whole)[real], expected[real], rtol=1e-6)


def make_rows(length=40):
    """Return ids and valid tokens [3, L] with masks: in none, some and half of the residues."""
    rng = np.random.default_rng(0)
    ids = rng.integers(4, 31, (3, length))
    ids[:, 0], valid = 0, np.arange(length) < [[length], [length - 9], [length - 3]]
    share = np.array([0, 0.15, 0.5])[:, None]
    ids[(rng.random(ids.shape) < share) & (np.arange(length) > 0)] = 32
    return np.where(valid, ids, 1), valid


@pytest.mark.parametrize("name", ["esm2", "esmc"])
def test_texts_of_a_packed_row_are_read_as_rows_of_their_own(make, tiny_configs, name):
    model, params = make(dataclasses.replace(tiny_configs[name], length=130))
    ids, valid = make_rows()
    apply = jax.jit(lambda *arrays: model.apply({"params": params}, *arrays)[0])
    alone = np.asarray(apply(ids, valid))
    packed_ids = np.concatenate([row[seen] for row, seen in zip(ids, valid)])[None]
    segments = np.repeat([1, 2, 3], valid.sum(1))[None]
    packed = apply(packed_ids, segments > 0, None, None, segments)
    np.testing.assert_allclose(packed[0], alone[valid], atol=2e-5)


def load_theirs(kind, described, tensors):
    """Return a model of transformers with a config.json and tensors of ours."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    theirs = kind(kind.config_class.from_dict(described, attn_implementation="eager")).eval()
    state = {name: torch.tensor(array) for name, array in tensors.items()}
    missing, extra = theirs.load_state_dict(state, strict=False)
    assert not extra and {*missing} <= {"lm_head.decoder.weight"}
    theirs.tie_weights()

    def compute(ids, valid):
        with torch.no_grad():
            read = torch.tensor(ids), torch.tensor(valid).long()
            return theirs(read[0], attention_mask=read[1]).logits.numpy()

    return compute


@pytest.mark.more
@pytest.mark.parametrize(("drops_masks", "kind"), [(True, "float16"), (False, "float32")])
def test_logits_are_those_of_transformers(make, tiny_configs, drops_masks, kind):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    config = dataclasses.replace(
        tiny_configs["esm2"],
        length=40,
        rotary_base=500.0,
        drops_masks=drops_masks,
        rotary_rates=kind,
    )
    model, params = make(config)
    described, tensors = CONVERTER.to_hf_config(config, IDS), CONVERTER.to_hf(config, params)
    compute = load_theirs(transformers.EsmForMaskedLM, described, tensors)
    ids, valid = make_rows()
    ours, _ = jax.jit(model.apply)({"params": params}, ids, valid)
    np.testing.assert_allclose(np.asarray(ours)[valid], compute(ids, valid)[valid], atol=1e-4)
    found = CONVERTER.from_hf_config(described)
    assert CONVERTER.family.require_hugging_face().refine(found, tensors) == config


@pytest.mark.more
@pytest.mark.parametrize("name", ["esm2", "esmc"])
@pytest.mark.parametrize("head", [ClassifierConfig, TaggerConfig])
def test_heads_are_those_of_transformers(tiny_configs, head, name):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    config, params = make_headed(name, head, tiny_configs)
    described = fine_tuned.to_hf_config(config, make_vocabulary(config))
    kind = getattr(transformers, described["architectures"][0])
    compute = load_theirs(kind, described, fine_tuned.to_hf(config, params))
    ids, valid = make_rows(20)
    ours = build(config).apply({"params": params}, ids, valid)
    seen = valid[..., None] if head is TaggerConfig else True
    expected = compute(ids, valid)
    np.testing.assert_allclose(np.where(seen, ours, 0), np.where(seen, expected, 0), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(position_embedding_type="absolute"), "position_embedding_type is 'absolute'"),
        (dict(emb_layer_norm_before=True), "emb_layer_norm_before is True"),
        (dict(is_folding_model=True), "is_folding_model is True"),
        (dict(rope_theta=1.0), "rotary_base is 1.0; it must be above 1"),
    ],
)
def test_a_folder_that_is_another_model_is_refused(tiny_configs, change, message):
    described = CONVERTER.to_hf_config(tiny_configs["esm2"], IDS)
    with pytest.raises(ValueError, match=message):
        CONVERTER.from_hf_config(described | change)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("place", ["", "encoder.layer.1.attention.self."])
def test_the_format_of_the_rates_is_that_of_the_folder(tiny_configs, kind, place):
    """A folder may have them once, or for each layer as older ones."""
    refine = CONVERTER.family.require_hugging_face().refine
    config = dataclasses.replace(tiny_configs["esm2"], rotary_rates=kind)
    rates = compute_rates(config)
    plain = 10_000.0 ** (-np.arange(0, 8, 2, dtype=np.float32) / 8)
    np.testing.assert_allclose(rates, plain.astype(rates.dtype), rtol=4e-3)
    assert (kind == "float32") == np.allclose(rates, plain, rtol=1e-6)
    tensors = {f"esm.{place}rotary_embeddings.inv_freq": rates}
    assert refine(tiny_configs["esm2"], tensors) == config
    assert refine(config, {}) == config
    with pytest.raises(ValueError, match=r"inv_freq has other rates than 10000\^\(-2i/K\)"):
        refine(config, {name: 1.01 * array for name, array in tensors.items()})


def test_an_alphabet_is_what_the_model_needs():
    vocabulary = make_alphabet("esm2")
    assert (vocabulary.size, vocabulary.mask) == (Esm2Config().vocab, Esm2Config().mask_id)
