"""A program's text, its traffic counted by hand, and programs with a known answer."""

import jax
import jax.numpy as jnp
import pytest

from pretrain.plan.hbm_traffic import count_memory_bytes, count_on_chip_kernel_bytes
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


def test_an_instruction_with_line_breaks_ends_no_computation():
    """Those of a Pallas kernel, whose metadata have a brace at the start of a line."""
    kernel = """  %kernel = f32[128]{0:T(128)S(1)} custom-call(%near), custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"block":"{\\"q\\": 512}"
}}, metadata={op_name="jit(f)/kernel"}
"""
    text = TEXT.replace("  %start =", kernel + "  %start =")
    module, plain = HloModule(text), HloModule(TEXT)
    assert module.run_counts == plain.run_counts
    (found,) = [one for one in module.computations["main"] if one.name == "kernel"]
    assert 'op_name="jit(f)/kernel"' in found.attributes
    assert count_memory_bytes(module) == count_memory_bytes(plain)


def test_arrays_of_a_kernel_that_are_on_the_chip_are_not_in_hbm():
    """In the loop: the variable %x and the result are on the chip, the table is in HBM."""
    kernel = """  %kernel = (f32[128]{0:T(128)S(1)}, f32[6,128]{1,0:T(8,128)}) custom-call(%x, %table), custom_call_target="tpu_custom_call"
"""
    module = HloModule(TEXT.replace("  %filled =", kernel + "  %filled ="))
    assert count_on_chip_kernel_bytes(module) == 6 * 2 * 128 * 4
    assert count_memory_bytes(module) == count_memory_bytes(HloModule(TEXT))
    assert count_on_chip_kernel_bytes(HloModule(TEXT)) == 0


def test_a_fused_cast_reads_its_operand():
    """The root of the fusion only maps the elements of its parameter; a row of it is read less."""
    text = """
%cast (p: f32[64,1024]) -> bf16[64,1024] {
  %p = f32[64,1024]{1,0} parameter(0)
  ROOT %c = bf16[64,1024]{1,0} convert(%p)
}

ENTRY %main (x: f32[64,1024]) -> bf16[64,1024] {
  %x = f32[64,1024]{1,0} parameter(0)
  ROOT %f = bf16[64,1024]{1,0} fusion(%x), kind=kLoop, calls=%cast
}
"""
    assert count_memory_bytes(HloModule(text)) == 6 * 64 * 1024
    row = text.replace(
        "ROOT %c = bf16[64,1024]{1,0} convert(%p)",
        """%c = bf16[64,1024]{1,0} convert(%p)
  ROOT %r = bf16[1,1024]{1,0} slice(%c), slice={[0:1], [0:1024]}""",
    )
    row = row.replace("ROOT %f = bf16[64,1024]", "ROOT %f = bf16[1,1024]")
    assert count_memory_bytes(HloModule(row)) < 6 * 1024 + 1


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
