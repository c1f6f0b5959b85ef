"""EuroBERT and NeoBERT: sizes, initial scales, packed rows, and the logits of their sources.

EuroBERT is compared with `transformers`; NeoBERT, which it lacks, with NumPy on the tensors that the
authors' code reads.
"""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.config import Data
from data.objectives import Classification
from data.vocabulary.load import train_vocabulary
from models import build
from models.config.classifier import ClassifierConfig
from models.config.eurobert import EuroBertConfig
from models.config.neobert import NeoBertConfig
from models.config.tagger import TaggerConfig
from pretrain.api.importing import make_starting_run
from pretrain.config import Run, load
from pretrain.convert import fine_tuned
from pretrain.convert.pretrained import CONVERTERS
from pretrain.publish.cards.loading_lines import make_loading_lines
from pretrain.training.schedules import make_learning_rate
from tests.models.promises.test_heads import make_headed, make_vocabulary

IDS = types.SimpleNamespace(pad=0, cls=2, sep=3, mask=4)  # of a vocabulary
LENGTHS = (7, 40, 130)
FAMILIES = ("eurobert", "neobert")


def init_shapes(config):
    ids = jnp.ones((1, 2), jnp.int32)
    return jax.eval_shape(lambda: build(config).init(jax.random.key(0), ids, ids > 0))["params"]


def count_params(params):
    return sum(leaf.size for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("config", "body", "head"),
    [
        (EuroBertConfig(), 211_766_016, 98_500_608),
        (
            EuroBertConfig(width=1152, depth=26, num_heads=18, num_key_heads=6, mlp=4096),
            607_874_688,
            147_750_912,
        ),
        (
            EuroBertConfig(width=2304, depth=32, num_heads=18, num_key_heads=6, mlp=6144),
            2_107_590_912,
            295_501_824,
        ),
        (NeoBertConfig(), 221_665_536, 23_471_418),
    ],
    ids=["210m", "610m", "2.1B", "neobert"],
)
def test_published_sizes(config, body, head):
    """310,266,624, 755,625,600 and 2,403,092,736 parameters of EuroBERT, 245,136,954 of NeoBERT."""
    params = init_shapes(config)
    found_head = count_params(params.pop("lm_head"))
    assert (count_params(params), found_head) == (body, head)


def test_grouped_keys_that_do_not_divide_are_refused():
    config = EuroBertConfig(vocab=9, width=24, depth=1, num_heads=6, num_key_heads=4, mlp=8)
    with pytest.raises(ValueError, match="6 query heads do not divide into groups for 4 key heads"):
        init_shapes(config)


@pytest.mark.parametrize("kind", [EuroBertConfig, NeoBertConfig])
@pytest.mark.parametrize("base", [0.0, 1.0, float("nan")])
def test_a_rotary_base_that_turns_nothing_is_refused(kind, base):
    with pytest.raises(ValueError, match="rotary_base is .* must be above 1"):
        kind(rotary_base=base)


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_of_a_packed_row_are_read_as_rows_of_their_own(name, make, tiny_configs):
    model, params = make(dataclasses.replace(tiny_configs[name], length=64))
    lengths, ids = [17, 9, 22], np.random.default_rng(0).integers(5, 50, (1, 50))
    segments, alone, start = np.zeros((1, 50), np.int32), [], 0
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


def compare_logits(model, params, compute_theirs):
    """Compare logits at several lengths, with a row that is shorter; theirs: (ids, valid) -> [B, L, V]."""
    rng, apply = np.random.default_rng(0), jax.jit(model.apply)
    for length in LENGTHS:
        ids = rng.integers(5, 50, (2, length))
        valid = np.arange(length) < [[length], [length - 5]]
        ours, _ = apply({"params": params}, ids, valid)
        expected = compute_theirs(ids, valid)
        np.testing.assert_allclose(np.asarray(ours)[valid], expected[valid], atol=1e-4)


# ---- EuroBERT, as transformers has it ------------------------------------------------


def load_theirs(kind, described, tensors):
    """Return a model of transformers with a config.json and tensors of ours."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    theirs = kind(kind.config_class.from_dict(described, attn_implementation="eager")).eval()
    state = {name: torch.tensor(array) for name, array in tensors.items()}
    theirs.load_state_dict(state, strict=True)

    def compute(ids, valid):
        with torch.no_grad():
            read = torch.tensor(ids), torch.tensor(valid).long()
            return theirs(read[0], attention_mask=read[1]).logits.numpy()

    return compute


@pytest.mark.more
@pytest.mark.parametrize("num_key_heads", [4, 2])
def test_logits_are_those_of_transformers(make, tiny_configs, num_key_heads):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    config = dataclasses.replace(
        tiny_configs["eurobert"], length=130, num_key_heads=num_key_heads, rotary_base=500.0
    )
    model, params = make(config)
    converter = CONVERTERS["eurobert"]
    compute = load_theirs(
        transformers.EuroBertForMaskedLM,
        converter.to_hf_config(config, IDS),
        converter.to_hf(config, params),
    )
    compare_logits(model, params, compute)


@pytest.mark.more
@pytest.mark.parametrize("pooling", ["bos", "mean", "late"])
@pytest.mark.parametrize("head", [ClassifierConfig, TaggerConfig])
def test_heads_are_those_of_transformers(tiny_configs, head, pooling):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    tiny = dataclasses.replace(tiny_configs["eurobert"], pooling=pooling)
    config, params = make_headed("eurobert", head, {"eurobert": tiny})
    described = fine_tuned.to_hf_config(config, make_vocabulary(config))
    kind = getattr(transformers, described["architectures"][0])
    compute = load_theirs(kind, described, fine_tuned.to_hf(config, params))
    ids = np.random.default_rng(0).integers(5, 50, (3, 20))
    valid = np.arange(20) < np.array([20, 11, 16])[:, None]
    ours = build(config).apply({"params": params}, ids, valid)
    seen = valid[..., None] if head is TaggerConfig else True
    expected = compute(ids, valid)
    np.testing.assert_allclose(np.where(seen, ours, 0), np.where(seen, expected, 0), atol=1e-4)


SIZES = dict(vocab=50, width=24, depth=2, num_heads=6, num_key_heads=2, mlp=40, rotary_base=5e4)


@pytest.mark.parametrize("dropped", ["rope_theta", "rope_parameters"])
def test_a_folder_of_either_spelling_is_read(dropped):
    config = EuroBertConfig(**SIZES)
    described = CONVERTERS["eurobert"].to_hf_config(config, IDS)
    described.pop(dropped)
    assert CONVERTERS["eurobert"].from_hf_config(described) == config


def test_keys_without_a_number_are_as_many_as_queries():
    described = CONVERTERS["eurobert"].to_hf_config(EuroBertConfig(**SIZES), IDS)
    del described["num_key_value_heads"]
    assert CONVERTERS["eurobert"].from_hf_config(described).num_key_heads == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(rope_parameters={"rope_type": "yarn"}), "rope_type 'yarn'"),
        (dict(rope_parameters=[1]), "expected an object"),
        (dict(rope_scaling={"rope_type": "linear"}), "rope_type 'linear'"),
        (dict(rope_scaling={"type": "dynamic"}), "rope_scaling has rope_type 'dynamic'"),
        (dict(head_dim=8), "head_dim is 8, with 6 heads in a width of 24"),
        (dict(mlp_bias=True), "mlp_bias is True"),
        (dict(attention_dropout=0.1), "attention_dropout is 0.1"),
        (dict(tie_word_embeddings=True), "tie_word_embeddings is True"),
        (dict(classifier_pooling="max"), "classifier_pooling"),
    ],
)
def test_a_folder_that_is_another_model_is_refused(change, message):
    described = CONVERTERS["eurobert"].to_hf_config(EuroBertConfig(**SIZES), IDS)
    with pytest.raises(ValueError, match=message):
        CONVERTERS["eurobert"].from_hf_config(described | change)


# ---- NeoBERT, from the tensors of its code -------------------------------------------


def compute_neobert(tensors, depth, num_heads, epsilon, ids, valid):
    """Compute logits in float64 as the authors' model.py: complex numbers for the positions."""
    t = {name: np.float64(array) for name, array in tensors.items()}
    width = t["model.encoder.weight"].shape[1]
    K, L = width // num_heads, ids.shape[1]
    turns = np.exp(1j * np.outer(np.arange(L), 10_000.0 ** (-np.arange(0, K, 2) / K)))[:, None]

    def norm(x, name):
        return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + epsilon) * t[name]

    def turn(x):
        turned = x.reshape(*x.shape[:-1], -1, 2) @ [1, 1j] * turns
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)

    x = t["model.encoder.weight"][ids]
    for i in range(depth):
        layer = f"model.transformer_encoder.{i}"
        qkv = norm(x, f"{layer}.attention_norm.weight") @ t[f"{layer}.qkv.weight"].T
        q, k, v = np.split(qkv.reshape(*ids.shape, num_heads, 3 * K), 3, axis=-1)
        scores = np.einsum("blhk,bmhk->bhlm", turn(q), turn(k)) / np.sqrt(K)
        weights = np.exp(scores) * valid[:, None, None]
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("bhlm,bmhk->blhk", weights, v).reshape(x.shape)
        x = x + mixed @ t[f"{layer}.wo.weight"].T
        y = norm(x, f"{layer}.ffn_norm.weight") @ t[f"{layer}.ffn.w12.weight"].T
        gate, hidden = np.split(y, 2, axis=-1)
        x = x + (gate / (1 + np.exp(-gate)) * hidden) @ t[f"{layer}.ffn.w3.weight"].T
    x = norm(x, "model.layer_norm.weight")
    return x @ t["decoder.weight"].T + t["decoder.bias"]


def test_logits_are_those_of_the_authors_names(make, tiny_configs):
    config = dataclasses.replace(tiny_configs["neobert"], length=130)
    model, params = make(config)
    tensors = CONVERTERS["neobert"].to_hf(config, params)
    shapes = {name: array.shape for name, array in tensors.items()}
    assert shapes["model.transformer_encoder.1.qkv.weight"] == (72, 24)
    assert shapes["model.transformer_encoder.1.ffn.w12.weight"] == (80, 24)
    sizes = config.depth, config.num_heads, config.epsilon
    compare_logits(model, params, lambda *read: compute_neobert(tensors, *sizes, *read))


@pytest.mark.parametrize(("intermediate", "mlp"), [(3072, 2048), (60, 40), (61, 40), (64, 48)])
def test_the_width_of_the_authors_configuration_is_two_thirds(intermediate, mlp):
    config = NeoBertConfig(vocab=50, width=24, depth=2, num_heads=3, mlp=mlp)
    described = CONVERTERS["neobert"].to_hf_config(config, IDS)
    if intermediate % 3 == 0:
        assert described["intermediate_size"] == intermediate
    described["intermediate_size"] = intermediate
    assert CONVERTERS["neobert"].from_hf_config(described) == config


def test_a_width_that_the_authors_code_rounds_is_not_exported():
    config = NeoBertConfig(vocab=50, width=24, depth=2, num_heads=3, mlp=42)
    with pytest.raises(ValueError, match="model.mlp=42 cannot be exported"):
        CONVERTERS["neobert"].to_hf_config(config, IDS)
    described = CONVERTERS["neobert"].to_hf_config(dataclasses.replace(config, mlp=40), IDS)
    with pytest.raises(ValueError, match="intermediate_size is '60'; expected int"):
        CONVERTERS["neobert"].from_hf_config(described | {"intermediate_size": "60"})


@pytest.mark.parametrize(
    ("name", "low", "deviation"), [("eurobert", -1.0, 0.02), ("neobert", -0.02, 0.02 / 3**0.5)]
)
def test_initial_scales(name, low, deviation, tiny_configs):
    """A normal of 0.02, and uniform numbers up to 0.02."""
    config = dataclasses.replace(tiny_configs[name], vocab=900, width=96, mlp=200)
    ids = jnp.ones((1, 2), jnp.int32)
    params = jax.jit(build(config).init)(jax.random.key(0), ids, ids > 0)["params"]
    layer = params["encoder"]["layers"]
    for kernel in (
        params["token_embedding"]["embedding"],
        params["lm_head"]["kernel"],
        layer["attention"]["query"]["kernel"],
        layer["mlp"]["down"]["kernel"],
    ):
        assert np.std(kernel) == pytest.approx(deviation, rel=0.03) and kernel.min() >= low


def test_the_rate_of_the_recipe_falls_to_a_tenth_at_step_900_000():
    run = load("neobert", [])
    rate = make_learning_rate(run.optimizer, run.train.steps)
    found = [float(rate(n)) for n in (0, 2000, 451_000, 900_000, 999_999)]
    assert found == pytest.approx([5e-8, 1e-4, 5.5e-5, 1e-5, 1e-5], rel=1e-3)


@pytest.mark.parametrize("head", [None, ClassifierConfig])
def test_a_folder_is_opened_with_the_authors_code(tiny_configs, head):
    config = dataclasses.replace(tiny_configs["neobert"], vocab=265)
    if head:
        run = Run(model=head(encoder=config), data=Data(objective=Classification(length=16)))
        described = fine_tuned.to_hf_config(run.model, IDS)
    else:
        run = make_starting_run(config)
        described = CONVERTERS["neobert"].to_hf_config(config, IDS)
    vocabulary = train_vocabulary(["a text"] * 9, 265, layout="roberta", algorithm="byte_bpe")
    lines = make_loading_lines(run, vocabulary, "hf")
    kind = "SequenceClassification" if head else "MaskedLM"
    assert lines[1] == f'model = AutoModelFor{kind}.from_pretrained("hf", trust_remote_code=True)'
    assert 'model="hf", trust_remote_code=True)' in lines[-1]
    (architecture,) = described["architectures"]
    found = described["auto_map"][f"AutoModelFor{kind}"]
    assert found == f"chandar-lab/NeoBERT--model.{architecture}"
