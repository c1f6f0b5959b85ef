"""The z-loss of a vocabulary equals its formula, whole and in chunks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.config import Mesh
from pretrain.mesh.sharding import make_mesh
from pretrain.settings.overrides import ConfigError
from pretrain.training.cross_entropy import token_cross_entropy
from pretrain.training.program import make_loss_options, make_program

COEFFICIENT = 0.03


def compute_reference(hidden, table, targets, weights):
    """Return the loss and its gradient for the hidden states, float64 (Chowdhery et al. 2022)."""
    scores = hidden @ table
    log_z = np.log(np.exp(scores).sum(-1))
    chosen = np.take_along_axis(scores, targets[..., None], -1)[..., 0]
    loss = ((log_z - chosen + COEFFICIENT * log_z**2) * weights).sum()
    probabilities = np.exp(scores - log_z[..., None])
    d_scores = probabilities * (1 + 2 * COEFFICIENT * log_z)[..., None]
    np.put_along_axis(
        d_scores,
        targets[..., None],
        np.take_along_axis(d_scores, targets[..., None], -1) - 1,
        -1,
    )
    return loss, (d_scores * weights[..., None]) @ table.T


@pytest.mark.parametrize("max_scores", [1e9, 60], ids=["whole", "in chunks"])
def test_z_loss_is_its_formula(max_scores):
    rng = np.random.default_rng(0)
    hidden, table = rng.standard_normal((2, 7, 5)), rng.standard_normal((5, 20))
    targets = rng.integers(0, 20, (2, 7))
    weights = (rng.random((2, 7)) < 0.7).astype(np.float32)

    def compute_loss(hidden_BTD):
        return token_cross_entropy(
            lambda y: y @ jnp.asarray(table, jnp.float32),
            hidden_BTD,
            jnp.asarray(targets, jnp.int32),
            jnp.asarray(weights),
            max_scores=max_scores,
            z_loss=COEFFICIENT,
        )[0]

    loss, gradient = jax.value_and_grad(compute_loss)(jnp.asarray(hidden, jnp.float32))
    expected, expected_gradient = compute_reference(hidden, table, targets, weights)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-5)


def test_a_run_hands_its_z_loss_on(runs):
    run = runs["bert"]
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, z_loss=1e-4))
    mesh = make_mesh(Mesh(), jax.devices()[:1])
    assert make_loss_options(run, mesh, lambda x: x, 1.0, {}).z_loss == 1e-4
    with pytest.raises(ConfigError, match="Train.z_loss is -1"):
        dataclasses.replace(run.train, z_loss=-1.0)


def test_classes_have_no_z_loss(runs):
    run = runs["classifier"]
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, z_loss=1e-4))
    with pytest.raises(ConfigError, match="z_loss=0.0001: classification predicts no tokens"):
        make_program(run, make_mesh(Mesh(), jax.devices()[:1]))
