"""The models compute what `transformers` computed when tests/goldens/make.py was run; torch is not
needed.
"""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from models import build
from models.generation.decoding import continue_prompts, generate
from pretrain.convert.pretrained import CONVERTERS
from pretrain.training.losses import find_loss

OBJECTIVES = {
    "bert": "sentence_pair", "roberta": "masked_lm", "albert": "sentence_order",
    "electra": "replaced_token", "t5": "span_corruption", "openai-gpt": "causal_lm",
    "gpt2": "causal_lm", "marian": "seq2seq", "bart": "denoising", "distilbert": "masked_lm",
}  # fmt: skip
OF_ROW = {
    "bert": "next",
    "roberta": "pooled",
    "albert": "order",
    "electra": "replaced",
    "distilbert": None,
}  # an encoder's outputs for a whole row
BERT = [(name, scan) for name in OF_ROW for scan in (True, False)] + [("electra_wide", True)]
T5 = [
    ("t5", True),
    ("t5_v1_1", True),
    ("t5_v1_1", False),
    ("t5_gated_tied", True),
    ("t5_relu_untied", True),
]
TRANSFORMER = [("transformer", True), ("bart", True)]
GPT = [("gpt", True), ("gpt2", True), ("gpt2", False)]
# Inputs of every model of a kind, in addition to an objective's.
READ = {
    *("token_ids", "attention_mask", "token_type_ids"),
    *("encoder_token_ids", "encoder_attention_mask"),
}
CASES = [*BERT, *T5, *TRANSFORMER, *GPT]  # the golden, and whether our model is scanned


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request, golden):
    """Return (golden, its objective's loss, our module, our parameters)."""
    name, scan = request.param
    found = golden(name)
    kind = found.config["model_type"]
    config = dataclasses.replace(CONVERTERS[kind].from_hf_config(found.config), scan=scan)
    model, loss = build(config), find_loss(OBJECTIVES[kind])
    init = partial(model.init, jax.random.key(0), **loss.select_inputs(found.inputs))
    # Fresh parameters are only shapes here: one that is not filled in stays NaN and is noticed.
    fresh = jax.tree.map(
        lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype), jax.eval_shape(init)["params"]
    )
    params, report = CONVERTERS[kind].from_hf(config, found.weights, fresh)
    assert report.missing == report.unused == ()
    return found, loss, model, params


@pytest.mark.held_by("('bert', True)", "('t5_v1_1', True)", "('gpt2', True)")
def test_logits_hidden_states_and_loss(case):
    """The loss is equal too: of gathered masked tokens plus the next sentence, or the mean over all
    target tokens.
    """
    found, loss, model, params = case
    kind = found.config["model_type"]
    masked, decoder = kind in OF_ROW, kind in ("openai-gpt", "gpt2")

    @jax.jit
    def compute_outputs(batch):
        inputs = loss.select_inputs(batch)
        read = {key: value for key, value in inputs.items() if key in READ}
        sums, totals = loss.sum_batch(model, params, batch), loss.sum_weights(batch)
        words = model.apply({"params": params}, **(read if masked else inputs))
        hidden = model.apply(
            {"params": params}, **read, method="compute_states" if decoder else "encode"
        )
        return (
            words,
            hidden,
            loss.compute_loss({name: sums[name] / totals[name] for name in loss.loss_terms}),
        )

    words, hidden, value = compute_outputs(found.inputs)
    if masked:
        (words, of_row), (hidden, _) = words, hidden
        if OF_ROW[kind]:
            np.testing.assert_allclose(of_row, found.outputs[OF_ROW[kind]], atol=1e-5)
    there = (
        found.inputs[
            "attention_mask" if masked else "label_weights" if decoder else "encoder_attention_mask"
        ][..., None]
        > 0
    )
    scored = (
        there if kind == "roberta" else True
    )  # its padding has a position of its own in their code
    np.testing.assert_allclose(
        np.where(scored, words, 0),
        np.where(scored, found.outputs["words"], 0),
        rtol=1e-5,
        atol=2e-5,
    )
    np.testing.assert_allclose(
        np.where(there, hidden, 0), np.where(there, found.outputs["hidden"], 0), atol=1e-5
    )
    assert abs(value - found.outputs["loss"]) < 1e-5 * max(1.0, found.outputs["loss"])


@pytest.mark.held_by(1)
@pytest.mark.parametrize("case", [*T5, *TRANSFORMER], indirect=True, ids=str)
def test_greedy_decoding(case):
    """Token by token, up to the end of each row and padding after it."""
    found, _, model, params = case
    written, end = found.outputs["written"], found.outputs["end"].item()
    read = (
        jax.device_put(found.inputs["encoder_token_ids"]),
        jax.device_put(found.inputs["encoder_attention_mask"]),
    )
    assert end in written
    how = {"length": written.shape[1], "start": found.config["decoder_start_token_id"], "end": end}
    np.testing.assert_array_equal(generate(model, params, *read, **how), written)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("case", GPT, indirect=True, ids=str)
def test_greedy_continuation(case):
    """Token by token after rows of different lengths, up to the end of each; padding is ignored."""
    found, _, model, params = case
    written, lengths, end = (
        found.outputs["written"],
        found.outputs["lengths"],
        found.outputs["end"].item(),
    )
    tokens = found.inputs["token_ids"][:, : lengths.max()]
    assert (
        end in written
        and len(set(lengths.tolist())) == len(lengths)
        and (written != end)[:, -1].any()
    )
    how = {"length": written.shape[1], "end": end, "pad": end}
    np.testing.assert_array_equal(
        continue_prompts(model, params, *jax.device_put((tokens, lengths)), **how), written
    )


@pytest.mark.held_by("('bert', True)", "('t5_v1_1', True)", "('gpt2', True)")
def test_export_gives_the_same_tensors_back(case):
    found, _, model, params = case
    tensors = CONVERTERS[found.config["model_type"]].to_hf(model.config, params)
    assert tensors.keys() == found.weights.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, found.weights[name], err_msg=name)
