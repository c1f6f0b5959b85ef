"""The sharding table: every parameter of every model matches exactly one row, and errors name what
does not fit.
"""

import dataclasses
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from models import build
from models.config.base import ImageConfig
from pretrain.config import CONFIGS, Mesh, load, override_run
from pretrain.families import FAMILIES
from pretrain.mesh.sharding import (
    MESH_AXES,
    PARAMETER_DIMENSIONS,
    find_dimension_names,
    find_undivided_dims,
    format_path,
    make_constraint,
    make_gather,
    make_mesh,
    make_partition_spec,
    make_state_shardings,
)
from pretrain.training.optimizers.factors import add_factors
from pretrain.training.state import TrainState, init_params

NAMES = sorted(path.stem for path in CONFIGS.glob("*.py") if path.stem != "__init__")


@pytest.mark.held_by("bert_tiny", "t5_mini", "gpt2", "transformer_xl_tiny")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_every_parameter_has_one_row(name):
    run = load(name)
    params = jax.eval_shape(partial(init_params, build(run.model), run.data.objective, 0))
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        dims = find_dimension_names(format_path(keys), leaf.shape)
        assert set(dims) <= MESH_AXES.keys()
        assert len(dims) == leaf.ndim


def find_image_rows(config):
    """Return the paths of the parameters of a model of images, each of which has a row."""
    pixels = np.zeros((1, config.image_size, config.image_size, config.channels), np.uint8)
    init = partial(build(config).init, jax.random.key(0), pixels)
    leaves = jax.tree_util.tree_leaves_with_path(jax.eval_shape(init)["params"])
    for keys, leaf in leaves:
        assert len(find_dimension_names(format_path(keys), leaf.shape)) == leaf.ndim
    return [format_path(keys) for keys, _ in leaves]


@pytest.mark.slow
def test_every_row_has_a_parameter(runs):
    paths = []
    for run in runs.values():
        params = jax.eval_shape(partial(init_params, build(run.model), run.data.objective, 0))
        if run.model in (runs["modernbert"].model, runs["t5"].model):
            lora = override_run(run, ["train.lora_rank=2", "train.lora_targets=attention,mlp"])
            params = jax.eval_shape(partial(add_factors, lora), params)
        paths += [format_path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(params)]
    for family in FAMILIES.values():
        if issubclass(family.config, ImageConfig):
            config = family.config()
            if hasattr(config, "depth"):
                config = dataclasses.replace(config, depth=2)
            paths += find_image_rows(config)
    import re

    unused = [
        end
        for end, _ in PARAMETER_DIMENSIONS
        if not any(re.search(rf"(^|/){end}$", path) for path in paths)
    ]
    assert not unused


@pytest.mark.parametrize(
    ("path", "shape", "message"),
    [
        ("bert/encoder/layers/surprise/kernel", (2, 3),
         "no row of PARAMETER_DIMENSIONS matches bert/encoder/layers/surprise/kernel"),
        ("encoder/layers/mlp/up/kernel", (3, 4), "has shape (3, 4), but 'mlp/(gate|up)/kernel' has 3 dimensions"),
        ("token_embedding/embedding", (3,), "token_embedding/embedding has shape (3,)"),
    ],
)  # fmt: skip
def test_a_parameter_without_a_row_is_named(path, shape, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        find_dimension_names(path, shape)


def test_two_rows_are_refused(monkeypatch):
    monkeypatch.setattr(
        "pretrain.mesh.sharding.PARAMETER_DIMENSIONS",
        (*PARAMETER_DIMENSIONS, ("embedding", (None, None))),
    )
    with pytest.raises(
        ValueError,
        match=re.escape(
            f"{PARAMETER_DIMENSIONS[0][0]!r} and 'embedding' of PARAMETER_DIMENSIONS matches "
            "token_embedding/embedding; exactly one row must match"
        ),
    ):
        find_dimension_names("token_embedding/embedding", (4, 4))


def test_specs():
    mesh = make_mesh(Mesh(2, 2, 2))
    assert make_partition_spec("token_embedding/embedding", (128, 32), mesh) == P("model", "fsdp")
    assert make_partition_spec("encoder/layers/attention/query/kernel", (2, 32, 8, 4), mesh) == P(
        None, "fsdp", "model", None
    )
    assert make_partition_spec("encoder/layer_0/attention/query/kernel", (32, 8, 4), mesh) == P(
        "fsdp", "model", None
    )
    assert make_partition_spec("encoder/layers/attention_norm/scale", (2, 32), mesh) == P(
        None, None
    )
    assert make_partition_spec("token_embedding/embedding", (127, 32), mesh) == P(None, "fsdp")


def test_indivisible_sizes_are_reported():
    mesh = make_mesh(Mesh(1, 2, 4))
    params = {
        "token_embedding": {"embedding": jnp.zeros((126, 32))},
        "norm": {"scale": jnp.zeros(32)},
    }
    assert find_undivided_dims(params, mesh) == [("token_embedding/embedding", 126, "model")]


@pytest.mark.parametrize(
    ("sizes", "axes"),
    [
        ((-1, 1, 1), (8, 1, 1, 1)),
        ((1, -1, 2), (1, 4, 1, 2)),
        ((2, 2, -1), (2, 2, 1, 2)),
        ((1, 2, 1, -1), (1, 2, 4, 1)),
    ],
)
def test_one_axis_takes_what_is_left(sizes, axes):
    assert tuple(make_mesh(Mesh(*sizes)).shape.values()) == axes


@pytest.mark.parametrize("sizes", [(3, 1, 1), (-1, 3, 1), (1, 1, 1), (1, 1, 1, 3), (16, 1, 1)])
def test_a_mesh_covers_all_devices(sizes):
    with pytest.raises(ValueError, match="does not cover 8 devices"):
        make_mesh(Mesh(*sizes))


def test_activations_are_sharded_over_rows_and_positions_where_they_divide():
    mesh = make_mesh(Mesh(1, 2, 2, 2))
    place = jax.jit(make_constraint(mesh))
    assert place(jnp.zeros((4, 6, 8))).sharding.shard_shape((4, 6, 8)) == (2, 3, 8)
    assert place(jnp.zeros((4, 5, 8))).sharding.shard_shape((4, 5, 8)) == (2, 5, 8)


def test_the_scores_parameters_are_brought_together_over_fsdp_alone():
    mesh = make_mesh(Mesh(1, 4, 2))
    params = {"token_embedding": {"embedding": jnp.zeros((16, 8))}}
    (leaf,) = jax.tree.leaves(jax.jit(make_gather(mesh))(params))
    assert leaf.sharding.shard_shape(leaf.shape) == (8, 8)


def test_overrides_of_a_mesh_may_be_in_any_order():
    for words in (["mesh.data=1", "mesh.fsdp=-1"], ["mesh.fsdp=-1", "mesh.data=1"]):
        assert tuple(make_mesh(load("bert_tiny", words).mesh).shape.values()) == (1, 8, 1, 1)
    with pytest.raises(ValueError, match="only one of them may be -1"):
        make_mesh(Mesh(-1, -1, 1))


def test_adafactors_rows_and_columns_are_repeated_and_its_rest_is_split():
    mesh = make_mesh(Mesh(1, 4, 2))
    params = {
        "token_embedding": {"embedding": jnp.zeros((512, 256))},
        "lm_head": {"kernel": jnp.zeros((32, 64))},
    }
    state = TrainState(
        step=jnp.zeros((), jnp.int32), params=params, optimizer=optax.adafactor(0.1).init(params)
    )
    placed = make_state_shardings(state, mesh)
    shapes = jax.tree.map(
        lambda leaf, where: (leaf.shape, where.spec), state.optimizer, placed.optimizer
    )
    specs = dict(
        jax.tree.leaves(
            shapes, is_leaf=lambda x: isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], P)
        )
    )
    assert specs[(32, 64)] == P("fsdp", "model")
    assert specs[(512,)] == specs[(256,)] == P()


def test_adafactors_large_rows_and_columns_are_split_as_their_parameter():
    """Those of 48 pairs of GPT-3's layers, of which each device would hold 0.2 GB."""
    path, shape = "decoder/layers/banded/attention/key/kernel", (48, 12288, 96, 128)
    params = {path: jax.ShapeDtypeStruct(shape, jnp.float32)}
    optimizer = jax.eval_shape(optax.adafactor(0.1).init, params)
    state = TrainState(jax.ShapeDtypeStruct((), jnp.int32), params, optimizer)
    mesh = make_mesh(Mesh(1, 4, 2))
    placed = make_state_shardings(state, mesh)
    found = {
        leaf.shape: where.spec
        for leaf, where in zip(jax.tree.leaves(optimizer), jax.tree.leaves(placed.optimizer))
    }
    layer, fsdp, model, none = make_partition_spec(path, shape, mesh)
    assert (layer, fsdp, model, none) == (None, "fsdp", "model", None)
    assert found[48, 12288, 96] == P(None, "fsdp", "model")
    assert found[48, 96, 128] == P()  # small


def test_a_large_moment_that_follows_no_parameter_is_refused():
    """Each device would hold all of it."""
    state = TrainState(
        step=jax.ShapeDtypeStruct((), jnp.int32),
        params={"token_embedding": {"embedding": jax.ShapeDtypeStruct((8192, 4096), jnp.float32)}},
        optimizer={
            "token_embedding": {"embedding": jax.ShapeDtypeStruct((4096, 8192), jnp.float32)}
        },
    )
    with pytest.raises(
        ValueError, match=r"token_embedding/embedding \(4096, 8192\) follows no parameter"
    ):
        make_state_shardings(state, make_mesh(Mesh(1, 4, 2)))
