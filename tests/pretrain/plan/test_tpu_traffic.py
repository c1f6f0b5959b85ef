"""The traffic of programs compiled for TPUs, against bytes computed by hand."""

import importlib.util
import json
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None,
        reason="libtpu, the TPU's compiler, is not installed (Linux only)",
    ),
]
SQUARE = 16384 * 16384 * 2  # bytes of the square of bfloat16 of most programs
# The counter of a loop and its like are read and written too.
SCALARS = 1000


@pytest.fixture(scope="module")
def traffic(root):
    done = subprocess.run(
        [sys.executable, "-m", "tests.pretrain.plan.tpu_programs"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.held_by(3)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # x, v and their product; the product, w and the result.
        ("matmul chain", 6 * SQUARE),
        # Each tile of x in and out, and with it a tile of the row, 32 times in all.
        ("kernel", 3 * SQUARE),
        # float32 in, bfloat16 out.
        ("cast", 3 * SQUARE),
        # The ids; each row in and out. Not the table.
        ("gather", 2**16 * 4 + 2 * 2**16 * 1024 * 4),
        # One of the six squares, the other operand, the sum.
        ("slice", 3 * SQUARE),
        # Each slice in, each slice out.
        ("scan over slices, in and out", 2 * 6 * SQUARE),
        # Each iteration: a copy of the carry, in and out, because a product cannot overwrite its
        # operand; then carry, weight and product. Before the loop: one copy of x.
        ("scan of large products", 6 * (2 + 3) * SQUARE + 2 * SQUARE),
        # The carry of 2 MiB stays on the chip: x in, the result out, each weight once.
        ("scan of small products", 12 * 2048 * 2048 * 2 + 2 * 512 * 2048 * 2),
    ],
)
def test_the_bytes_of_a_program_are_those_counted_by_hand(traffic, name, expected):
    assert expected <= traffic[name]["memory"] <= expected + SCALARS
    assert traffic[name]["exchanges"] == []


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("matmul chain", 0),
        ("cast", 0),
        # A sum.
        ("kernel", 16384**2),
        # A product, a sum, a maximum, and the sum of all, which follow the matmul in its fusion.
        ("activation", 4 * 4096**2),
        # A product of each element of six squares.
        ("scan over slices, in and out", 6 * 16384**2),
    ],
)
def test_the_operations_of_a_program_are_those_counted_by_hand(traffic, name, expected):
    assert expected <= traffic[name]["vector"] <= 1.01 * expected + SCALARS


# Of v: a shard in, the whole out; x, v in, the product out. Of w, half as large: a shard in, the
# whole out; the product, w in, the result out.
GATHERED = (1 / 4 + 1) + (1 / 4 + 1 + 1 / 4) + (1 / 8 + 1 / 2) + (1 / 4 + 1 / 2 + 1 / 8)


@pytest.mark.parametrize("name", ["all-gather", "all-gather during a matmul"])
def test_gathers_of_one_shard_map_count_each_once(traffic, name):
    assert traffic[name]["memory"] == GATHERED * SQUARE
    exchanges = traffic[name]["exchanges"]
    assert [exchange[:3] for exchange in exchanges] == [
        ["all-gather", SQUARE, 1],
        ["all-gather", SQUARE / 2, 1],
    ]
    # Only the second has a matmul during which it can run: the first product.
    assert [overlapped for *_, overlapped in exchanges] == [False, name != "all-gather"]


def test_reduce_scatters_of_one_shard_map_count_each_whole(traffic):
    # Each chip has N x N and N/2 x N numbers of float32, and keeps a quarter of the sums.
    assert traffic["reduce-scatter"]["memory"] == (2 + 1) * SQUARE * (1 + 1 / 4)
    assert traffic["reduce-scatter"]["exchanges"] == [
        ["reduce-scatter", 2 * SQUARE, 1, False],
        ["reduce-scatter", SQUARE, 1, False],
    ]
