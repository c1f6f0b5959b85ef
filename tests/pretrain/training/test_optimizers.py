"""Optimizers: schedules against hand-made values, weight decay by parameter, one AdamW step against
its formula.
"""

import dataclasses
import inspect
import pathlib
import typing

import jax.numpy as jnp
import numpy as np
import pytest

from pretrain import settings as schema
from pretrain.config import Adafactor, AdamW, Lamb
from pretrain.settings.overrides import ConfigError
from pretrain.training import optimizers
from pretrain.training.optimizers import make_optimizer
from pretrain.training.optimizers.transforms import make_weight_decay_mask
from pretrain.training.schedules import SCHEDULES, make_learning_rate, make_schedule


def test_linear_schedule():
    rate = make_learning_rate(AdamW(learning_rate=2.0, warmup_steps=4), 10)
    np.testing.assert_allclose(
        [rate(n) for n in range(10)], [0.5, 1, 1.5, 2, 2, 5 / 3, 4 / 3, 1, 2 / 3, 1 / 3], rtol=1e-6
    )


def test_linear_schedule_may_end_above_zero():
    rate = make_learning_rate(AdamW(learning_rate=1.0, warmup_steps=0, end_lr_ratio=0.5), 4)
    np.testing.assert_allclose([rate(n) for n in range(5)], [1, 0.875, 0.75, 0.625, 0.5], rtol=1e-6)


def test_cosine_schedule():
    """Half a cosine from the end of the warm-up to a tenth, where it stays (Brown et al. 2020,
    appendix B).
    """
    rate = make_learning_rate(
        AdamW(learning_rate=2.0, warmup_steps=2, end_lr_ratio=0.1, decay="cosine", decay_steps=10),
        20,
    )
    expected = [
        1.0,
        2.0,
        *(2 * (0.1 + 0.9 * (1 + np.cos(np.pi * t / 8)) / 2) for t in range(8)),
        *[0.2] * 10,
    ]
    np.testing.assert_allclose([rate(n) for n in range(20)], expected, rtol=1e-6)
    to_the_end = make_learning_rate(AdamW(learning_rate=2.0, warmup_steps=2, decay="cosine"), 10)
    np.testing.assert_allclose(to_the_end(6), 1.0, rtol=1e-6)
    assert to_the_end(9) > 0


def test_warmup_longer_than_the_run_still_climbs():
    rates = [
        float(make_learning_rate(AdamW(learning_rate=1.0, warmup_steps=100), 5)(n))
        for n in range(5)
    ]
    assert all(np.isfinite(rates)) and rates == sorted(rates) and rates[0] > 0


def test_inverse_square_root_as_t5():
    rate = make_learning_rate(Adafactor(), 1_000_000)
    np.testing.assert_allclose([rate(0), rate(9_999), rate(40_000)], [0.01, 0.01, 0.005], rtol=1e-4)
    linear = make_learning_rate(Adafactor(learning_rate=0.3, warmup_steps=2, decay="linear"), 6)
    np.testing.assert_allclose(
        [linear(n) for n in range(6)], [0.15, 0.3, 0.3, 0.225, 0.15, 0.075], rtol=1e-6
    )


def test_inverse_square_root_as_the_transformer():
    """Vaswani et al. 2017, equation 3: D^-0.5 * min(s^-0.5, s * warmup^-1.5) at update s, the first
    being 1.
    """
    rate = make_learning_rate(
        AdamW(learning_rate=(512 * 4000) ** -0.5, warmup_steps=4000, decay="inverse_square_root"),
        100,
    )
    steps = np.array([1, 2, 100, 3999, 4000, 4001, 16_000, 100_000])
    np.testing.assert_allclose(
        [rate(s - 1) for s in steps],
        512**-0.5 * np.minimum(steps**-0.5, steps * 4000**-1.5),
        rtol=1e-5,
    )
    cold = make_learning_rate(
        AdamW(learning_rate=1.0, warmup_steps=0, decay="inverse_square_root"), 100
    )
    np.testing.assert_allclose([cold(0), cold(3)], [1.0, 0.5], rtol=1e-6)


def test_neither_biases_nor_norms_nor_relative_positions_decay():
    params = {
        "a": {"kernel": jnp.ones(1), "bias": jnp.ones(1)},
        "norm": {"scale": jnp.ones(1), "bias": jnp.ones(1)},
        "encoder_bias": {"table": jnp.ones(1)},
        "attention": {"position_bias": jnp.ones(1)},
        "words": {"embedding": jnp.ones(1)},
    }
    assert make_weight_decay_mask(params) == {
        "a": {"kernel": True, "bias": False},
        "norm": {"scale": False, "bias": False},
        "encoder_bias": {"table": False},
        "attention": {"position_bias": False},
        "words": {"embedding": True},
    }


@pytest.mark.parametrize(("clip", "relative"), [(1.0, False), (0.0, False), (1.0, True)])
def test_adamw_is_its_formula(clip, relative):
    """Two updates by numpy, from Loshchilov and Hutter 2019, algorithm 2, after clipping by the
    global norm.

    Relative: each update times its parameter's root mean square (Shazeer and Stern 2018, section
    8).

    Only the first gradient is long enough to be clipped: Adam does not see a factor that all
    gradients share.
    """
    config = AdamW(
        learning_rate=0.1,
        warmup_steps=0,
        weight_decay=0.01,
        max_grad_norm=clip,
        scale_by_param_rms=relative,
    )
    optimizer = make_optimizer(config, 10)
    params = {"kernel": jnp.array([1.0, -2.0]), "bias": jnp.array([0.5])}
    state, w, b, m, v = (
        optimizer.init(params),
        np.array([1.0, -2.0]),
        np.array([0.5]),
        np.zeros(3),
        np.zeros(3),
    )
    for n, g in enumerate((np.array([3.0, 0.0, 4.0]), np.array([-0.3, 0.2, 0.1]))):
        grads = {"kernel": jnp.asarray(g[:2], jnp.float32), "bias": jnp.asarray(g[2:], jnp.float32)}
        updates, state = optimizer.update(grads, state, params)
        params = {name: params[name] + updates[name] for name in params}
        if clip:
            g = g / max(1, np.linalg.norm(g) / clip)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = (m / (1 - 0.9 ** (n + 1))) / (np.sqrt(v / (1 - 0.999 ** (n + 1))) + 1e-6)
        rate = 0.1 * (10 - n) / 10
        sizes = [max(np.sqrt((x * x).mean()), 1e-3) if relative else 1.0 for x in (w, b)]
        w, b = w - rate * (sizes[0] * step[:2] + 0.01 * w), b - rate * sizes[1] * step[2:]
    np.testing.assert_allclose(params["kernel"], w, rtol=1e-5)
    np.testing.assert_allclose(params["bias"], b, rtol=1e-5)


def test_lamb_is_its_formula():
    """Two updates by NumPy, from You et al. 2020, algorithm 2: each scanned layer by itself, a bias
    as in Adam.
    """
    config = Lamb(learning_rate=0.1, warmup_steps=0, weight_decay=0.5, max_grad_norm=0.0)
    optimizer, rng = make_optimizer(config, 10), np.random.default_rng(0)
    names = {
        "layers/kernel": (3, 4, 2),
        "layer/kernel": (3, 4),
        "layer/bias": (4,),
        "zero/kernel": (2, 2),
    }
    weights = {
        name: rng.standard_normal(shape) * (name != "zero/kernel") for name, shape in names.items()
    }

    def make_tree(leaves):
        parts = {name.split("/")[0]: {} for name in leaves}
        for name, leaf in leaves.items():
            parts[name.split("/")[0]][name.split("/")[1]] = jnp.asarray(leaf, jnp.float32)
        return parts

    params = make_tree(weights)
    state, m, v = optimizer.init(params), dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for n in range(2):
        grads = {name: rng.standard_normal(shape) for name, shape in names.items()}
        updates, state = optimizer.update(make_tree(grads), state, params)
        params = {
            part: {name: params[part][name] + updates[part][name] for name in params[part]}
            for part in params
        }
        for name, g in grads.items():
            m[name], v[name] = 0.9 * m[name] + 0.1 * g, 0.999 * v[name] + 0.001 * g * g
            r = (m[name] / (1 - 0.9 ** (n + 1))) / (
                np.sqrt(v[name] / (1 - 0.999 ** (n + 1))) + 1e-6
            )
            w, rate = weights[name], 0.1 * (10 - n) / 10
            if name.endswith("kernel"):
                r = r + 0.5 * w
                for layer in range(3) if name.startswith("layers") else (slice(None),):
                    length = np.linalg.norm(w[layer])
                    r[layer] = r[layer] * (length / np.linalg.norm(r[layer]) if length else 1.0)
            weights[name] = w - rate * r
    for name, expected in weights.items():
        part, leaf = name.split("/")
        np.testing.assert_allclose(params[part][leaf], expected, rtol=1e-4, err_msg=name)


def test_lambs_updates_have_the_length_of_the_rate():
    """The update's norm is bounded however large the gradient, which is why it works with batches
    of thousands.
    """
    optimizer = make_optimizer(Lamb(learning_rate=0.01, warmup_steps=0), 100)
    params = {"a": {"kernel": jnp.full((4, 4), 3.0)}, "b": {"kernel": jnp.full((2, 2), 1e-3)}}
    for size in (1e-4, 1e4):
        grads = {name: {"kernel": jnp.full_like(params[name]["kernel"], size)} for name in params}
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        for name in params:
            step, weight = (np.linalg.norm(tree[name]["kernel"]) for tree in (updates, params))
            np.testing.assert_allclose(step, 0.01 * weight, rtol=1e-5)


def test_lambs_rate_is_linear():
    rate = make_learning_rate(Lamb(learning_rate=2.0, warmup_steps=4), 10)
    np.testing.assert_allclose(
        [rate(n) for n in range(10)], [0.5, 1, 1.5, 2, 2, 5 / 3, 4 / 3, 1, 2 / 3, 1 / 3], rtol=1e-6
    )


def test_adafactor_is_its_formula():
    """Three updates by NumPy, from Shazeer and Stern 2018, algorithms 4 and 5 and section 8: each
    scanned layer by itself.
    """
    config = Adafactor(learning_rate=0.5, warmup_steps=2, clipping_threshold=0.8)
    optimizer, rng = make_optimizer(config, 10), np.random.default_rng(0)
    shapes = {"layers": (3, 128, 130), "layer": (128, 130), "small": (3, 5)}
    scales = {"layers": np.array([1e-4, 0.01, 10]).reshape(3, 1, 1), "layer": 0.1, "small": 1.0}
    weights = {name: scales[name] * rng.standard_normal(shapes[name]) for name in shapes}

    def make_tree(leaves):
        return {name: {"kernel": jnp.asarray(leaf, jnp.float32)} for name, leaf in leaves.items()}

    params = make_tree(weights)
    state, sums = optimizer.init(params), {}
    for n in range(3):
        grads = {
            name: rng.standard_normal(shapes[name]) * np.exp(rng.normal(size=shapes[name]))
            for name in shapes
        }
        updates, state = optimizer.update(make_tree(grads), state, params)
        params = {
            name: {"kernel": params[name]["kernel"] + updates[name]["kernel"]} for name in params
        }
        for name, grad in grads.items():
            squares, beta = grad * grad + 1e-30, 1 - (n + 1) ** -0.8
            if name == "small":
                sums[name] = beta * sums.get(name, 0.0) + (1 - beta) * squares
                second = sums[name]
            else:
                rows, columns = sums.get(name, (0.0, 0.0))
                rows = beta * rows + (1 - beta) * squares.mean(-1, keepdims=True)
                columns = beta * columns + (1 - beta) * squares.mean(-2, keepdims=True)
                sums[name] = rows, columns
                second = rows * columns / rows.mean(-2, keepdims=True)
            step, rate = grad / np.sqrt(second), 0.5 / np.sqrt(max(n, 2))
            for i in range(3) if name == "layers" else (...,):
                size = np.sqrt((step[i] ** 2).mean())
                weight = weights[name][i]
                length = max(1e-3, np.sqrt((weight**2).mean()))
                weights[name][i] -= rate * length * step[i] / max(1, size / 0.8)
    for name, expected in weights.items():
        actual = params[name]["kernel"] / scales[name]
        np.testing.assert_allclose(actual, expected / scales[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "config",
    [Adafactor(), AdamW(scale_by_param_rms=True), Lamb()],
    ids=["adafactor", "relative adamw", "lamb"],
)
def test_scanned_layers_are_updated_like_layers(config):
    """Two updates of a stack of three layers of different sizes, scanned and not."""
    optimizer, rng = make_optimizer(config, 10), np.random.default_rng(0)
    sizes = np.array([1e-4, 0.1, 10], np.float32).reshape(3, 1, 1)
    draw = lambda: jnp.asarray(rng.standard_normal((3, 128, 128)) * sizes, jnp.float32)  # noqa: E731

    def split(stack):
        return {f"layer_{i}": {"kernel": stack[i]} for i in range(3)}

    scanned = draw()
    layers, state = split(scanned), optimizer.init({"layers": {"kernel": scanned}})
    layer_state = optimizer.init(layers)
    for grad in (draw(), draw()):
        updates, state = optimizer.update(
            {"layers": {"kernel": grad}}, state, {"layers": {"kernel": scanned}}
        )
        layer_updates, layer_state = optimizer.update(split(grad), layer_state, layers)
        scanned = scanned + updates["layers"]["kernel"]
        layers = {
            name: {"kernel": layers[name]["kernel"] + layer_updates[name]["kernel"]}
            for name in layers
        }
    for i in range(3):
        np.testing.assert_allclose(scanned[i], layers[f"layer_{i}"]["kernel"], rtol=1e-5)


# ---- one declaration each ----------------------------------------------------


def test_an_unknown_optimizer_is_an_error_that_names_it():
    @dataclasses.dataclass(frozen=True)
    class Sgd(AdamW):
        pass

    with pytest.raises(ConfigError, match="no optimizer is built from Sgd: there is no .*/sgd.py"):
        make_optimizer(Sgd(), 10)


def test_an_optimizer_is_a_class_and_a_file():
    """Each optimizer that a run may name is built in one file, and no other file builds one."""
    kinds = {kind.__name__.lower() for kind in typing.get_args(schema.Optimizer)}
    folder = pathlib.Path(inspect.getfile(optimizers)).parent
    assert kinds == {
        path.stem for path in folder.glob("*.py") if "\ndef build(" in path.read_text()
    }


def test_every_decay_is_a_schedule_of_that_name():
    named = set()
    for kind in typing.get_args(schema.Optimizer):
        decay = typing.get_type_hints(kind)["decay"]
        named |= {kind.decay} if decay == typing.ClassVar[str] else {*typing.get_args(decay)}
    assert named == SCHEDULES.keys()
    with pytest.raises(
        ConfigError, match="no schedule is named 'sine'; the schedules are linear, cosine"
    ):
        make_schedule("sine", peak=1.0)


def test_any_quantity_may_follow_a_schedule():
    """The mask rate falls from 0.3 to 0.15, for example."""
    rate = make_schedule("linear", peak=0.3, warmup_steps=0, decay_steps=4, end_ratio=0.5)
    np.testing.assert_allclose([rate(n) for n in (0, 2, 4, 9)], [0.3, 0.225, 0.15, 0.15], rtol=1e-6)
