"""The exchanges of a program: of a text written by hand, and of programs compiled for eight devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pretrain.config import Mesh
from pretrain.mesh.sharding import make_mesh
from pretrain.plan.collectives import find_collectives
from pretrain.plan.hbm_traffic import count_memory_bytes
from pretrain.plan.hlo import HloModule

pytestmark = pytest.mark.fast

# A gather of an array of which each device has a quarter, during a matmul: the first fusion starts
# it, the second continues it, the third ends it. The arrays are in HBM.
CHAIN = """
%start_it (p.0: f32[32,128]) -> (f32[32,128], f32[128,128], s32[2]) {
  %p.0 = f32[32,128]{1,0:T(8,128)} parameter(0)
  %g.0 = f32[128,128]{1,0:T(8,128)} all-gather(%p.0), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %c.0 = (f32[32,128]{1,0:T(8,128)}, f32[128,128]{1,0:T(8,128)}, s32[2]{0:S(4)}) custom-call(%g.0), custom_call_target="AsyncCollectiveStart"
}

%go_on (p.1: f32[32,128], p.2: f32[128,128], p.3: s32[2], p.4: f32[128,128]) -> (f32[128,128], f32[32,128], f32[128,128], f32[128,128], s32[2]) {
  %p.1 = f32[32,128]{1,0:T(8,128)} parameter(0)
  %p.2 = f32[128,128]{1,0:T(8,128)} parameter(1)
  %p.3 = s32[2]{0:S(4)} parameter(2)
  %p.4 = f32[128,128]{1,0:T(8,128)} parameter(3)
  %dot.0 = f32[128,128]{1,0:T(8,128)} convolution(%p.4, %p.4), dim_labels=bf_io->bf
  %g.1 = f32[128,128]{1,0:T(8,128)} all-gather(%p.1), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %t.0 = (f32[128,128]{1,0:T(8,128)}, f32[32,128]{1,0:T(8,128)}, f32[128,128]{1,0:T(8,128)}, f32[128,128]{1,0:T(8,128)}, s32[2]{0:S(4)}) tuple(%dot.0, %p.1, %p.2, %g.1, %p.3)
}

%end_it (p.5: f32[32,128], p.6: f32[128,128], p.7: s32[2]) -> f32[128,128] {
  %p.5 = f32[32,128]{1,0:T(8,128)} parameter(0)
  %p.6 = f32[128,128]{1,0:T(8,128)} parameter(1)
  %p.7 = s32[2]{0:S(4)} parameter(2)
  %g.2 = f32[128,128]{1,0:T(8,128)S(1)} all-gather(%p.5), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %c.1 = f32[128,128]{1,0:T(8,128)} custom-call(%p.5, %p.6, %g.2, %p.7), custom_call_target="AsyncCollectiveDone"
}

ENTRY %main (x: f32[32,128], w: f32[128,128]) -> (f32[128,128], f32[128,128]) {
  %x = f32[32,128]{1,0:T(8,128)} parameter(0)
  %w = f32[128,128]{1,0:T(8,128)} parameter(1)
  %f.0 = (f32[32,128]{1,0:T(8,128)}, f32[128,128]{1,0:T(8,128)}, s32[2]{0:S(4)}) fusion(%x), kind=kCustom, calls=%start_it
  %e.0 = f32[32,128]{1,0:T(8,128)} get-tuple-element(%f.0), index=0
  %e.1 = f32[128,128]{1,0:T(8,128)} get-tuple-element(%f.0), index=1
  %e.2 = s32[2]{0:S(4)} get-tuple-element(%f.0), index=2
  %f.1 = (f32[128,128]{1,0:T(8,128)}, f32[32,128]{1,0:T(8,128)}, f32[128,128]{1,0:T(8,128)}, f32[128,128]{1,0:T(8,128)}, s32[2]{0:S(4)}) fusion(%e.0, %e.1, %e.2, %w), kind=kOutput, calls=%go_on
  %e.3 = f32[128,128]{1,0:T(8,128)} get-tuple-element(%f.1), index=0
  %e.4 = f32[32,128]{1,0:T(8,128)} get-tuple-element(%f.1), index=1
  %e.5 = f32[128,128]{1,0:T(8,128)} get-tuple-element(%f.1), index=2
  %e.6 = s32[2]{0:S(4)} get-tuple-element(%f.1), index=4
  %f.2 = f32[128,128]{1,0:T(8,128)} fusion(%e.4, %e.5, %e.6), kind=kCustom, calls=%end_it
  ROOT %both = (f32[128,128]{1,0:T(8,128)}, f32[128,128]{1,0:T(8,128)}) tuple(%e.3, %f.2)
}
"""


def test_an_exchange_that_is_spread_over_fusions_counts_once():
    module, square = HloModule(CHAIN), 128 * 128 * 4
    # The shard in, the whole out; w in and the product out.
    assert count_memory_bytes(module) == square / 4 + square + square + square
    (one,) = find_collectives(module, make_mesh(Mesh(2, 1, 4)))
    assert (one.kind, one.bytes, one.count, one.overlapped) == ("all-gather", square, 1, True)


# ---- collectives: compiled for eight fake devices --------------------------------


def compile_function(function, mesh, *arguments, out=P()):
    """Return the collectives of a function of (array, spec) pairs."""
    shapes = [
        jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=NamedSharding(mesh, spec))
        for array, spec in arguments
    ]
    with jax.set_mesh(mesh):
        text = (
            jax.jit(function, out_shardings=NamedSharding(mesh, out))
            .lower(*shapes)
            .compile()
            .as_text()
        )
    return find_collectives(HloModule(text), mesh)


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(Mesh(2, 1, 4))


def test_a_split_contraction_is_one_sum_over_its_axis(mesh):
    x, w = jnp.zeros((16, 64)), jnp.zeros((64, 32))
    (one,) = compile_function(
        lambda x, w: x @ w,
        mesh,
        (x, P("data", "model")),
        (w, P("model", None)),
        out=P("data", None),
    )
    assert (one.kind, one.axes, one.count, one.bytes, len(one.group)) == (
        "all-reduce",
        ("model",),
        1,
        8 * 32 * 4,
        4,
    )
    assert (
        one.sent_bytes == 2 * 3 / 4 * 8 * 32 * 4
    )  # reduced, then gathered, each 3/4 of it around the ring
    assert not one.overlapped


def test_a_gathered_array_counts_whole_and_in_a_loop_as_often_as_it_runs(mesh):
    ws = jnp.zeros((5, 64, 64))

    def scan_products(x, ws):
        return jax.lax.scan(
            lambda x, w: (jnp.tanh(x @ jax.lax.with_sharding_constraint(w, P())), None), x, ws
        )[0]

    found = compile_function(
        scan_products,
        mesh,
        (jnp.zeros((16, 64)), P("data", None)),
        (ws, P(None, "model", None)),
        out=P("data", None),
    )
    (one,) = [one for one in found if one.kind == "all-gather"]
    assert one.axes == ("model",) and one.count * one.bytes == 5 * 64 * 64 * 4
    assert one.sent_bytes == 3 / 4 * one.bytes


def test_every_exchange_of_one_shard_map_counts(mesh):
    def gather_and_scatter(x, y):
        gathered = [jax.lax.all_gather(value, "model", tiled=True) for value in (x, y)]
        return sum(
            jax.lax.psum_scatter(jnp.outer(value, value), "model", tiled=True).sum()
            for value in gathered
        )

    found = compile_function(
        jax.shard_map(
            lambda x, y: gather_and_scatter(x, y)[None],
            mesh=mesh,
            in_specs=(P("model"), P("model")),
            out_specs=P("model"),
        ),
        mesh,
        (jnp.zeros((64,)), P("model")),
        (jnp.zeros((32,)), P("model")),
        out=P("model"),
    )
    counted = sorted((one.kind, one.bytes, one.sent_bytes) for one in found)
    assert counted == [
        ("all-gather", 32 * 4, 3 / 4 * 32 * 4),
        ("all-gather", 64 * 4, 3 / 4 * 64 * 4),
        ("reduce-scatter", 32 * 32 * 4, 3 / 4 * 32 * 32 * 4),
        ("reduce-scatter", 64 * 64 * 4, 3 / 4 * 64 * 64 * 4),
    ]


def test_axes_are_distinguished(mesh):
    x = jnp.zeros((16, 64))
    (one,) = compile_function(lambda x: x.sum(0), mesh, (x, P("data", None)))
    assert one.axes == ("data",)
    found = compile_function(lambda x: x.sum(), mesh, (x, P("data", "model")))
    assert {axis for one in found for axis in one.axes} == {"data", "model"}


@pytest.mark.parametrize(
    ("written", "group"),
    [
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", [0, 4]),
        ("replica_groups=[4,2]<=[8]", [0, 1]),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", [0, 2, 4, 6]),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", [0, 1, 2, 3]),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4], device_ids=([2,4]T(1,0)) {'axis_0'}", [0, 2]),
        ("replica_groups=mesh['a'=2,'b'=2,'c'=2], device_ids=([8]) {'a','c'}", [0, 1, 4, 5]),
        ("replica_groups={}", [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_every_way_to_write_a_group(written, group):
    from pretrain.plan.collectives import _parse_group

    assert _parse_group(f"channel_id=1, {written}, dimensions={{0}}", 8, "all-gather") == group


def test_the_pair_of_a_shift_is_one_that_moves():
    from pretrain.plan.collectives import _parse_group

    assert _parse_group(
        "channel_id=1, source_target_pairs={{0,0},{1,4},{4,1}}, x={}", 8, "collective-permute"
    ) == [1, 4]
    assert _parse_group("source_target_pairs={{0,0},{1,1}}", 8, "collective-permute") == []


def test_a_shift_is_a_pair(mesh):
    def shift_blocks(x):
        return jax.shard_map(
            lambda x: jax.lax.ppermute(x, "model", [(i, (i + 1) % 4) for i in range(4)]),
            mesh=mesh,
            in_specs=P(None, "model"),
            out_specs=P(None, "model"),
        )(x)

    (one,) = compile_function(
        shift_blocks, mesh, (jnp.zeros((16, 64)), P(None, "model")), out=P(None, "model")
    )
    assert (
        one.kind == "collective-permute"
        and one.axes == ("model",)
        and one.sent_bytes == one.bytes == 16 * 16 * np.dtype("float32").itemsize
    )
