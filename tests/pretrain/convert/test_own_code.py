"""Exports that carry their own modelling file: the logits, loss, generation and import of each."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.music.encodings import ENCODINGS, make_vocabulary
from data.vocabulary.load import train_vocabulary
from models.config.linformer import LinformerConfig
from models.config.lstm_lm import LstmLmConfig
from models.config.music_transformer import MusicTransformerConfig
from models.config.sparse_transformer import SparseTransformerConfig
from pretrain.convert.read_write import open_model, write_model
from tests.models.conftest import make_model
from tests.pretrain.conftest import make_texts

L = 14
SIZES = {"width": 16, "depth": 4, "dropout": 0.0}
ATTENTION = SIZES | {"num_heads": 2, "mlp": 32}
LINFORMER = LinformerConfig(vocab=40, length=L + 3, rank=5, attention_dropout=0.0, **ATTENTION)
SPARSE = SparseTransformerConfig(
    vocab=40, length=L + 3, stride=4, summary=2, subblocks=2, **ATTENTION
)
MUSIC = MusicTransformerConfig(vocab=40, head_width=6, attention_dropout=0.0, **ATTENTION)
LSTM = LstmLmConfig(vocab=40, **SIZES)
CASES = {
    **{
        f"linformer_{sharing}": dataclasses.replace(LINFORMER, sharing=sharing)
        for sharing in ("none", "headwise", "key-value", "layerwise")
    },
    "lstm": dataclasses.replace(LSTM, forget_bias=1.5),
    "lstm_tied": dataclasses.replace(LSTM, tied=True),
    "sparse_fixed": SPARSE,
    "sparse_fixed_alternating": dataclasses.replace(SPARSE, merged=False),
    "sparse_strided": dataclasses.replace(SPARSE, pattern="strided", merged=False),
    "music": dataclasses.replace(MUSIC, max_distance=5),
    "music_absolute": dataclasses.replace(MUSIC, relative=False),
}


@pytest.fixture(scope="module")
def vocabularies():
    texts = make_texts(600)
    return {
        LinformerConfig: train_vocabulary(texts, 40, algorithm="unigram"),
        MusicTransformerConfig: make_vocabulary(next(iter(ENCODINGS))),
        None: train_vocabulary(texts, 257, layout="gpt2", algorithm="byte_bpe"),
    }


@pytest.fixture(scope="module", params=CASES)
def exported(request, vocabularies, tmp_path_factory):
    """Return (folder, model, parameters, ids) of an export."""
    config = CASES[request.param]
    vocabulary = vocabularies.get(type(config), vocabularies[None])
    config = dataclasses.replace(config, vocab=vocabulary.size)
    model, params = make_model(config)
    folder = tmp_path_factory.mktemp(request.param) / "out"
    write_model(folder, config, params, vocabulary)
    ids = np.random.default_rng(1).integers(0, vocabulary.size, (2, L), np.int32)
    return folder, model, params, ids


def compute_logits(model, params, ids):
    """Return the logits [B, L, V]."""
    more = {}
    if isinstance(model.config, LinformerConfig):
        more["attention_mask"] = jnp.ones(ids.shape, bool)
    found = jax.jit(lambda params: model.apply({"params": params}, ids, **more))(params)
    return np.asarray(found[0] if isinstance(found, tuple) else found)


def open_exported(folder, name):
    """Return the model of an `Auto` class, opened without loose ends."""
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    model, info = getattr(transformers, name).from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    assert not any(info[kind] for kind in ("missing_keys", "mismatched_keys", "error_msgs"))
    assert not info["unexpected_keys"]
    return model.eval()


def test_an_import_of_the_export_has_the_same_parameters(exported, root):
    folder, model, params, _ = exported
    settings = json.loads((folder / "config.json").read_text())
    source = root / f"pretrain/families/remote_code/{settings['model_type']}.py"
    code = settings["auto_map"]["AutoModel"].split(".")[0]
    assert (folder / f"{code}.py").read_bytes() == source.read_bytes()
    opened = open_model(folder)
    assert opened.config == model.config
    again, missing, unused = opened.load_params(model.config, lambda: params)
    assert (missing, unused) == ((), ())
    jax.tree.map(np.testing.assert_array_equal, again, params)


@pytest.mark.more
def test_transformers_computes_the_same_logits(exported):
    """Padding on the right changes nothing, the loss is of the labels, and all leaves learn."""
    folder, model, params, ids = exported
    is_masked = isinstance(model.config, LinformerConfig)
    theirs = open_exported(folder, f"AutoModelFor{'MaskedLM' if is_masked else 'CausalLM'}")
    import torch

    expected, row = compute_logits(model, params, ids), torch.tensor(ids).long()
    padded = torch.tensor(np.pad(ids, ((0, 0), (0, 3)))).long()
    mask = (torch.arange(L + 3) < L).long().expand(2, -1)
    with torch.no_grad():
        found = theirs(row).logits.numpy()
        beside = theirs(padded, attention_mask=mask).logits[:, :L].numpy()
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(beside, expected, rtol=0, atol=1e-4)
    labels = torch.where(torch.arange(L) % 4 == 3, row, -100)
    logits, targets = torch.tensor(expected), labels
    if not is_masked:
        logits, targets = logits[:, :-1], labels[:, 1:]
    wanted = -logits.log_softmax(-1).gather(-1, targets.clamp(0)[..., None])[..., 0]
    loss = theirs(row, labels=labels).loss
    assert loss.item() == pytest.approx(wanted[targets != -100].mean().item(), abs=1e-4)
    loss.backward()
    assert all(leaf.grad is not None for leaf in theirs.parameters())


@pytest.mark.more
def test_generation_and_states(exported):
    folder, model, params, ids = exported
    bare = open_bare(folder)
    import torch

    row = torch.tensor(ids).long()
    with torch.no_grad():
        states = bare(row).last_hidden_state
    assert states.shape == (2, L, model.config.width)
    if isinstance(model.config, LinformerConfig):
        with torch.no_grad():
            pooled = bare(row).pooler_output.numpy()
        mask = jnp.ones(ids.shape, bool)
        expected = model.apply({"params": params}, ids, mask, method="encode")[1]
        np.testing.assert_allclose(pooled, expected, rtol=0, atol=1e-4)
        return
    causal = open_exported(folder, "AutoModelForCausalLM")
    settings = {"attention_mask": torch.ones(2, 6), "do_sample": False, "eos_token_id": None}
    written = causal.generate(row[:, :6], max_new_tokens=4, **settings)
    for length in range(6, 10):
        scores = compute_logits(model, params, written[:, :length].numpy().astype(np.int32))
        assert (scores[:, -1].argmax(-1) == written[:, length].numpy()).all()


def open_bare(folder):
    """Return the model without a head."""
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    return transformers.AutoModel.from_pretrained(folder, trust_remote_code=True).eval()


@pytest.mark.more
def test_new_parameters_are_drawn(exported):
    """`from_config` draws a model of the same number of parameters, none of which is left at 0."""
    folder, _, params, _ = exported
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    name = "AutoModelForMaskedLM" if config.model_type == "linformer" else "AutoModelForCausalLM"
    drawn = getattr(transformers, name).from_config(config, trust_remote_code=True)
    zero = [n for n, leaf in drawn.named_parameters() if not leaf.any()]
    assert all(name.split(".")[-1].startswith(("bias", "head_bias")) for name in zero), zero
    theirs = sum(leaf.numel() for leaf in drawn.parameters())
    ours = sum(leaf.size for leaf in jax.tree.leaves(params))
    more = {"linformer": -(config.hidden_size + 1) * config.hidden_size}  # the pooler
    if config.model_type == "lstm_lm":  # a second bias of each layer
        more["lstm_lm"] = 4 * config.hidden_size * config.num_hidden_layers
    assert theirs == ours + more.get(config.model_type, 0)
