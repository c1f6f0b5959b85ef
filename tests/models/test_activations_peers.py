"""Hidden states and attention weights of each layer equal `transformers`' with the same
weights.
"""

import dataclasses
import json

import jax
import numpy as np
import pytest

from models.activations import capture_activations
from models.config.gpt2 import Gpt2Config
from pretrain.convert.read_write import find_converter

torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
transformers = pytest.importorskip(
    "transformers", reason="the extra `peers` is not installed: no transformers"
)

pytestmark = pytest.mark.more
GPT2 = Gpt2Config(vocab=50, length=32, width=24, num_heads=3, depth=3, mlp=40)
VALID = np.arange(9) < np.array([[9], [6]])
TOKENS = np.where(VALID, np.random.default_rng(0).integers(5, 50, VALID.shape), 0).astype(np.int32)
TARGETS = np.random.default_rng(1).integers(5, 50, (2, 7)).astype(np.int32)
FAMILY = [
    ("bert", True), ("albert", True), ("electra", True), ("distilbert", False), ("gpt2", True),
]  # fmt: skip
FAMILY += [("t5", True), ("bart", False), ("transformer", True)]


def make_peer(config, params, folder):
    """Return `transformers`' base model with our parameters; its attention returns its weights."""
    from safetensors.numpy import save_file

    family = find_converter(config)
    vocabulary = type("Vocabulary", (), dict(pad=0, bos=0, eos=2, cls=0, sep=2))
    (folder / "config.json").write_text(json.dumps(family.to_hf_config(config, vocabulary)))
    tensors = {
        name: tensor
        for name, tensor in family.to_hf(config, params).items()
        if not name.startswith("generator/")
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()


def compare_states(states, weights, their_states, their_weights, valid=VALID):
    for ours, theirs in zip(states, their_states, strict=True):
        np.testing.assert_allclose(np.asarray(ours)[valid], theirs.numpy()[valid], atol=1e-4)
    for ours, theirs in zip(weights, their_weights, strict=True):
        there = np.moveaxis(np.asarray(ours), 1, 2)[valid], np.moveaxis(theirs.numpy(), 1, 2)[valid]
        np.testing.assert_allclose(*there, atol=1e-5)
        np.testing.assert_allclose(there[0].sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize(("kind", "scan"), FAMILY)
def test_every_layer_is_theirs(make, tiny_configs, tmp_path, kind, scan):
    config = dataclasses.replace((tiny_configs | {"gpt2": GPT2})[kind], scan=scan)
    model, params = make(config)
    theirs = make_peer(config, params, tmp_path)
    ask = dict(
        input_ids=torch.tensor(TOKENS).long(),
        attention_mask=torch.tensor(VALID).long(),
        output_hidden_states=True,
        output_attentions=True,
    )
    if hasattr(model, "decode"):
        start = getattr(config, "start", 0)
        read = np.pad(TARGETS, ((0, 0), (1, 0)), constant_values=start)[:, :-1]
        ask["decoder_input_ids"] = torch.tensor(read).long()
    with torch.no_grad():
        their_outputs = theirs(**ask)
    if not hasattr(model, "decode"):
        arguments, method = (
            ((TOKENS, VALID), "encode")
            if hasattr(model, "encode")
            else ((TOKENS,), "compute_states")
        )
        seen = jax.jit(
            lambda params: capture_activations(model, params, *arguments, method=method)
        )(params)
        compare_states(
            seen.hidden_states,
            seen.attention_weights["attention"],
            their_outputs.hidden_states,
            their_outputs.attentions,
        )
        return

    def observe_both(params):
        encoded = capture_activations(model, params, TOKENS, VALID, method="encode")
        return encoded, capture_activations(
            model, params, encoded.output, VALID, read, method="decode"
        )

    encoded, decoded = jax.jit(observe_both)(params)
    compare_states(
        encoded.hidden_states,
        encoded.attention_weights["attention"],
        their_outputs.encoder_hidden_states,
        their_outputs.encoder_attentions,
    )
    compare_states(
        decoded.hidden_states,
        decoded.attention_weights["attention"],
        their_outputs.decoder_hidden_states,
        their_outputs.decoder_attentions,
        np.ones((2, 7), bool),
    )
    compare_states(
        (),
        decoded.attention_weights["cross"],
        (),
        their_outputs.cross_attentions,
        np.ones((2, 7), bool),
    )
