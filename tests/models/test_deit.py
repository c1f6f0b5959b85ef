"""DeiT with its distillation token: the published sizes, and transformers' logits of both heads."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.base import Pixels
from models.config.deit import DeitConfig
from models.layers.ops import PLAIN, attend
from models.vit import resize_positions
from tests.models.image_peers import compute_their_outputs, convert_back, draw_params, draw_pixels
from tests.models.test_vit import TINY as VIT
from tests.models.test_vit import run_model

TINY = DeitConfig(image_size=12, patch_size=4, width=24, depth=2, num_heads=3, mlp=40, classes=7)
SETTINGS = {
    "default": {},
    "no_bias_of_qkv": {"qkv_bias": False, "scan": False},
    "brightness": {"pixels": Pixels(mean=(0.13,), std=(0.3,)), "patch_size": 3},
}


@pytest.mark.more
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_logits_are_those_of_transformers(settings):
    """Of each head, and their mean."""
    pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    config = dataclasses.replace(TINY, **settings)
    model, params = draw_params(config)
    pixels = draw_pixels(config)
    theirs = compute_their_outputs(config, params, pixels)
    by_class, by_distillation = run_model(model, params, pixels, method="compute_both")
    assert theirs["logits"].std() > 0.1
    assert np.abs(theirs["cls_logits"] - theirs["distillation_logits"]).max() > 0.1
    for ours, name in (
        (run_model(model, params, pixels), "logits"),
        (by_class, "cls_logits"),
        (by_distillation, "distillation_logits"),
    ):
        np.testing.assert_allclose(ours, theirs[name], atol=1e-5, rtol=1e-5)


def test_a_conversion_and_back_changes_no_parameter():
    _, params = draw_params(TINY)
    found, report = convert_back(TINY, params)
    assert report.missing == report.unused == ()
    jax.tree.map(np.testing.assert_array_equal, found, params)


def test_positions_of_both_tokens_stay():
    _, params = draw_params(TINY)
    table = params["embeddings"]["position_embedding"]["embedding"]
    found = resize_positions(params, TINY, 20)[0]["embeddings"]["position_embedding"]["embedding"]
    assert found.shape == (27, 24)
    np.testing.assert_array_equal(found[:2], table[:2])


# ---- as every family (tests/models/promises) -----------------------------------


@pytest.fixture(scope="module", params=["vit", "deit"])
def case(request):
    """Return (configuration, parameters, images) of both families of models of images."""
    config = {"vit": VIT, "deit": TINY}[request.param]
    return config, draw_params(config)[1], draw_pixels(config)


def score(config, params, pixels):
    """Return a number that depends on every logit, and its gradients."""
    model = build(config)

    def compute_loss(params):
        return jnp.square(jax.nn.log_softmax(model.apply({"params": params}, pixels))).mean()

    return jax.jit(jax.value_and_grad(compute_loss))(params)


@pytest.fixture(scope="module")
def scanned(case):
    """Return the number and its gradients of layers that are scanned and not computed again."""
    return score(*case)


@pytest.mark.held_by(1)
@pytest.mark.parametrize(("scan", "remat"), [(True, True), (False, False)])
def test_scan_and_remat_change_nothing(case, scanned, unroll, scan, remat):
    config, params, pixels = case
    value, grads = scanned
    arrange = (lambda tree: tree) if scan else (lambda tree: unroll(tree, {"encoder": 2}))
    other = dataclasses.replace(config, scan=scan, remat=remat)
    found, found_grads = score(other, arrange(params), pixels)
    np.testing.assert_allclose(found, value, rtol=1e-6)
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6)  # noqa: E731
    jax.tree.map(close, found_grads, arrange(grads))
    # A key's bias adds one number to all scores of a query: its gradient is 0.
    leaves = jax.tree_util.tree_leaves_with_path(grads)
    reached = [
        np.abs(leaf).max()
        for path, leaf in leaves
        if [key.key for key in path[-2:]] != ["key", "bias"]
    ]
    assert min(reached) > 1e-6


@pytest.mark.held_by(1)
def test_states_are_bfloat16_and_logits_float32(case):
    config, params, pixels = case
    params = jax.tree.map(lambda leaf: np.asarray(leaf).astype(jnp.bfloat16), params)
    model = build(config)
    states = run_model(model, params, pixels, method="encode")
    logits = run_model(model, params, pixels)
    assert states.dtype == jnp.bfloat16 and logits.dtype == jnp.float32
    exact = np.asarray(run_model(model, case[1], pixels))
    assert np.square(np.asarray(logits) - exact).mean() ** 0.5 < 0.05 * exact.std()


def test_a_trainers_parts_reach_every_layer(case):
    config, _, pixels = case
    seen, attended = [], []
    ops = PLAIN._replace(
        constrain=lambda x: seen.append(x.shape) or x,
        attend=lambda *args, **kw: attended.append(1) or attend(*args, **kw),
    )
    model = build(dataclasses.replace(config, scan=False), ops=ops)
    jax.eval_shape(model.init, jax.random.key(0), pixels)
    positions = config.num_tokens + config.grid_size**2
    assert seen == [(3, positions, 24)] * 2 and len(attended) == 2
