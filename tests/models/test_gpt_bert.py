"""GPT-BERT: its equations in NumPy, both directions of attention, generation, and its export, which
`transformers` opens with the export's own modelling file.
"""

import dataclasses
import json

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import CausalLm
from data.vocabulary.load import train_vocabulary
from models.layers.layer_layout import flatten_params
from models.layers.relative.distance_buckets import find_buckets
from pretrain.config import Run
from pretrain.convert.read_write import open_model, write_model
from pretrain.publish.cards.model_card import make_card
from pretrain.workdir.trained import Trained
from pretrain.workdir.workdir import Workdir
from tests.models.decoders import check_continuation

# Longer than `max_distance`, so that the last bucket has several distances.
L, SIZES = 26, {"dropout": 0.0, "attention_dropout": 0.0}


@pytest.fixture(scope="module")
def config(tiny_configs):
    return dataclasses.replace(tiny_configs["gpt_bert"], **SIZES)


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(1).integers(0, 50, (2, L), np.int32)


def compute_logits(model, params, ids, causal):
    """Return the logits [B, L, V] of both kinds of attention."""

    def apply(params):
        positions = None if causal else np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        variables, method = {"params": params}, "compute_states"
        states = model.apply(variables, ids, masked_positions=positions, method=method)
        return model.apply(variables, states, method="compute_logits")

    return np.asarray(jax.jit(apply)(params))


# ---- the equations, in NumPy -------------------------------------------------


def find_bucket(distance, buckets, longest):
    """Return the bucket of one distance, from -(buckets - 1) to buckets - 1."""
    half, size = buckets // 2, min(abs(distance), longest - 1)
    if size > half:
        size = half + np.ceil(
            np.log(size / half) / np.log((longest - 1) / half) * (half - 1) - 1e-9
        )
    return int(np.sign(distance) * size)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def gelu(x):
    from scipy.special import erf

    return x * (1 + erf(x / 2**0.5)) / 2


def gelu_tanh(x):
    return x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2


def attend_in_numpy(x, p, table, config, causal):
    """Return the attention of one row [L, D], pair by pair, head by head."""

    def project(part, x):
        return np.einsum("ld,dhk->lhk", x, p[f"{part}/kernel"]) + p[f"{part}/bias"]

    y = norm(x)
    q, k, v, gate = (project(part, y) for part in ("query", "key", "value", "gate"))
    bucket_q, bucket_k = project("query", table), project("key", table)
    length, num_heads, width = q.shape
    context = np.zeros_like(v)
    for h in range(num_heads):
        for i in range(length):
            seen = range(i + 1) if causal else range(length)
            scores = []
            for j in seen:
                r = config.buckets - 1 + find_bucket(i - j, config.buckets, config.max_distance)
                pair = q[i, h] @ k[j, h] + q[i, h] @ bucket_k[r, h] + k[j, h] @ bucket_q[r, h]
                scores.append(pair / (3 * width) ** 0.5)
            weights = np.exp(np.array(scores) - max(scores))
            context[i, h] = (weights / weights.sum()) @ v[: len(scores), h]
    gated = norm((context * gelu(gate)).reshape(length, -1))
    return gated @ p["out/kernel"].reshape(-1, x.shape[-1]) + p["out/bias"]


def run_in_numpy(params, config, row, causal):
    """Return the logits of one row [L, V]."""
    p = {path: np.asarray(leaf, np.float64) for path, leaf in flatten_params(params).items()}
    table = norm(p["relative_embedding/embedding"]) * p["relative_norm/scale"]
    table = table + p["relative_norm/bias"]
    x = norm(p["token_embedding/embedding"][row])
    outputs = [x]
    for n in range(config.depth):
        start = f"decoder/layer_{n}/"
        own = {path.removeprefix(start): leaf for path, leaf in p.items() if path.startswith(start)}
        attention = {
            path.removeprefix("attention/"): leaf
            for path, leaf in own.items()
            if path.startswith("attention/")
        }
        outputs.append(x + attend_in_numpy(x, attention, table, config, causal))
        x = np.tensordot(own["attention_mix"], np.array(outputs), 1)
        hidden = gelu_tanh(norm(x) @ own["mlp/gate/kernel"]) * (norm(x) @ own["mlp/up/kernel"])
        outputs.append(x + norm(hidden) @ own["mlp/down/kernel"])
        x = np.tensordot(own["mlp_mix"], np.array(outputs), 1)
    hidden = gelu(norm(x) @ p["mlm_head/transform/kernel"] + p["mlm_head/transform/bias"])
    return norm(hidden) @ p["token_embedding/embedding"].T + p["mlm_head/bias"]


@pytest.mark.parametrize("causal", [True, False])
def test_logits_are_those_of_the_equations(config, make, ids, causal):
    model, params = make(config)
    found = compute_logits(model, params, ids, causal)
    expected = run_in_numpy(params, config, ids[1], causal)
    np.testing.assert_allclose(found[1], expected, atol=1e-4 * np.abs(expected).max())


def test_masked_positions_are_read_in_both_directions(config, make, ids):
    """A later token changes every state, and of the states those at the positions are returned."""
    model, params = make(config)
    positions = np.array([[0, 4], [2, 9]], np.int32)

    def run(ids):
        return model.apply(
            {"params": params}, ids, masked_positions=positions, method="compute_states"
        )

    other = ids.copy()
    other[:, -1] = (ids[:, -1] + 3) % 50
    found, changed = jax.jit(run)(ids), jax.jit(run)(other)
    assert found.shape == (2, 2, config.width)
    assert (np.abs(found - changed).max(-1) > 1e-4).all()


# ---- distances ---------------------------------------------------------------


def test_buckets_are_exact_nearby_and_logarithmic_beyond():
    """512 tokens in 32 buckets a side: one distance each to 16, and then 15 buckets for 495."""
    distance = np.arange(-600, 601)
    bucket = find_buckets(distance, 32, 512) - 31
    assert bucket.tolist() == [find_bucket(int(r), 32, 512) for r in distance]
    assert bucket[np.abs(distance) <= 16].tolist() == list(range(-16, 17))
    assert (bucket == -bucket[::-1]).all() and bucket.max() == 31
    _, sizes = np.unique(bucket[(distance > 16) & (distance < 512)], return_counts=True)
    assert len(sizes) == 15 and (np.diff(sizes) >= 0).all() and sizes.sum() == 495


def test_sizes_that_do_not_fit_are_refused(config, make, ids):
    model, params = make(config)
    for sizes, message in (
        ({"max_distance": 5}, "model.buckets=8 and model.max_distance=5: at least 2 buckets"),
        ({"length": 25}, "a row of 26 tokens is longer than model.length=25"),
        ({"num_heads": 5}, "a width of 24 does not divide into 5 heads"),
    ):
        other = model.clone(config=dataclasses.replace(config, **sizes))
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(other.init, jax.random.key(0), ids)


# ---- the first parameters, and generation --------------------------------------


def test_a_layer_begins_with_the_last_output_alone(config, make, ids):
    """Later feed-forward networks begin smaller: by sqrt(1 / 2n) in layer n."""
    model, _ = make(dataclasses.replace(config, width=96, mlp=128))
    p = flatten_params(jax.jit(model.init)(jax.random.key(0), ids)["params"])
    assert p["decoder/layer_1/attention_mix"].tolist() == [0, 0, 0, 1]
    assert p["decoder/layer_1/mlp_mix"].tolist() == [0, 0, 0, 0, 1]
    draws = np.random.default_rng(0).standard_normal(200_000)
    std = (2 / (5 * 96)) ** 0.5 * draws[np.abs(draws) < 2].std()
    for path, factor in (
        ("token_embedding/embedding", 1),
        ("decoder/layer_1/attention/gate/kernel", 1),
        ("decoder/layer_0/mlp/up/kernel", (1 / 2) ** 0.5),
        ("decoder/layer_1/mlp/down/kernel", (1 / 4) ** 0.5),
    ):
        assert p[path].std() == pytest.approx(factor * std, rel=0.05), path


def test_the_cache_continues_as_the_whole_row_does(config, make, ids):
    model, params = make(config)
    check_continuation(model, params, ids[:, :5], np.array([5, 3], np.int32), 6)


# ---- the export ----------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(config, make, tmp_path_factory):
    """Return (folder, model, parameters) of an export."""
    vocabulary = train_vocabulary(
        ["a fox sees the old river"] * 20, 270, layout="roberta", algorithm="byte_bpe"
    )
    config = dataclasses.replace(config, vocab=vocabulary.size)
    model, params = make(config)
    folder = tmp_path_factory.mktemp("exported") / "out"
    write_model(folder, config, params, vocabulary)
    return folder, model, params


def test_an_export_carries_its_modelling_file(exported, root):
    folder, model, params = exported
    source = root / "pretrain/families/remote_code/gpt_bert.py"
    assert (folder / "modeling_gpt_bert.py").read_bytes() == source.read_bytes()
    named = json.loads((folder / "config.json").read_text())["auto_map"]
    assert named["AutoModelForMaskedLM"] == "modeling_gpt_bert.GptBertForMaskedLM"
    opened = open_model(folder)
    assert opened.config == model.config
    again, missing, unused = opened.load_params(model.config, lambda: params)
    assert (missing, unused) == ((), ())
    jax.tree.map(np.testing.assert_array_equal, again, params)


def test_the_card_says_which_file_runs(exported, tmp_path):
    folder, model, params = exported
    run = Run(model=model.config, data=Data(objective=CausalLm(length=16)))
    vocabulary = open_model(folder).vocabulary
    card = make_card(Trained(Workdir.open(tmp_path), run, 7, params, vocabulary))
    assert "`trust_remote_code=True` runs `modeling_gpt_bert.py` of this folder. Read it" in card
    for name in ("AutoModelForCausalLM", "AutoTokenizer"):  # each would ask before it runs the file
        assert f'{name}.from_pretrained("FOLDER", trust_remote_code=True)' in card


def open_exported(folder, name, **settings):
    """Return the model of an `Auto` class, opened without loose ends."""
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    model, info = getattr(transformers, name).from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True, **settings
    )
    assert not any(info[kind] for kind in ("missing_keys", "mismatched_keys", "error_msgs"))
    assert name == "AutoModel" or not info["unexpected_keys"]
    return model.eval()


@pytest.mark.more
def test_transformers_computes_the_same_logits(exported, ids):
    """One folder opens as both; padding on the right changes nothing."""
    folder, model, params = exported
    causal, masked = (
        open_exported(folder, f"AutoModelFor{kind}") for kind in ("CausalLM", "MaskedLM")
    )
    import torch

    row, padded = torch.tensor(ids).long(), torch.tensor(np.pad(ids, ((0, 0), (0, 3)))).long()
    mask = (torch.arange(L + 3) < L).long().expand(2, -1)
    for their, is_causal in ((causal, True), (masked, False)):
        expected = compute_logits(model, params, ids, is_causal)
        tolerance = dict(rtol=0, atol=1e-4)
        with torch.no_grad():
            found = their(row).logits.numpy()
            beside = their(padded, attention_mask=mask).logits[:, :L].numpy()
        assert np.abs(expected).max() > 1
        np.testing.assert_allclose(found, expected, **tolerance)
        np.testing.assert_allclose(beside, expected, **tolerance)


@pytest.mark.more
def test_the_modelling_file_has_what_transformers_uses(exported, ids):
    """States without a head, logits at the masked token itself, a loss, generation, and training."""
    folder, model, params = exported
    bare, causal = open_exported(folder, "AutoModel"), open_exported(folder, "AutoModelForCausalLM")
    aligned = open_exported(folder, "AutoModelForMaskedLM", predicts_next=False)
    import torch

    row = torch.tensor(ids).long()
    early = compute_logits(model, params, ids, causal=False)
    with torch.no_grad():
        states = bare(row).last_hidden_state
        logits = aligned(row).logits.numpy()
        np.testing.assert_allclose(
            aligned.head(states, bare.token_embedding.weight), early, atol=1e-4
        )
    assert not logits[:, 0].any()
    np.testing.assert_allclose(logits[:, 1:], early[:, :-1], atol=1e-4)
    labels = torch.where(torch.arange(L) % 5 == 3, row, -100)
    shares = torch.tensor(early[:, :-1]).log_softmax(-1).gather(-1, row[:, 1:, None])[..., 0]
    expected = -shares[labels[:, 1:] != -100].mean()
    loss = aligned(row, labels=labels).loss
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)
    loss.backward()
    assert all(leaf.grad is not None for leaf in aligned.parameters())
    settings = {"attention_mask": torch.ones(2, 6), "do_sample": False, "eos_token_id": None}
    written = causal.generate(row[:, :6], max_new_tokens=4, **settings)
    for length in range(6, 10):
        scores = compute_logits(model, params, written[:, :length].numpy().astype(np.int32), True)
        assert (scores[:, -1].argmax(-1) == written[:, length].numpy()).all()


@pytest.mark.more
def test_new_parameters_begin_as_here(exported):
    """`from_config` draws a model whose layers begin with their last output alone."""
    folder, model, _ = exported
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    drawn = transformers.AutoModelForMaskedLM.from_config(config, trust_remote_code=True)
    assert drawn.layers[1].mlp_mix.tolist() == [0, 0, 0, 0, 1]
    assert sum(leaf.numel() for leaf in drawn.parameters()) == sum(
        leaf.size for leaf in jax.tree.leaves(exported[2])
    )
