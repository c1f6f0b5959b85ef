"""DeBERTa-v3: buckets, logits of transformers beyond 512 tokens, and the gradients of its two tables."""

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.config import Data
from data.objectives import Classification
from models import build
from models.config.choice import ChoiceConfig
from models.config.classifier import ClassifierConfig
from models.config.deberta_v3 import DebertaV3Config
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from models.deberta_v3 import ReplacedTokenHead
from models.layers.relative.disentangled_attention import find_rows
from pretrain.config import Run
from pretrain.convert import fine_tuned
from pretrain.convert.pretrained import CONVERTERS
from pretrain.finetune.start import make_initial_params
from pretrain.training.losses import find_loss
from tests.models.promises.test_heads import make_headed, make_vocabulary
from tests.models.test_electra import BATCH, TOKENS, VALID
from tests.tiny import compute_shapes

CONVERTER = CONVERTERS["deberta-v2"]
LOSS = find_loss("replaced_token")
SMALL = dict(vocab=50, width=24, depth=2, generator_depth=1, num_heads=3, mlp=40)


# ---- positions -----------------------------------------------------------------


def test_distances_have_the_rows_of_the_released_models():
    """Exact up to 128, then logarithmic; 511 has the last bucket, and farther ones share it."""
    distance = np.array([0, 1, 127, 128, 129, 200, 511, 512, 600, 5000])
    ahead = [256, 257, 383, 384, 385, 425, 511, 511, 511, 511]
    assert find_rows(distance, 512, 512).tolist() == ahead
    behind = [256, 255, 129, 128, 127, 87, 1, 0, 0, 0]
    assert find_rows(-distance, 512, 512).tolist() == behind


@pytest.mark.more
@pytest.mark.parametrize(("buckets", "max_distance"), [(256, 512), (8, 20), (64, 1024)])
def test_distances_have_the_rows_of_transformers(buckets, max_distance):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    distance = np.arange(-1100, 1101)
    theirs = make_log_bucket_position(torch.tensor(distance), buckets, max_distance).long()
    expected = np.clip(theirs.numpy() + buckets, 0, 2 * buckets - 1)
    np.testing.assert_array_equal(find_rows(distance, 2 * buckets, max_distance), expected)


@pytest.mark.parametrize(("buckets", "max_distance"), [(7, 20), (8, 5)])
def test_buckets_that_do_not_fit_are_refused(buckets, max_distance):
    with pytest.raises(ValueError, match="buckets must be even, and max_distance above"):
        DebertaV3Config(buckets=buckets, max_distance=max_distance)


def test_a_row_longer_than_the_model_names_the_remedy():
    config = DebertaV3Config(**SMALL, length=3)
    with pytest.raises(ValueError, match="a row of 4 tokens is longer than the 3 .*model.length"):
        compute_shapes(config)


# ---- the two tables --------------------------------------------------------------


def test_the_gradients_of_the_tables_are_those_of_two_networks_alone(make, tiny_configs):
    """The generator's table has the gradient of its own loss, the difference the discriminator's,
    as of two networks with a table each.
    """
    config = dataclasses.replace(tiny_configs["deberta_v3"], depth=1)
    model, params = make(config)
    alone = build(config.as_encoder())

    @jax.jit
    def compute_gradients(params):
        def compute_loss(params, terms=LOSS.loss_terms):
            sums = LOSS.sum_batch(model, params, BATCH)
            return sum(sums[name] for name in terms)

        both = jax.grad(compute_loss)(params)
        generator = jax.grad(lambda params: compute_loss(params, ("masked_lm",)))(params)
        _, _, is_replaced = model.apply(
            {"params": params}, **LOSS.select_inputs(BATCH), method="compute_states"
        )
        table = params["token_embedding"]["embedding"] + params["token_delta"]["embedding"]

        def compute_discriminator_loss(table):
            own = params | {"token_embedding": {"embedding": table}}
            logits = alone.apply({"params": own}, sampled(params), VALID, method="discriminate")
            nats = jnp.logaddexp(0, jnp.where(is_replaced, -logits, logits))
            return jnp.where(VALID, nats, 0).sum()

        return both, generator, jax.grad(compute_discriminator_loss)(table)

    def sampled(params):
        from models.electra import replace_masked

        x_BLD = model.apply({"params": params}, TOKENS, VALID, None, method="generate_states")
        positions = BATCH["masked_positions"]
        x_BPD = jnp.take_along_axis(x_BLD, positions[..., None], axis=1)
        tokens = model.apply({"params": params}, x_BPD, BATCH["uniforms"], method="sample_tokens")
        return replace_masked(TOKENS, positions, tokens, BATCH["label_weights"] > 0)

    both, generator, discriminator = jax.device_get(compute_gradients(params))
    tables = [both[name]["embedding"] for name in ("token_embedding", "token_delta")]
    np.testing.assert_allclose(tables[0], generator["token_embedding"]["embedding"], atol=1e-5)
    np.testing.assert_allclose(tables[1], discriminator, atol=1e-5)
    assert not generator["token_delta"]["embedding"].any()
    assert min(np.abs(table).max() for table in tables) > 1e-2


def test_the_difference_begins_at_0():
    model = build(DebertaV3Config(**SMALL | dict(depth=1)))
    init = jax.jit(lambda key: model.init(key, TOKENS, VALID, method="encode"))
    params = init(jax.random.key(0))["params"]
    assert not params["token_delta"]["embedding"].any()
    assert params["token_embedding"]["embedding"].any()


def test_a_fine_tuning_begins_with_the_sum_of_the_tables(make, tiny_configs):
    config = dataclasses.replace(tiny_configs["deberta_v3"], depth=1)
    model, params = make(config)
    tuned = ClassifierConfig(encoder=config.as_encoder(), labels=("a", "b"))
    run = Run(model=tuned, data=Data(objective=Classification(length=16)))
    pretrained: Any = types.SimpleNamespace(params=params, run=types.SimpleNamespace(model=config))
    begun, fresh = make_initial_params(run, pretrained, "head")
    assert all(path.startswith("classifier/") for path in fresh)
    encoder = build(config.as_encoder())

    @jax.jit
    def encode(params, own):
        read = TOKENS, VALID
        before, _ = model.apply({"params": params}, *read, method="encode")
        return before, encoder.apply({"params": own}, *read, method="encode")[0]

    np.testing.assert_allclose(*encode(params, begun["encoder"]), atol=1e-5)
    with pytest.raises(ValueError, match="has_generator=false is of a fine-tuned model"):
        jax.eval_shape(lambda: encoder.apply({"params": begun["encoder"]}, TOKENS, VALID))


def test_the_head_reads_each_state_with_its_cls():
    """mask_predictions of the authors' code: norm(h + h[CLS]), a layer, GELU, one output."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (2, 5, 8))
    head = ReplacedTokenHead(1e-7)
    params = jax.tree.map(
        lambda leaf: rng.normal(0, 1, leaf.shape).astype(np.float32),
        jax.eval_shape(head.init, jax.random.key(0), jnp.ones((2, 5, 8)), jnp.ones((2, 1, 8))),
    )
    found = head.apply(params, jnp.float32(x), jnp.float32(x[:, :1]))
    t = params["params"]
    y = x + x[:, :1]
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-7)
    y = y * t["norm"]["scale"] + t["norm"]["bias"]
    y = y @ t["transform"]["kernel"] + t["transform"]["bias"]
    y *= 0.5 * (1 + jax.scipy.special.erf(y / np.sqrt(2)))
    expected = (y @ t["score"]["kernel"] + t["score"]["bias"])[..., 0]
    np.testing.assert_allclose(found, expected, atol=1e-4)


# ---- transformers ----------------------------------------------------------------


def load_theirs(described, tensors, ignored=()):
    """Return compute(ids, valid) of a model of transformers with a config.json and tensors of ours.

    ignored: how the names begin of tensors that it lacks.
    """
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    kind = getattr(transformers, described["architectures"][0])
    theirs = kind(kind.config_class.from_dict(described)).eval()
    prefix = "deberta." if kind.__name__ == "DebertaV2Model" else ""
    state = {
        name.removeprefix(prefix): torch.tensor(array)
        for name, array in tensors.items()
        if not name.startswith(ignored)
    }
    theirs.load_state_dict(state, strict=True)

    def compute(ids, valid):
        with torch.no_grad():
            out = theirs(torch.tensor(ids), attention_mask=torch.tensor(valid).long())
        return out[0].numpy() if len(out) == 1 else torch.stack(list(out.values()), -1).numpy()

    return compute


def draw_rows(length):
    """Return ids and where there are tokens, of two rows, the second shorter."""
    ids = np.random.default_rng(0).integers(5, 50, (2, length))
    return ids, np.arange(length) < [[length], [length - 5]]


@pytest.mark.more
@pytest.mark.parametrize(
    ("settings", "length"),
    [({}, 600), (dict(buckets=8, max_distance=20), 130)],
    ids=["released", "few buckets"],
)
def test_both_models_give_the_outputs_of_transformers(make, settings, length):
    """Beyond 512 tokens, where distances share the last bucket."""
    model, params = make(DebertaV3Config(**SMALL, **settings, length=600))
    described = CONVERTER.to_hf_config(model.config, make_vocabulary_of(model.config))
    generator = described.pop("generator")
    tensors = CONVERTER.to_hf(model.config, params)
    own = {k.removeprefix("generator/"): v for k, v in tensors.items() if k.startswith("gen")}
    computes = (
        load_theirs(described, tensors, ("generator/", "mask_predictions.")),
        load_theirs(generator, own),
    )
    ids, valid = draw_rows(length)
    states, logits = jax.jit(
        lambda params: (
            model.apply({"params": params}, ids, valid, method="encode")[0],
            model.apply({"params": params}, ids, valid)[0],
        )
    )(params)
    for ours, compute in zip((states, logits), computes, strict=True):
        expected = compute(ids, valid)
        np.testing.assert_allclose(np.asarray(ours)[valid], expected[valid], atol=1e-4)


def make_vocabulary_of(config):
    return make_vocabulary(ClassifierConfig(encoder=config))


@pytest.mark.more
@pytest.mark.parametrize("head", [ClassifierConfig, TaggerConfig, SpanReaderConfig, ChoiceConfig])
def test_heads_are_those_of_transformers(tiny_configs, head):
    config, params = make_headed("deberta_v3", head, tiny_configs)
    described = fine_tuned.to_hf_config(config, make_vocabulary(config))
    compute = load_theirs(described, fine_tuned.to_hf(config, params))
    ids, valid = draw_rows(20)
    if head is ChoiceConfig:
        ids, valid = ids[None], valid[None]
    ours = np.asarray(jax.jit(build(config).apply)({"params": params}, ids, valid))
    seen = valid[..., None] if ours.shape[:2] == valid.shape else True
    expected = compute(ids, valid)
    np.testing.assert_allclose(np.where(seen, ours, 0), np.where(seen, expected, 0), atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (
            dict(width=384, num_heads=6, mlp=1536),
            (70_682_112, 21_491_712, 70_830_722, 60_312_036, 148_993),
        ),
        (
            dict(depth=6, generator_depth=3),
            (141_304_320, 42_923_520, 141_896_450, 120_760_932, 592_897),
        ),
        ({}, (183_831_552, 85_450_752, 184_423_682, 142_024_548, 592_897)),
        (
            dict(width=1024, depth=24, generator_depth=12, num_heads=16, mlp=4096),
            (434_012_160, 302_837_760, 435_063_810, 284_037_220, 1_052_673),
        ),
    ],
    ids=["xsmall", "small", "base", "large"],
)
def test_the_released_sizes(sizes, expected):
    """The backbone, without its table, with two classes; the generator with its head; the head of
    replaced tokens.
    """
    config = DebertaV3Config(**sizes)
    classifier = ClassifierConfig(encoder=config.as_encoder(), labels=("a", "b"))
    (_, own), (_, tuned) = compute_shapes(config), compute_shapes(classifier)

    def count(params, *parts):
        return sum(leaf.size for part in parts for leaf in jax.tree.leaves(params[part]))

    found = (
        count(own, "token_embedding", "discriminator"),
        count(own, "discriminator"),
        count(tuned, "encoder", "classifier"),
        count(own, "token_embedding", "generator", "mlm_head"),
        count(own, "discriminator_head"),
    )
    assert found == expected
    assert count(own, "token_delta") == count(own, "token_embedding")


# ---- config.json -----------------------------------------------------------------

RELEASED = {  # of microsoft/deberta-v3-base, which names no architecture
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}


def test_a_released_configuration_is_read():
    assert CONVERTER.from_hf_config(RELEASED) == DebertaV3Config()
    longer = RELEASED | {"pos_att_type": ["c2p", "p2c"], "num_hidden_layers": 24}
    assert CONVERTER.from_hf_config(longer) == DebertaV3Config(depth=24, generator_depth=12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(position_buckets=None), "buckets is -1"),
        (dict(pos_att_type="c2p"), "pos_att_type is 'c2p'"),
        (dict(pos_att_type=3), "pos_att_type is 3; expected a list"),
        (dict(norm_rel_ebd=None), "norm_rel_ebd is 'none'"),
        (dict(relative_attention=None), "relative_attention is False"),
        (dict(position_biased_input=None), "position_biased_input is True"),
        (dict(share_att_key=False), "share_att_key is False"),
        (dict(type_vocab_size=2), "type_vocab_size is 2"),
        (dict(conv_kernel_size=3), "conv_kernel_size is 3"),
        (dict(embedding_size=128), "embedding_size is 128 and hidden_size 768"),
        (dict(attention_head_size=32), "attention_head_size is 32, with 12 heads in a width of"),
        (dict(max_relative_positions="far"), "max_relative_positions is 'far'"),
    ],
)
def test_a_folder_that_is_another_model_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        CONVERTER.from_hf_config(RELEASED | change)


def test_a_discriminator_alone_gives_its_generator_the_table(make, tiny_configs):
    """And gets a new head of replaced tokens where the folder has none."""
    config = tiny_configs["deberta_v3"]
    _, params = make(config)
    tensors = CONVERTER.to_hf(config, params)
    released = {
        name: array
        for name, array in tensors.items()
        if not name.startswith(("generator/", "mask_predictions."))
    }
    released["deberta.embeddings.position_embeddings.weight"] = np.ones((32, 24), np.float32)
    initial = jax.tree.map(jnp.ones_like, params)
    found, report = CONVERTER.from_hf(config, released, initial)
    table = tensors["deberta.embeddings.word_embeddings.weight"]
    np.testing.assert_array_equal(found["token_embedding"]["embedding"], table)
    assert not found["token_delta"]["embedding"].any()
    for part in ("generator", "mlm_head", "discriminator_head"):
        assert all((leaf == 1).all() for leaf in jax.tree.leaves(found[part]))
    jax.tree.map(np.testing.assert_array_equal, found["discriminator"], params["discriminator"])
    assert len(report.missing) == len(tensors) - len(released)
    other = dict(tensors)
    other["generator/deberta.embeddings.word_embeddings.weight"] = table[1:]
    with pytest.raises(
        ValueError, match=r"word_embeddings.weight has shape \[50, 24\], and in gen"
    ):
        CONVERTER.from_hf(dataclasses.replace(config), other, initial)
