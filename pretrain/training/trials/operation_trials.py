"""Comparisons of the hand-made operations that are no attention, on the devices of a run.

Each has the sizes of the run and few rows. Sums over devices are of small whole numbers, which all
dtypes hold, so they are compared exactly.

B rows   T targets   V vocabulary   D width
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.layers import ops
from pretrain.config import Run
from pretrain.kernels.gathers import make_take_rows, take_positions
from pretrain.kernels.trials.comparison import Verdict, find_difference
from pretrain.mesh.gradient_exchange import (
    find_exchange_obstacle,
    make_gradient_exchange,
    make_param_specs,
)
from pretrain.mesh.sharding import AXES, BATCH
from pretrain.training.cross_entropy import (
    cross_entropy,
    take_scores,
    take_scores_on_gpu,
    token_cross_entropy,
)
from pretrain.training.program import Program
from pretrain.training.trials import EXCHANGE, GATHERS, LOSS

MAX_TARGETS = 64  # of a part of the loss
MAX_LEAVES, MAX_LEAF_SIZE = 6, 1 << 20  # of the parameters whose gradients cross
MAX_SUM = 128  # bfloat16 has all whole numbers up to 256
MIN_STEP = 3  # so that rows add to different numbers of a gradient


class OperationTrial(NamedTuple):
    """An operation, and its comparison.

    Attributes:
      shapes: JSON-like, on which the verdict depends.
      compare: () -> its verdict.
      is_joint: whether all processes of the run compare it together.
    """

    name: str
    shapes: Any
    compare: Callable[[], Verdict]
    is_joint: bool = False


def list_trials(run: Run, mesh: Mesh, program: Program, device: Any) -> list[OperationTrial]:
    """Return the comparisons of the operations that a run uses on an accelerator."""
    dtype, params = run.train.compute_dtype, program.abstract_state.params
    matrices = [leaf.shape for leaf in jax.tree.leaves(params) if leaf.ndim == 2]
    V, D = (f(max(matrices, key=math.prod, default=(1, 1))) for f in (max, min))
    T = max((x.shape[1] for x in program.batch.values() if x.ndim > 1), default=1)
    trials = []
    if T * V > program.scores_at_once:
        t = max(1, min(int(program.scores_at_once / V), MAX_TARGETS))
        shapes = {"targets": t, "vocabulary": V, "width": D, "dtype": dtype}
        trials.append(OperationTrial(LOSS, shapes, lambda: compare_loss(t, V, D, dtype, device)))
    if device.platform == "gpu":
        shapes = {"length": T, "vocabulary": V, "width": D, "dtype": dtype}
        trials.append(
            OperationTrial(GATHERS, shapes, lambda: compare_gathers(T, V, D, dtype, device))
        )
    if find_exchange_obstacle(params, mesh, dtype, run.train.microbatches) is None:
        wire = run.train.exchange_dtype
        leaves = select_leaves(params)
        shapes = {"mesh": dict(mesh.shape), "dtype": dtype, "sums": wire, "leaves": str(leaves)}
        trials.append(
            OperationTrial(
                EXCHANGE, shapes, lambda: compare_exchange(leaves, mesh, dtype, wire), True
            )
        )
    return trials


def _differentiate(function: Callable[..., Any], *arrays: Any) -> dict[str, np.ndarray]:
    """Return {name: array} of a function's result and of its gradients."""

    def sum_output(*arrays: Any) -> Any:
        out = function(*arrays)
        weights = jnp.cos(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape)
        return (out.astype(jnp.float32) * weights).sum(), out

    run = jax.jit(jax.value_and_grad(sum_output, tuple(range(len(arrays))), has_aux=True))
    (_, out), gradients = jax.device_get(run(*arrays))
    return {"the result": out} | {
        f"the gradient of argument {i}": gradient for i, gradient in enumerate(gradients, 1)
    }


def compare_loss(targets: int, V: int, D: int, dtype: str, device: Any) -> Verdict:
    """Compare the loss of a vocabulary in parts with the loss of all scores at a time."""
    B, T = 2, 3 * targets - 1  # the last part is not full
    rng = np.random.default_rng(0)
    take = take_scores_on_gpu if device.platform == "gpu" else take_scores

    def compute(score: Callable[..., Any]) -> Callable[..., jax.Array]:
        def compute_sum(y_BTD: jax.Array, table_VD: jax.Array) -> jax.Array:
            def project(y: jax.Array) -> jax.Array:
                return jnp.einsum("btd,vd->btv", y, table_VD, preferred_element_type=jnp.float32)

            return score(project, y_BTD)[0][None]

        return compute_sum

    ids = jnp.asarray(rng.integers(0, V, (B, T)), jnp.int32)
    weights = jnp.asarray(rng.random((B, T)) < 0.9, jnp.float32)

    def score_in_parts(project: Any, y: jax.Array) -> Any:
        return token_cross_entropy(project, y, ids, weights, max_scores=targets * V, take=take)

    def score_at_once(project: Any, y: jax.Array) -> Any:
        return cross_entropy(project(y), ids, weights, take=_take_plainly)

    with jax.default_device(device):
        y, table = (
            jnp.asarray(rng.standard_normal(shape), dtype) * np.asarray(size, dtype)
            for shape, size in (((B, T, D), 1.0), ((V, D), D**-0.5))
        )
        found, plain = (
            _differentiate(compute(f), y, table) for f in (score_in_parts, score_at_once)
        )
        with jax.default_matmul_precision("highest"):
            exact = _differentiate(
                compute(score_at_once), y.astype(jnp.float32), table.astype(jnp.float32)
            )
    return find_difference(found, plain, exact, dtype)


def _take_plainly(scores_V: jax.Array, ids: jax.Array) -> jax.Array:
    return jnp.take_along_axis(scores_V, ids[..., None], axis=-1)[..., 0]


def compare_gathers(length: int, V: int, D: int, dtype: str, device: Any) -> Verdict:
    """Compare the gathers of rows and of positions with XLA's."""
    B, P = 2, max(1, length // 6)
    rng = np.random.default_rng(0)
    one = Mesh(np.array([device]).reshape(1, 1, 1, 1), AXES)
    ids = jnp.asarray(rng.integers(0, V, (B, length)), jnp.int32).at[:, : length // 4].set(1)
    positions = jnp.asarray(
        np.sort([rng.permutation(length)[:P] for _ in range(B)], axis=-1), jnp.int32
    )

    def compute(take_rows: Any, take_places: Any) -> Callable[..., jax.Array]:
        return lambda table, x: jnp.concatenate(
            [take_rows(table, ids), take_places(x, positions)], axis=1
        )

    with jax.default_device(device), jax.set_mesh(one):
        arrays = [
            jnp.asarray(rng.standard_normal(shape), dtype) for shape in ((V, D), (B, length, D))
        ]
        own = compute(make_take_rows(one), take_positions)
        plain = compute(ops.take_rows, ops.take_positions)
        own_arrays, plain_arrays = _differentiate(own, *arrays), _differentiate(plain, *arrays)
        exact = _differentiate(plain, *(x.astype(jnp.float32) for x in arrays))
    return find_difference(own_arrays, plain_arrays, exact, dtype)


def select_leaves(params: Any) -> dict[str, Any]:
    """Return a few parameters of different shapes, as a tree of their own."""
    chosen: dict[tuple[int, ...], Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if leaf.size <= MAX_LEAF_SIZE and len(chosen) < MAX_LEAVES:
            chosen.setdefault(leaf.shape, path)
    tree: dict[str, Any] = {}
    for shape, path in chosen.items():
        *folders, last = (str(key.key) for key in path)
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = shape
    return tree


def compare_exchange(leaves: dict[str, Any], mesh: Mesh, dtype: str, wire: str | None) -> Verdict:
    """Compare gradients that cross between devices with their sum, exactly.

    Row r adds 1 to every `step`-th number of a gradient, from number r on.

    leaves: a tree of shapes, as of `select_leaves`.
    """
    num_rows = mesh.shape["data"] * mesh.shape["fsdp"]
    step = max(MIN_STEP, -(-num_rows // MAX_SUM))

    def mark(shape: tuple[int, ...], row: Any) -> Any:
        return (row + np.arange(math.prod(shape)).reshape(shape)) % step == 0

    def compute_gradient(params: Any, variables: Any, batch: Any, totals: Any, key: Any) -> Any:
        def compute_value(params: Any) -> jax.Array:
            terms = [
                jnp.where(mark(leaf.shape, row), leaf, 0).astype(jnp.float32).sum()
                for leaf in jax.tree.leaves(params)
                for row in batch["row"]
            ]
            return jnp.stack(terms).sum()

        value, gradients = jax.value_and_grad(compute_value)(params)
        return gradients, ({"value": value}, variables)

    shapes = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
        leaves,
        is_leaf=lambda x: isinstance(x, tuple),
    )
    values = jax.tree.map(lambda x: (np.arange(x.size) % 2).reshape(x.shape), shapes)

    def place(x: np.ndarray, spec: PartitionSpec) -> jax.Array:
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    specs = make_param_specs(shapes, mesh)
    params = jax.tree.map(lambda x, spec: place(x.astype(np.float32), spec), values, specs)
    batch = {"row": place(np.arange(num_rows, dtype=np.int32), BATCH)}
    key = place(np.zeros(2, np.uint32), PartitionSpec())
    exchanged = make_gradient_exchange(mesh, dtype, wire)(compute_gradient)
    with jax.set_mesh(mesh):
        gradients, (sums, _) = jax.jit(exchanged)(params, {}, batch, {}, key)
    total = 0
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        marks = np.zeros(gradient.shape, np.float32)
        for row in range(num_rows):
            marks += mark(gradient.shape, row)
        value = (np.arange(gradient.size) % 2).reshape(gradient.shape)
        total += float((marks * value).sum())
        for shard in gradient.addressable_shards:
            if not np.array_equal(np.asarray(shard.data), marks[shard.index]):
                return Verdict(f"failed its test: the sum of {jax.tree_util.keystr(path)} is wrong")
    if float(np.asarray(sums["value"].addressable_data(0))) != total:
        return Verdict("failed its test: the sum of the loss over the devices is wrong")
    return Verdict(detail=f"equal over {num_rows} devices")
