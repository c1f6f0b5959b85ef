"""LSTM layers: the equations in numpy, `torch.nn.LSTM`, padding, direction and carried state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.recurrent.lstm import Lstm, LstmState

B, L, D, C, H = 3, 7, 5, 6, 4
X = np.random.default_rng(0).normal(size=(B, L, D)).astype(np.float32)
MASK = (np.arange(L) < np.array([[7], [4], [1]])).astype(np.int32)


def make_params(layer, seed=0):
    """Return parameters none of which is 0, so that biases have a part."""
    params = layer.init(jax.random.key(0), X)["params"]
    leaves, tree = jax.tree.flatten(params)
    random = np.random.default_rng(seed)
    return jax.tree.unflatten(tree, [random.normal(size=leaf.shape) * 0.5 for leaf in leaves])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def read_row(params, x_LD, clip=np.inf, forget_bias=0.0):
    """Return (outputs [L, H], cells [C]) of one row, in float64, position by position."""
    bias, projection = params["input"]["bias"], params.get("project")
    c, h = np.zeros(C), np.zeros(C if projection is None else H)
    outputs = []
    for x in np.asarray(x_LD, np.float64):
        i, f, g, o = np.split(
            x @ params["input"]["kernel"] + h @ params["recurrent"]["kernel"] + bias, 4
        )
        c = sigmoid(f + forget_bias) * c + sigmoid(i) * np.tanh(g)
        c = np.clip(c, -clip, clip)
        h = sigmoid(o) * np.tanh(c)
        if projection is not None:
            h = np.clip(h @ projection["kernel"], -clip, clip)
        outputs.append(h)
    return np.array(outputs), c


@pytest.mark.fast
@pytest.mark.parametrize("projection", [None, H])
@pytest.mark.parametrize("clip", [None, 0.25])
@pytest.mark.slow
def test_outputs_and_state_are_those_of_the_equations(projection, clip):
    layer = Lstm(C, projection, clip, forget_bias=1.0)
    params = make_params(layer)
    outputs, state = layer.apply({"params": params}, X)
    for row in range(B):
        h_LH, c = read_row(params, X[row], clip or np.inf, forget_bias=1.0)
        np.testing.assert_allclose(outputs[row], h_LH, atol=2e-6)
        np.testing.assert_allclose(state.cells_BC[row], c, atol=2e-6)
        np.testing.assert_allclose(state.output_BH[row], h_LH[-1], atol=2e-6)
    if clip is not None:
        assert np.abs(state.cells_BC).max() == np.float32(clip)


@pytest.mark.fast
@pytest.mark.parametrize("reverse", [False, True])
def test_padding_changes_nothing(reverse):
    layer = Lstm(C, H, reverse=reverse)
    params = make_params(layer)
    outputs, state = layer.apply({"params": params}, X, attention_mask=MASK)
    for row, length in enumerate(MASK.sum(-1)):
        x = X[row, :length][::-1] if reverse else X[row, :length]
        h_LH, c = read_row(params, x)
        h_LH = h_LH[::-1] if reverse else h_LH
        np.testing.assert_allclose(outputs[row, :length], h_LH, atol=2e-6)
        assert not np.asarray(outputs[row, length:]).any()
        np.testing.assert_allclose(state.cells_BC[row], c, atol=2e-6)


@pytest.mark.fast
def test_two_halves_with_the_state_between_are_one_row():
    layer = Lstm(C)
    params = {"params": make_params(layer)}
    whole, last = layer.apply(params, X)
    first, state = layer.apply(params, X[:, :3])
    second, state = layer.apply(params, X[:, 3:], state)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), state, last)


@pytest.mark.fast
def test_the_state_is_float32_in_bfloat16():
    layer = Lstm(C, H)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), make_params(layer))
    outputs, state = layer.apply({"params": params}, X.astype(jnp.bfloat16))
    assert outputs.dtype == jnp.bfloat16
    assert isinstance(state, LstmState)
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype(jnp.float32)}


@pytest.mark.more
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("projection", [None, H])
def test_outputs_and_gradients_are_those_of_torch(projection):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    layer = Lstm(C, projection)
    params = make_params(layer)
    theirs = torch.nn.LSTM(D, C, batch_first=True, proj_size=projection or 0)
    weights = {
        "weight_ih_l0": params["input"]["kernel"].T,
        "weight_hh_l0": params["recurrent"]["kernel"].T,
        "bias_ih_l0": params["input"]["bias"],
        "bias_hh_l0": np.zeros(4 * C),
    }
    if projection:
        weights["weight_hr_l0"] = params["project"]["kernel"].T
    theirs.load_state_dict(
        {name: torch.tensor(value, dtype=torch.float32) for name, value in weights.items()}
    )
    x = torch.tensor(X, requires_grad=True)
    expected, (h, c) = theirs(x)
    expected.square().sum().backward()
    outputs, state = layer.apply({"params": params}, X)
    np.testing.assert_allclose(outputs, expected.detach().numpy(), atol=2e-6)
    np.testing.assert_allclose(state.output_BH, h[0].detach().numpy(), atol=2e-6)
    np.testing.assert_allclose(state.cells_BC, c[0].detach().numpy(), atol=2e-6)

    def sum_squares(params, x):
        return (layer.apply({"params": params}, x)[0] ** 2).sum()

    to_params, to_x = jax.grad(sum_squares, argnums=(0, 1))(params, X)
    np.testing.assert_allclose(to_x, x.grad.numpy(), atol=1e-5)
    np.testing.assert_allclose(
        to_params["recurrent"]["kernel"].T, theirs.weight_hh_l0.grad.numpy(), atol=1e-5
    )


@pytest.mark.fast
def test_kernels_begin_within_the_bounds_of_torch():
    layer = Lstm(100, projection=50)
    params = layer.init(jax.random.key(0), np.zeros((1, 1, 100), np.float32))["params"]
    for name in ("input", "recurrent", "project"):
        largest = np.abs(params[name]["kernel"]).max()
        assert 0.0999 < largest <= 0.1 + 1e-7
