"""Gradients that cross once a step: dropout and parameters of one device, the programs' exchanges,
and the error of sums in bfloat16.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from models import build
from models.layers import ops
from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask
from models.layers.ops import leave_unchanged
from pretrain.config import Mesh
from pretrain.kernels.attention.row.sharded import attend_with_rows
from pretrain.kernels.attention.splash.splash_attention import attend_with_splash
from pretrain.kernels.hash_dropout import drop_by_hash, drop_on_shard, keep_rows_on_shard
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.mesh import gradient_exchange
from pretrain.mesh.gradient_exchange import (
    describe_exchange,
    find_exchange_obstacle,
    make_gradient_exchange,
)
from pretrain.mesh.sharding import BATCH, make_mesh
from pretrain.settings.overrides import ConfigError
from pretrain.training.losses import LossOptions, find_loss
from pretrain.training.memory.memory_estimate import estimate_memory
from pretrain.training.program import make_program
from pretrain.training.step import make_gradient
from tests.pretrain.conftest import RUNS
from tests.pretrain.training.test_step import (
    INVERTED,
    TOLERANCE,
    assert_same_parameters,
    with_epsilon,
)


def make_dropping(node, rate=0.2):
    """Return a configuration with `rate` for each of its dropouts."""
    changes = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if "dropout" in field.name and isinstance(value, (int, float)):
            changes[field.name] = rate
        elif dataclasses.is_dataclass(value):
            changes[field.name] = make_dropping(value, rate)
    return dataclasses.replace(node, **changes)


def change_train(run, **changes):
    return dataclasses.replace(run, train=dataclasses.replace(run.train, **changes))


@functools.cache
def init_on_one_device(run):
    mesh = make_mesh(Mesh(1), jax.devices()[:1])
    with jax.set_mesh(mesh):
        return jax.device_get(make_program(run, mesh).init())


def find_first_state(run):
    """Return the state before the first step: the run's without what changes no parameter."""
    plain = change_train(run, exchange_dtype=None, microbatches=1)
    return init_on_one_device(dataclasses.replace(plain, model=make_dropping(run.model, 0.0)))


def take_steps(run, random_batch, sizes=(1, 1), count=3):
    """Return (state on the host, metrics) after so many steps of `make_program`'s step."""
    mesh = make_mesh(Mesh(*sizes), jax.devices()[: int(np.prod(sizes))])
    first = find_first_state(run)
    with jax.set_mesh(mesh):
        program = make_program(run, mesh)
        state = jax.device_put(first, program.state_shardings, may_alias=False)
        for seed in range(count):
            batch = {
                key: jax.device_put(value, program.batch[key].sharding)
                for key, value in random_batch(run, seed).items()
            }
            state, metrics = program.train_step(state, batch)
        assert jax.tree.map(lambda leaf: leaf.sharding, state) == program.state_shardings
        return jax.device_get(state), jax.device_get(metrics)


# ---- parameters and dropout ----------------------------------------------------

# Those whose dropout differs in kind: of whole rows of positions, of distances that all rows share,
# of words, inside a reversible stack, of two networks.
CASES = [
    ("bert_pairs", (2, 4), 1),
    ("bert_pairs", (4, 2), 2),
    ("t5", (8, 1), 1),
    ("transformer_xl", (2, 4), 1),
    ("deep_averaging", (1, 8), 1),
    ("reformer", (4, 2), 1),
    ("electra", (2, 4), 1),
    # Not by the exchange: XLA's partitioner splits the draws.
    ("bert_pairs", (2, 2, 2), 1),
    ("t5", (1, 2, 2, 2), 1),
]
# CLOZE_BOARD=whole tries these too.
MORE = [(name, (2, 4), 1) for name in RUNS if (name, (2, 4), 1) not in CASES]


@pytest.fixture(scope="module")
def on_one_device():
    return {}


@pytest.mark.held_by("bert_pairs-(4, 2)-2")
@pytest.mark.parametrize(("name", "sizes", "microbatches"), CASES + MORE, ids=str)
def test_parameters_and_dropout_are_those_of_one_device(
    request, random_batch, on_one_device, name, sizes, microbatches
):
    if (name, sizes, microbatches) in MORE:
        request.getfixturevalue("whole")
    run = change_train(with_epsilon(RUNS[name]), microbatches=microbatches)
    run = dataclasses.replace(run, model=make_dropping(run.model))
    if run not in on_one_device:
        on_one_device[run] = take_steps(run, random_batch)
    expected, metrics = on_one_device[run]
    found, seen = take_steps(run, random_batch, sizes)
    # The input of one of Reformer's ReLUs is rounding noise: 4 of its 4,096 weights differ by 6e-6.
    assert_same_parameters(expected, found, INVERTED if "reformer" in name else TOLERANCE)
    for key in metrics:
        np.testing.assert_allclose(seen[key], metrics[key], rtol=1e-4, err_msg=key)
    for one, other in zip(
        jax.tree.leaves(expected.variables), jax.tree.leaves(found.variables), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)


def run_on_shards(function, x, out_specs=BATCH):
    mesh = make_mesh(Mesh(2, 4))
    shards = jax.shard_map(function, mesh=mesh, in_specs=BATCH, out_specs=out_specs)
    return jax.jit(shards)(x)


@pytest.mark.held_by("(2, 3, 7)-3")
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("shape", [(), (5,), (4, 6), (2, 3, 7)], ids=str)
def test_a_shard_draws_what_the_whole_batch_would(rows, shape):
    key, x = jnp.array([3, 8], jnp.uint32), jnp.ones((8 * rows, *shape, 16))

    def drop(x):
        return drop_on_shard(x, key, 0.3, x.shape)

    expected = drop_by_hash(x, key, 0.3, x.shape)
    np.testing.assert_array_equal(run_on_shards(drop, x), expected)

    def compute_gradient(x):
        return jax.grad(lambda x: (drop(x) * x).sum())(x)

    np.testing.assert_array_equal(run_on_shards(compute_gradient, x), 2 * expected)


def test_what_all_rows_share_is_drawn_alike_on_every_shard():
    key, table = jnp.array([3, 8], jnp.uint32), jnp.ones((6, 16))

    def drop(x):
        return x[:, None, None] * drop_on_shard(table, key, 0.3, table.shape, by_row=False)

    found = run_on_shards(drop, jnp.ones(8))
    expected = drop_by_hash(table, key, 0.3, table.shape)
    np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


def test_rows_that_skip_a_sublayer_are_those_of_the_whole_batch():
    key, x = jax.random.key(5), jnp.ones((24, 1, 1))
    found = run_on_shards(lambda x: keep_rows_on_shard(key, jnp.float32(0.4), x.shape), x)
    np.testing.assert_array_equal(found, ops.keep_rows(key, jnp.float32(0.4), x.shape))


# ---- what crosses --------------------------------------------------------------


def list_exchanges(text):
    """Return [(kind, number of values, whether it is inside of a loop)] of a compiled program."""
    inside, loops, found = None, set(re.findall(r"body=%?([\w.\-]+)", text)), []
    for line in text.splitlines():
        if header := re.match(r"%?([\w.\-]+) .*\{$", line):
            inside = header[1]
        if match := re.search(r"= (.*?) (all-reduce|all-gather|reduce-scatter)(?:-start)?\(", line):
            values = sum(
                int(np.prod([int(size) for size in dims.split(",") if size]))
                for dims in re.findall(r"\w+\[([\d,]*)\]", match[1])
            )
            found.append((match[2], values, inside in loops))
    return found


@pytest.mark.held_by(1)
@pytest.mark.parametrize("sizes", [(8, 1), (2, 4)], ids=str)
def test_each_gradient_crosses_once_behind_all_loops(sizes):
    """The bytes are the parameters', also the table's, which is used twice."""
    run = change_train(RUNS["bert_pairs"], microbatches=2)
    mesh = make_mesh(Mesh(*sizes))
    program = make_program(run, mesh)
    with jax.set_mesh(mesh):
        exchanges = list_exchanges(program.get_step_text())
    assert exchanges and not any(is_inside for *_, is_inside in exchanges)
    specs = jax.tree.leaves(program.state_shardings.params)
    sizes_of_params = [leaf.size for leaf in jax.tree.leaves(program.abstract_state.params)]
    total = sum(sizes_of_params)
    sharded = sum(
        size for size, place in zip(sizes_of_params, specs, strict=True) if "fsdp" in place.spec
    ) * (mesh.shape["fsdp"] > 1)
    counted = {
        kind: sum(values for found, values, _ in exchanges if found == kind)
        for kind in ("all-gather", "reduce-scatter", "all-reduce")
    }
    scalars = 200  # sums, weights, the norm
    assert counted["all-gather"] == sharded
    assert counted["reduce-scatter"] == sharded // mesh.shape["fsdp"]
    of_shards = sharded // mesh.shape["fsdp"] if mesh.shape["data"] > 1 else 0
    assert 0 <= counted["all-reduce"] - (total - sharded + of_shards) < scalars


def test_sums_in_bfloat16_differ_by_their_rounding(random_batch):
    """The error is a share of the gradient's norm: 2**-9 bounds one rounding's."""
    run, mesh = RUNS["bert_pairs"], make_mesh(Mesh(2, 4))
    model, loss = build(run.model, **make_model_hooks(mesh, [], True)), find_loss("sentence_pair")
    params, batch = init_on_one_device(run).params, random_batch(run)
    totals = {name: jnp.maximum(w, 1.0) for name, w in loss.sum_weights(batch).items()}

    def find_gradient(model, exchange=leave_unchanged):
        compute = jax.jit(exchange(make_gradient(model, loss, LossOptions())))
        with jax.set_mesh(mesh):
            grads, _ = compute(params, {}, batch, totals, jax.random.key(0))
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(grads)]).astype(float)

    exact = find_gradient(build(run.model))
    error = {
        dtype: np.linalg.norm(
            find_gradient(model, make_gradient_exchange(mesh, "float32", dtype)) - exact
        )
        / np.linalg.norm(exact)
        for dtype in ("float32", "bfloat16")
    }
    assert error["float32"] < 1e-5 < 5e-4 < error["bfloat16"] < 2**-8, error


# ---- where they cross otherwise --------------------------------------------------


def test_other_meshes_say_why(monkeypatch):
    run = RUNS["bert"]
    params = init_on_one_device(run).params

    def find(*sizes, microbatches=1):
        mesh = make_mesh(Mesh(*sizes), jax.devices()[: int(np.prod(sizes))])
        return find_exchange_obstacle(params, mesh, "float32", microbatches)

    assert find(8) is find(1, 8) is find(2, 4) is None
    assert find(1) == "all rows are on one device"
    assert find(4, 1, 2) == "mesh.model=2 splits the computation of a row"
    assert find(4, 1, 1, 2) == "mesh.sequence=2 splits the computation of a row"
    monkeypatch.setattr(gradient_exchange, "MAX_GATHERED_BYTES", 1000)
    assert "gathered parameters and their gradients would take" in str(find(1, 8))
    assert find(8) is None


def test_lines_of_a_run_name_how_gradients_cross():
    run, mesh = RUNS["bert"], make_mesh(Mesh(2, 4))
    params = init_on_one_device(run).params
    once, odd = describe_exchange(params, mesh, run.train)
    assert once == "gradients are summed over devices once a step, in float32"
    assert re.match(
        r"mesh.fsdp=4 leaves 8 rows of bert/\S+ on a device, and of \d+ parameters", odd
    )
    wide = dataclasses.replace(run.train, exchange_dtype="bfloat16")
    assert describe_exchange(params, make_mesh(Mesh(8)), wide) == [
        "gradients are summed over devices once a step, in bfloat16"
    ]
    (line,) = describe_exchange(params, make_mesh(Mesh(4, 1, 2)), run.train)
    assert line.startswith("gradients are summed over devices in each layer: mesh.model=2")


def test_a_dtype_of_sums_is_refused_where_they_are_others():
    run = change_train(RUNS["bert"], exchange_dtype="bfloat16")
    make_program(run, make_mesh(Mesh(1), jax.devices()[:1]))
    with pytest.raises(ConfigError, match="needs gradients that cross once a step.*mesh.model=2"):
        make_program(run, make_mesh(Mesh(4, 1, 2)))


def test_gathered_parameters_count_in_the_estimate():
    run = RUNS["bert"]
    one, split = (
        estimate_memory(run, make_mesh(Mesh(*sizes)), with_activations=False)
        for sizes in ((8,), (1, 8))
    )
    assert split.held["parameters"] < one.held["parameters"] / 3
    assert split.gradients > one.gradients


# ---- attention kernels on a shard ------------------------------------------------


@pytest.mark.held_by(1)
@pytest.mark.parametrize("kernel", ["rows", "splash"])
def test_a_kernel_on_a_shard_is_attention_of_the_whole_batch(kernel):
    """Forward and backward, with the dropout and the bias of the kernel that has them."""
    B, L, H, K = 8, 128, 2, 16
    q, k, v, cotangent = (
        jax.random.normal(jax.random.key(i), (B, L, H, K), jnp.float32) for i in range(4)
    )
    one = make_mesh(Mesh(1), jax.devices()[:1])
    mask = Mask(attention_mask_BM=jnp.arange(L) < jnp.arange(L // 2, L, L // 2 // B)[:, None])
    attend_on_one, bias, drop = attend_with_splash, None, None
    if kernel == "rows":
        attend_on_one = attend_with_rows
        bias = jax.random.normal(jax.random.key(4), (1, H, L, L), jnp.float32)
        drop = KeyedDropout(jnp.array([7, 11], jnp.uint32), 0.3, (), drop_on_shard)

    def compute_gradients(function, mask, cotangent, arrays):
        out, pull = jax.vjp(function, *arrays)
        return out, pull(cotangent)

    def compute_on_shard(q, k, v, mask, cotangent, bias):
        def run(q, k, v, bias):
            options = {"mask": mask, "bias": bias, "drop": drop} if drop else {"mask": mask}
            return attend_on_one(q, k, v, **options, mesh=one, on_shard=True, interpret=True)

        out, (dq, dk, dv, d_bias) = compute_gradients(run, mask, cotangent, (q, k, v, bias))
        return out, dq, dk, dv, jax.lax.psum(d_bias, BATCH[0])

    found = jax.jit(
        jax.shard_map(
            compute_on_shard,
            mesh=make_mesh(Mesh(2, 4)),
            in_specs=(BATCH, BATCH, BATCH, BATCH, BATCH, P()),
            out_specs=(BATCH, BATCH, BATCH, BATCH, P()),
            check_vma=False,
        )
    )(q, k, v, mask, cotangent, bias)
    whole = drop and dataclasses.replace(drop, drop_fn=drop_by_hash)
    out, gradients = jax.jit(
        lambda *arrays: compute_gradients(
            lambda q, k, v, bias: ops.attend(q, k, v, mask=mask, bias=bias, drop=whole),
            mask,
            cotangent,
            arrays,
        )
    )(q, k, v, bias)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves((out, gradients)), strict=True):
        np.testing.assert_allclose(one, other, atol=3e-5)
