"""Schedules that end in a cooldown, or stay constant, against NumPy, `transformers` and optax."""

import json
import typing

import jax
import numpy as np
import optax
import pytest

from pretrain import settings as schema
from pretrain.config import AdamW, Lamb, from_json, load, to_json
from pretrain.settings.overrides import ConfigError
from pretrain.training.schedules import BENDS, make_learning_rate

SHAPES = {
    "linear": lambda over: 1 - over,
    "cosine": lambda over: np.cos(np.pi * over / 2) ** 2,
    "1-sqrt": lambda over: 1 - np.sqrt(over),
}


def list_rates(config: schema.Optimizer, steps: int, count: int) -> np.ndarray:
    return np.array(jax.vmap(make_learning_rate(config, steps))(np.arange(count)))


@pytest.mark.parametrize("shape", SHAPES)
def test_wsd_rises_stays_and_cools_down(shape):
    """Warm-up of 4 updates, the peak up to update 16, a cooldown of 8, and the end from 24 on."""
    config = AdamW(2.0, 4, end_lr_ratio=0.1, decay="wsd", cooldown_steps=8, cooldown_shape=shape)
    cooldown = [2 * (0.1 + 0.9 * SHAPES[shape](over / 8)) for over in range(8)]
    expected = [0.5, 1, 1.5, 2, *[2] * 12, *cooldown, *[0.2] * 6]
    np.testing.assert_allclose(list_rates(config, 24, 30), expected, rtol=1e-6)


def test_the_cooldown_of_wsd_is_a_tenth_of_the_steps():
    """Hu et al. (2024), section 4.2: a tenth of all steps is enough."""
    rates = list_rates(AdamW(1.0, 2, decay="wsd", cooldown_shape="linear"), 40, 42)
    np.testing.assert_allclose(rates[36:], [1, 0.75, 0.5, 0.25, 0, 0], rtol=1e-6)
    assert (rates[1:36] == 1).all()
    ended = list_rates(AdamW(1.0, 2, decay="wsd", decay_steps=20, cooldown_steps=5), 40, 40)
    assert (ended[20:] == 0).all() and (ended[:15] > 0).all()


def test_constant_stays_at_the_peak_without_an_end():
    rates = list_rates(Lamb(3.0, 3, end_lr_ratio=0.5, decay="constant"), 10, 20)
    np.testing.assert_allclose(rates, [1, 2, *[3] * 18], rtol=1e-6)
    assert (list_rates(Lamb(3.0, 0, decay="constant"), 10, 20) == 3).all()


def test_every_optimizer_has_every_decay():
    decays = {"linear", "cosine", "inverse_square_root", "constant", "wsd"}
    for kind in typing.get_args(schema.Optimizer):
        hints = typing.get_type_hints(kind)
        assert {*typing.get_args(hints["decay"])} >= decays, kind
        assert {*typing.get_args(hints["cooldown_shape"])} == BENDS.keys() == SHAPES.keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "optimizer.warmup_steps=95 train.steps=100",
            "optimizer.warmup_steps=95 and a cooldown of 10 steps exceed the 100 steps of the",
        ),
        ("optimizer.cooldown_steps=2000", "a cooldown of 2,000 steps exceed the 1,500 steps"),
        ("optimizer.decay_steps=90", "a cooldown of 9 steps exceed the 90 steps"),
        ("optimizer.cooldown_steps=-1", "AdamW.cooldown_steps is -1; it must be at least 0"),
        ("optimizer.learning_rate=-1e-3", "AdamW.learning_rate is -0.001; it must be at least 0"),
        ("optimizer.cooldown_shape=sqrt", "optimizer.cooldown_shape: 'sqrt' is not one of"),
    ],
)
def test_a_schedule_that_does_not_fit_the_run_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        load("bert_tiny", ["optimizer.decay=wsd", *arguments.split()])


def test_a_workdir_from_before_the_cooldown_is_read():
    """A config.json of 0.2.0 has fewer fields of the schedule."""
    run = load("t5_base", ["optimizer=adafactor"])
    tree = json.loads(to_json(run))
    for name in ("end_lr_ratio", "decay_steps", "cooldown_steps", "cooldown_shape"):
        del tree["optimizer"][name]
    assert from_json(json.dumps(tree)) == run and run.optimizer.decay == "rsqrt"


@pytest.mark.more
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("min_ratio", [0.0, 0.1])
def test_wsd_equals_transformers(shape, min_ratio):
    """Their update n has the rate of warm-up n, ours of n + 1; from then on they are equal."""
    torch = pytest.importorskip("torch")
    get_wsd_schedule = pytest.importorskip("transformers.optimization").get_wsd_schedule
    rule = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    theirs = get_wsd_schedule(
        rule, 10, 30, num_training_steps=100, decay_type=shape, min_lr_ratio=min_ratio
    ).lr_lambdas[0]
    config = AdamW(
        3e-4,
        10,
        end_lr_ratio=min_ratio,
        decay="wsd",
        cooldown_steps=30,
        cooldown_shape=shape,
    )
    rates = list_rates(config, 100, 110)
    expected = np.array([theirs(n) for n in range(111)])
    # float32 rounds the cosine, a number near 1, by 6e-8.
    np.testing.assert_allclose(rates[10:], 3e-4 * expected[10:110], rtol=1e-6, atol=3e-4 * 1.2e-7)
    if not min_ratio:  # theirs rises from the ratio of the end
        np.testing.assert_allclose(rates[:10], 3e-4 * expected[1:11], rtol=2e-6)


@pytest.mark.more
@pytest.mark.parametrize("decay", ["linear", "cosine", "constant", "wsd"])
def test_schedules_equal_optax(decay):
    config = AdamW(0.5, 0, 0.2, decay, cooldown_steps=12, cooldown_shape="linear")
    expected = {
        "linear": optax.linear_schedule(0.5, 0.1, 40),
        "cosine": optax.cosine_decay_schedule(0.5, 40, alpha=0.2),
        "constant": optax.constant_schedule(0.5),
        "wsd": optax.linear_schedule(0.5, 0.1, 12, transition_begin=28),
    }[decay]
    expected_rates = np.array([expected(n) for n in range(45)])
    np.testing.assert_allclose(list_rates(config, 40, 45), expected_rates, rtol=1e-6)
