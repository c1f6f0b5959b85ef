"""The traffic of a program, counted by hand on a small text, and on programs with a known answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pretrain.config import Mesh
from pretrain.distributed.sharding import make_mesh
from pretrain.plan.collectives import find_collectives
from pretrain.plan.hbm_traffic import count_memory_bytes
from pretrain.plan.hlo import HloModule
from pretrain.plan.hlo_parser import HloArray

pytestmark = pytest.mark.fast

# A loop of 6 iterations. Its body reads a row of a table, adds it to a loop variable in on-chip memory,
# and writes the sum into a second table.
TEXT = """
HloModule jit_f, is_scheduled=true

%picked (p.0: f32[6,128], p.1: s32[], p.2: f32[128]) -> f32[128] {
  %p.0 = f32[6,128]{1,0:T(8,128)} parameter(0)
  %p.1 = s32[]{:T(128)} parameter(1)
  %p.2 = f32[128]{0:T(128)S(1)} parameter(2)
  %zero = s32[]{:T(128)} constant(0)
  %tiled = f32[6,128]{1,0:T(2,128)} copy(%p.0)
  %row = f32[1,128]{1,0:T(8,128)} dynamic-slice(%tiled, %p.1, %zero), dynamic_slice_sizes={1,128}
  %flat = f32[128]{0:T(128)} bitcast(%row)
  ROOT %sum = f32[128]{0:T(128)S(1)} add(%flat, %p.2)
}

%put (q.0: f32[6,128], q.1: f32[128], q.2: s32[]) -> f32[6,128] {
  %q.0 = f32[6,128]{1,0:T(8,128)} parameter(0)
  %q.1 = f32[128]{0:T(128)S(1)} parameter(1)
  %q.2 = s32[]{:T(128)} parameter(2)
  %none = s32[]{:T(128)} constant(0)
  %line = f32[1,128]{1,0:T(8,128)} bitcast(%q.1)
  ROOT %there = f32[6,128]{1,0:T(8,128)} dynamic-update-slice(%q.0, %line, %q.2, %none)
}

%body (state: (s32[], f32[128], f32[6,128], f32[6,128])) -> (s32[], f32[128], f32[6,128], f32[6,128]) {
  %state = (s32[]{:T(128)}, f32[128]{0:T(128)S(1)}, f32[6,128]{1,0:T(8,128)}, /*index=3*/f32[6,128]{1,0:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)S(2)} get-tuple-element(%state), index=0
  %x = f32[128]{0:T(128)S(1)} get-tuple-element(%state), index=1
  %table = f32[6,128]{1,0:T(8,128)} get-tuple-element(%state), index=2
  %out = f32[6,128]{1,0:T(8,128)} get-tuple-element(%state), index=3
  %next = f32[128]{0:T(128)S(1)} fusion(%table, %i, %x), kind=kLoop, calls=%picked, metadata={op_name="jit(f)/while/body/add"}
  %filled = f32[6,128]{1,0:T(8,128)} fusion(%out, %next, %i), kind=kLoop, calls=%put
  ROOT %again = (s32[]{:T(128)}, f32[128]{0:T(128)S(1)}, f32[6,128]{1,0:T(8,128)}, f32[6,128]{1,0:T(8,128)}) tuple(%i, %next, %table, %filled)
}

%condition (state.1: (s32[], f32[128], f32[6,128], f32[6,128])) -> pred[] {
  %state.1 = (s32[]{:T(128)}, f32[128]{0:T(128)S(1)}, f32[6,128]{1,0:T(8,128)}, f32[6,128]{1,0:T(8,128)}) parameter(0)
  %i.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  %six = s32[]{:T(128)} constant(6)
  ROOT %less = pred[]{:T(512)} compare(%i.1, %six), direction=LT
}

ENTRY %main (a: f32[128], b: f32[6,128]) -> f32[128] {
  %a = f32[128]{0:T(128)} parameter(0)
  %b = f32[6,128]{1,0:T(8,128)} parameter(1)
  %room = f32[6,128]{1,0:T(8,128)} custom-call(), custom_call_target="AllocateBuffer"
  %near = f32[128]{0:T(128)S(1)} copy(%a)
  %start = s32[]{:T(128)S(2)} constant(0)
  %begin = (s32[]{:T(128)}, f32[128]{0:T(128)S(1)}, f32[6,128]{1,0:T(8,128)}, f32[6,128]{1,0:T(8,128)}) tuple(%start, %near, %b, %room)
  %loop = (s32[]{:T(128)}, f32[128]{0:T(128)S(1)}, f32[6,128]{1,0:T(8,128)}, f32[6,128]{1,0:T(8,128)}) while(%begin), condition=%condition, body=%body
  %last = f32[128]{0:T(128)S(1)} get-tuple-element(%loop), index=1
  ROOT %back = f32[128]{0:T(128)} copy(%last)
}
"""


def test_a_loop_counts_as_often_as_it_runs_and_slices_are_not_tables():
    module = HloModule(TEXT)
    assert module.run_counts == {"main": 1, "body": 6}
    line = 128 * 4
    # In: a copied to the chip. Each iteration: a row read, a row written. Out: the result.
    assert count_memory_bytes(module) == line + 6 * (line + line) + line


def test_trip_counts_of_the_compiler_are_used():
    text = TEXT.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"5"}}')
    assert HloModule(text).run_counts["body"] == 5


def test_shapes():
    (one,) = [one for one in HloModule(TEXT).computations["body"] if one.name == "state"]
    assert [array.memory_space for array in one.arrays] == [0, 1, 0, 0]
    assert [array.num_bytes for array in one.arrays] == [4, 512, 3072, 3072]
    assert (
        HloArray("bf16", (3, 5), 0).num_bytes == 30
        and HloArray("pred", (8,), 0).num_bytes == 8
        and HloArray("u4", (8,), 0).num_bytes == 4
    )


def test_a_text_that_is_no_program_is_refused():
    with pytest.raises(ValueError, match="no ENTRY"):
        HloModule("hello\n")


# ---- programs with a known answer ------------------------------------------------


@pytest.mark.parametrize(
    ("table", "slice_space", "expected"),
    [("", "", 2 * 512), ("", "S(1)", 512), ("S(1)", "", 512), ("S(1)", "S(1)", 0)],
)
def test_a_slice_moves_itself_and_not_its_operand(table, slice_space, expected):
    text = f"""
ENTRY %main (a: f32[6,128]) -> f32[1,128] {{
  %a = f32[6,128]{{1,0:T(8,128){table}}} parameter(0)
  %s = ((f32[6,128]{{1,0:T(8,128){table}}}), f32[1,128]{{1,0:T(1,128){slice_space}}}, s32[]{{:S(2)}}) slice-start(%a), slice={{[0:1], [0:128]}}
  ROOT %d = f32[1,128]{{1,0:T(1,128){slice_space}}} slice-done(%s)
}}
"""
    assert count_memory_bytes(HloModule(text)) == expected
    plain = text.replace("%d = ", "%x = ").replace(
        text[text.index("  %s = ") : text.index("slice-start")],
        f"  ROOT %d = f32[1,128]{{1,0:T(1,128){slice_space}}} ",
    )
    plain = "\n".join(line for line in plain.splitlines() if "slice-done" not in line)
    assert count_memory_bytes(HloModule(plain.replace("slice-start", "slice"))) == expected


def count_bytes(function, *arrays):
    """Return the bytes that a function moves, compiled for one device of this machine."""
    return count_memory_bytes(HloModule(jax.jit(function).lower(*arrays).compile().as_text()))


def test_a_matmul_chain_moves_its_operands_and_results():
    x, v, w = jnp.zeros((8, 256)), jnp.zeros((256, 512)), jnp.zeros((512, 128))
    sizes = x.size + v.size + 2 * 8 * 512 + w.size + 8 * 128
    assert count_bytes(lambda x, v, w: (x @ v) @ w, x, v, w) == 4 * sizes


def test_a_cast_reads_four_bytes_and_writes_two():
    assert count_bytes(lambda x: x.astype(jnp.bfloat16), jnp.zeros((64, 1024))) == 6 * 64 * 1024


def test_a_gather_reads_the_rows_that_it_takes():
    table, ids = jnp.zeros((50_000, 128)), jnp.zeros((16,), jnp.int32)
    moved = count_bytes(lambda table, ids: table.at[ids].get(mode="clip"), table, ids)
    assert moved == pytest.approx(2 * 16 * 128 * 4, rel=0.02)


def test_a_scan_reads_each_slice_once():
    ws, x = jnp.zeros((12, 256, 256)), jnp.zeros((4, 256))
    moved = count_bytes(
        lambda x, ws: jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0], x, ws
    )
    # A weight is sliced from the stack, written, and read by the matmul; the states are small.
    assert ws.nbytes <= moved <= 3 * ws.nbytes + 12 * 8 * x.nbytes


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
