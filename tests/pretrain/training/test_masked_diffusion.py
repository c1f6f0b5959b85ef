"""The loss of masked diffusion: BERT's at a fixed rate, and its mean over all tokens in evaluation."""

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import MaskedDiffusion, MaskedLm
from data.pipeline import Stream
from models import build
from models.config.bert import BertConfig
from pretrain.config import Mesh
from pretrain.mesh.sharding import make_mesh
from pretrain.training.evaluation import make_evaluator
from pretrain.training.losses import make_loss
from tests import markov
from tests.pretrain.workdirs import draw_params

BERT = BertConfig(vocab=10, length=16, width=8, depth=1, num_heads=2, mlp=8)


@pytest.fixture(scope="module")
def given():
    """Return (model, its parameters, a store of letters)."""
    texts = markov.draw_texts(np.random.default_rng(0), 40, 6)
    return build(BERT), draw_params(BERT), markov.LetterStore(texts)


def make_stream(store, split="train", **settings):
    objective = MaskedDiffusion(length=8, rows="documents", **settings)
    return Stream(store, Data(objective=objective, batch_size=16), split=split)


def test_at_a_fixed_rate_the_loss_is_berts(given):
    model, params, store = given
    stream = make_stream(store, least_rate=0.25, most_rate=0.25)
    batch = stream.build_batch(0)
    masked = batch["label_weights"] > 0
    np.testing.assert_array_equal(batch["label_weights"], 4 * masked)
    plain = {key: array for key, array in batch.items() if key != "text_weights"}
    plain["label_weights"] = masked.astype(np.float32)
    berts = make_loss(MaskedLm(length=8, max_predictions=6))
    ours = make_loss(stream.objective)

    def compute(loss, name, params, batch):
        return jax.value_and_grad(lambda params: loss.sum_batch(model, params, batch)[name])(params)

    @jax.jit
    def compute_both(params, batch, plain):
        return (
            compute(ours, "masked_diffusion", params, batch),
            compute(berts, "masked_lm", params, plain),
        )

    (our_sum, our_gradient), (bert_sum, bert_gradient) = compute_both(params, batch, plain)
    np.testing.assert_allclose(our_sum, 4 * bert_sum, rtol=1e-6)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, 4 * other, rtol=1e-4, atol=1e-5),
        our_gradient,
        bert_gradient,
    )
    # A quarter of the tokens is expected to be masked, so the means agree as well.
    assert ours.sum_weights(batch)["masked_diffusion"] == 16 * 6


def test_an_evaluation_is_a_bound_for_each_token(given):
    """Against a loop over the rows, with scores of each row alone."""
    model, params, store = given
    stream = make_stream(store, split="heldout")
    mesh = make_mesh(Mesh(1), jax.devices()[:1])
    loss = make_loss(stream.objective)
    scores = make_evaluator(model, loss, mesh, compute_dtype="float32")(params, stream)
    apply, total = jax.jit(model.apply), 0.0
    for index in range(stream.num_evaluation_batches):
        batch = stream.build_evaluation_batch(index)
        keys = ("token_ids", "attention_mask", "masked_positions")
        logits, _ = apply({"params": params}, **{key: batch[key] for key in keys})
        shares = np.exp(np.asarray(logits, np.float64))
        log_p = np.log(shares / shares.sum(axis=-1, keepdims=True))
        for b, p in np.argwhere(batch["label_weights"] > 0):
            k = (batch["label_weights"][b] > 0).sum()
            total -= 6 / k * log_p[b, p, batch["labels"][b, p]]
    assert scores["targets"] == 40 * 6
    np.testing.assert_allclose(scores["loss"], total / (40 * 6), rtol=1e-4)
    np.testing.assert_allclose(scores["perplexity"], np.exp(scores["loss"]), rtol=1e-6)
