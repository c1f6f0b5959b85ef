"""A weight decay that changes over the steps: its formula, every optimizer, groups, bad settings."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from data.rows.ramp import Ramp
from pretrain.config import AdamW, Lamb, Lion, Muon, StableAdamW, from_json, load, to_json
from pretrain.settings.overrides import ConfigError
from pretrain.training.optimizers import allow_promotion, make_optimizer
from pretrain.training.optimizers.transforms import find_weight_decay, make_weight_decay_mask
from pretrain.training.schedules import make_learning_rate
from tests.pretrain.training.test_optimizer_groups import draw, flatten

STEPS = 20


def compute_decay(n, start, end, first, last, shape):
    """Return the weight decay of update n + 1 by NumPy."""
    over = min(max((n - first) / (last - first), 0), 1)
    return start + (end - start) * (over if shape == "linear" else np.sin(np.pi * over / 2) ** 2)


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_the_decay_of_an_update_is_its_formula(shape):
    """As DINO's (Caron et al. 2021, section 3.2), half a cosine from 0.04 to 0.4."""
    config = AdamW(weight_decay=0.4, weight_decay_ramp=Ramp(0.04, 3, 13, shape))
    decay = find_weight_decay(config)
    found = [float(decay(n)) for n in range(STEPS)]
    expected = [compute_decay(n, 0.04, 0.4, 3, 13, shape) for n in range(STEPS)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    if shape == "linear":
        theirs = optax.linear_schedule(0.04, 0.4, 10, transition_begin=3)
        np.testing.assert_allclose(
            found, [float(jnp.asarray(theirs(n))) for n in range(STEPS)], rtol=1e-6
        )


@pytest.mark.held_by("AdamW", "StableAdamW", "Muon")
@pytest.mark.parametrize("groups", [(), ("token_*:0.5:0.2",)], ids=["all", "groups"])
@pytest.mark.parametrize("kind", [AdamW, StableAdamW, Lion, Lamb, Muon], ids=lambda k: k.__name__)
def test_each_update_is_the_one_of_a_constant_decay(kind, groups):
    """Each of 20 updates is made by another optimizer, whose constant decay NumPy computes."""
    base = kind(learning_rate=0.05, warmup_steps=0, groups=groups)
    if kind is AdamW:
        base = dataclasses.replace(base, scale_by_param_rms=bool(groups))
    ramp = Ramp(0.5, 2, 15, "cosine")
    ramped = make_optimizer(
        dataclasses.replace(base, weight_decay=0.01, weight_decay_ramp=ramp), STEPS
    )
    params, rng = draw(np.random.default_rng(0)), np.random.default_rng(1)
    expected, state, own = params, ramped.init(params), None
    for n in range(STEPS):
        grads = draw(rng)
        updates, state = ramped.update(grads, state, params)
        params = jax.tree.map(jnp.add, params, updates)
        decay = compute_decay(n, 0.5, 0.01, 2, 15, "cosine")
        constant = make_optimizer(dataclasses.replace(base, weight_decay=decay), STEPS)
        own = constant.init(expected) if own is None else own
        updates, own = constant.update(grads, own, expected)
        expected = jax.tree.map(jnp.add, expected, updates)
    expected = flatten(expected)
    for path, leaf in flatten(params).items():
        np.testing.assert_allclose(leaf, expected[path], rtol=1e-5, atol=1e-6, err_msg=path)


def test_a_constant_decay_keeps_its_program_and_its_state():
    """Without a ramp AdamW traces to the program of `optax.adamw` with a number."""
    config = AdamW(learning_rate=0.1, warmup_steps=0, max_grad_norm=0.0, weight_decay=0.3)
    params = draw(np.random.default_rng(0))
    ramped = dataclasses.replace(config, weight_decay_ramp=Ramp(0.5, 0, 9))
    optax_adamw = optax.adamw(
        make_learning_rate(config, STEPS),
        *(config.beta1, config.beta2, config.epsilon),
        weight_decay=0.3,
        mask=make_weight_decay_mask,
    )
    plain = allow_promotion(optax.chain(optax.identity(), optax_adamw))
    optimizers = plain, make_optimizer(config, STEPS), make_optimizer(ramped, STEPS)
    states = [optimizer.init(params) for optimizer in optimizers]
    texts = [
        str(jax.make_jaxpr(optimizer.update)(params, state, params))
        for optimizer, state in zip(optimizers, states)
    ]
    assert texts[0] == texts[1] != texts[2]
    plain, constant, ramped = (jax.tree.structure(state) for state in states)
    assert plain == constant and ramped.num_leaves == constant.num_leaves + 1


def test_words_set_a_ramp_and_json_keeps_it():
    words = ["weight_decay_ramp.start=0.04", "weight_decay_ramp.last_step=100", "weight_decay=0.4"]
    run = load("bert_tiny", [f"optimizer.{word}" for word in words])
    assert isinstance(run.optimizer, AdamW) and run.optimizer.weight_decay_ramp == Ramp(
        0.04, 0, 100
    )
    assert from_json(to_json(run)) == run
    tree = json.loads(to_json(load("bert_tiny")))
    del tree["optimizer"]["weight_decay_ramp"]  # as 0.2.0 wrote it
    assert from_json(json.dumps(tree)) == load("bert_tiny")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("start=0.1", "a ramp from step 0 to step 0 ends before it begins"),
        ("start=-0.1 last_step=9", "Ramp.start is -0.1; it must be at least 0"),
        ("start=0.1 last_step=9 shape=sine", "weight_decay_ramp.shape: 'sine' is not one of"),
    ],
)
def test_a_ramp_that_cannot_be_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        load("bert_tiny", [f"optimizer.weight_decay_ramp.{word}" for word in words.split()])
    with pytest.raises(ConfigError, match="Adafactor has no 'weight_decay_ramp'"):
        load("bert_tiny", ["optimizer=adafactor", "optimizer.weight_decay_ramp.start=0.1"])
