"""Tensor layouts of other projects, fused, split and numbered, each against loops in NumPy.

D width   H heads   K head width   F width of an MLP
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.families.rules import (
    JOINED,
    KERNEL,
    KERNEL_OUT,
    SAME,
    Index,
    JoinLayout,
    Layout,
    SplitLayout,
    split_index,
)

pytestmark = pytest.mark.fast

STRAIGHT = Layout(  # a kernel [D, H, K] <-> [D, H * K], as GPT-2's Conv1D
    theirs=lambda a: a.reshape(a.shape[0], -1), ours=lambda a, shape: a.reshape(shape)
)
D, H, K, F = 5, 3, 2, 4
QKV = tuple(np.random.default_rng(0).standard_normal((3, D, H, K)))
BIASES = tuple(np.random.default_rng(1).standard_normal((3, H, K)))


def test_fused_queries_keys_and_values_of_a_linear_layer():
    """ModernBERT's Wqkv [3 H K, D]: all queries, then all keys, then all values."""
    (fused,) = JoinLayout(KERNEL).export_tensors(QKV)
    assert fused.shape == (3 * H * K, D)
    for part, h, k in np.ndindex(3, H, K):
        np.testing.assert_array_equal(fused[part * H * K + h * K + k], QKV[part][:, h, k])
    (fused,) = JoinLayout(JOINED).export_tensors(BIASES)
    assert fused.tolist() == [x for bias in BIASES for x in bias.ravel()]


def test_fused_queries_keys_and_values_of_a_conv1d():
    """GPT-2's c_attn [D, 3 H K]."""
    (fused,) = JoinLayout(STRAIGHT, axis=-1).export_tensors(QKV)
    assert fused.shape == (D, 3 * H * K)
    for part, h, k in np.ndindex(3, H, K):
        np.testing.assert_array_equal(fused[:, part * H * K + h * K + k], QKV[part][:, h, k])
    (same,) = JoinLayout(STRAIGHT, axis=1).export_tensors(QKV)
    np.testing.assert_array_equal(same, fused)


@pytest.mark.parametrize(("layout", "axis"), [(KERNEL, 0), (KERNEL, -2), (STRAIGHT, 1)])
def test_queries_keys_and_values_fused_per_head(layout, axis):
    """GPT-NeoX's query_key_value: the query, the key and the value of the first head, then of the
    second.
    """
    (fused,) = JoinLayout(layout, axis, interleave=-2).export_tensors(QKV)
    by_output = fused if layout is KERNEL else fused.T
    assert by_output.shape == (3 * H * K, D)
    for part, h, k in np.ndindex(3, H, K):
        np.testing.assert_array_equal(by_output[h * 3 * K + part * K + k], QKV[part][:, h, k])
    (fused,) = JoinLayout(JOINED, interleave=-2).export_tensors(BIASES)
    assert fused.tolist() == [x for h in range(H) for bias in BIASES for x in bias[h]]


def test_fused_gate_and_up_of_a_gated_mlp():
    """ModernBERT's Wi [2 F, D]: the half that goes through the activation comes first."""
    gate, up = np.random.default_rng(2).standard_normal((2, D, F))
    (fused,) = JoinLayout(KERNEL).export_tensors((gate, up))
    x = np.random.default_rng(3).standard_normal(D)
    np.testing.assert_allclose(fused @ x, [*(x @ gate), *(x @ up)])
    back = JoinLayout(KERNEL).fill_params((fused,), (gate.shape, up.shape))
    assert [part.tolist() for part in back] == [gate.tolist(), up.tolist()]


def test_grouped_keys_and_values_are_narrower_than_queries():
    """With one head of keys and values for all queries, the parts of a join differ in length."""
    leaves = QKV[0], QKV[1][:, :1], QKV[2][:, :1]
    (fused,) = JoinLayout(KERNEL).export_tensors(leaves)
    assert fused.shape == ((H + 2) * K, D)
    np.testing.assert_array_equal(fused[(H + 1) * K :], QKV[2][:, 0].T)
    back = JoinLayout(KERNEL).fill_params((fused,), [leaf.shape for leaf in leaves])
    assert [leaf.tolist() for leaf in back] == [leaf.tolist() for leaf in leaves]


def test_one_leaf_split_into_several_tensors():
    """A stack of experts [3, D, F] as equal tensors; a table as tensors of given sizes; heads
    assigned in turns.
    """
    experts = np.arange(3.0 * D * F).reshape(3, D, F)
    parts = SplitLayout(SAME, 3).export_tensors((experts,))
    assert [part.tolist() for part in parts] == [experts[i : i + 1].tolist() for i in range(3)]
    table = np.arange(20.0).reshape(10, 2)
    head, tail = SplitLayout(SAME, (7, 3)).export_tensors((table,))
    assert head.tolist() == table[:7].tolist() and tail.tolist() == table[7:].tolist()
    fused = np.stack([QKV[0], QKV[1]], axis=2)  # [D, H, 2, K] is ours; theirs are two [H K, D]
    query, key = SplitLayout(KERNEL, 2, interleave=1).export_tensors((fused,))
    np.testing.assert_array_equal(query, KERNEL.theirs(QKV[0]))
    np.testing.assert_array_equal(key, KERNEL.theirs(QKV[1]))


sizes = st.integers(1, 5)
LAYOUTS = {"linear": (KERNEL, 0), "conv1d": (STRAIGHT, 1), "out": (KERNEL_OUT, 1)}


@given(
    name=st.sampled_from(sorted(LAYOUTS)),
    heads=st.lists(sizes, min_size=1, max_size=4),
    rest=st.tuples(sizes, sizes),
    interleaved=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_join_comes_back(name, heads, rest, interleaved, seed):
    """Round trips are bit-exact for leaves of any shape; interleaved ones have equally many heads,
    of any width.
    """
    (layout, axis), rng = LAYOUTS[name], np.random.default_rng(seed)
    is_out = layout is KERNEL_OUT  # [H, K, D]
    shapes = []
    for n in heads:
        H, K = (heads[0], n) if interleaved else (n, rest[1])
        shapes.append((H, K, rest[0]) if is_out else (rest[0], H, K))
    interleave = (-3 if is_out else -2) if interleaved else None
    leaves = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    join = JoinLayout(layout, axis, interleave)
    tensors = join.export_tensors(leaves)
    back = join.fill_params(tensors, shapes)
    assert len(tensors) == 1 and tensors[0].size == sum(leaf.size for leaf in leaves)
    for leaf, other in zip(leaves, back, strict=True):
        assert leaf.shape == other.shape and leaf.tobytes() == other.tobytes()


@given(
    parts=st.lists(sizes, min_size=1, max_size=4), groups=sizes, width=sizes, equal=st.booleans()
)
def test_a_split_comes_back(parts, groups, width, equal):
    parts = [parts[0]] * len(parts) if equal else parts
    leaf = np.arange(groups * sum(parts) * width, dtype=np.float32)
    leaf = leaf.reshape(width, groups, sum(parts))
    whole = len(parts) if equal else tuple(groups * size for size in parts)
    split = SplitLayout(KERNEL, whole, interleave=1)
    tensors = split.export_tensors((leaf,))
    assert [tensor.shape for tensor in tensors] == [(groups * size, width) for size in parts]
    (back,) = split.fill_params(tensors, (leaf.shape,))
    assert back.shape == leaf.shape and back.tobytes() == leaf.tobytes()


def test_leaves_that_do_not_fit_together_are_named():
    with pytest.raises(ValueError, match=r"\[\[6, 5\], \[6, 4\]\] differ in another axis than 0"):
        JoinLayout(KERNEL).export_tensors((QKV[0], QKV[1][:4]))
    with pytest.raises(
        ValueError, match=r"\[\[5, 3, 2\], \[5, 1, 2\]\] are interleaved along axis -2"
    ):
        JoinLayout(KERNEL, interleave=-2).export_tensors((QKV[0], QKV[1][:, :1]))
    with pytest.raises(
        ValueError, match=r"axis 0 of \[\[4, 3\], \[4, 3\]\] does not divide into 3"
    ):
        JoinLayout(KERNEL, interleave=0).export_tensors((np.zeros((3, 4)),) * 2)
    with pytest.raises(ValueError, match=r"axis 0 of \[6, 5\] does not divide into 4 parts"):
        SplitLayout(KERNEL, 4).export_tensors(QKV[:1])
    with pytest.raises(ValueError, match=r"axis 0 of \[6, 5\] does not divide into \(4, 1\) parts"):
        SplitLayout(KERNEL, (4, 1)).export_tensors(QKV[:1])
    with pytest.raises(ValueError, match=r"parts of \[4, 2\] do not divide into 3 groups"):
        SplitLayout(KERNEL, (4, 2), interleave=-2).export_tensors(QKV[:1])


@pytest.mark.parametrize(
    ("index", "written", "layers"),
    [
        (Index(), "{i}", [0, 1, 2]),
        (Index(3), "{3 + i}", [3, 4, 5]),
        (Index(stride=2), "{2*i}", [0, 2, 4]),
        (Index(1, 3), "{1 + 3*i}", [1, 4, 7]),
    ],
)
def test_an_index_is_written_into_a_name_and_read_again(index, written, layers):
    name = f"layers.{index}.norm.weight"
    assert name == f"layers.{written}.norm.weight"
    assert split_index(name) == ("layers.", index, ".norm.weight")
    assert [index(i) for i in range(3)] == layers


def test_a_name_without_an_index_has_none():
    assert split_index("norm.weight") == ("norm.weight", None, "")


@pytest.mark.parametrize("name", ["h.{j}.w", "h.{i}.{i}.w", "h.{i - 1}.w", "h.{i.w", "h.{i}.{}"])
def test_other_braces_are_refused(name):
    with pytest.raises(ValueError, match=r"has braces other than one \{i\} or \{START \+ STRIDE"):
        split_index(name)
