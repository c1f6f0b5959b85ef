"""Rules that map our parameters to Hugging Face transformers' parameters, and back. No JAX.

"Ours" are this project's parameters, "theirs" the tensors of transformers. A rule is (our path,
their name, layout). A path with `layers` and a name with `{i}` stand for every layer of that stack,
whether ours are stacked (a leaf has a leading axis of layers) or not (`layer_0`, ...). `Index`
numbers their layers otherwise. A rule with a `JoinLayout` has several paths instead of one, a rule
with a `SplitLayout` several names.

D width   H heads   K head width
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np


class Layout(NamedTuple):
    """One leaf and one tensor: two inverse functions.

    theirs: (our leaf) -> their tensor.
    ours: (their tensor, our shape) -> our leaf.
    """

    theirs: Callable[[np.ndarray], np.ndarray]
    ours: Callable[[np.ndarray, Sequence[int]], np.ndarray]

    def export_tensors(self, leaves: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return their tensors [1] of our leaves [1]."""
        (leaf,) = leaves
        return (self.theirs(leaf),)

    def fill_params(
        self, tensors: Sequence[np.ndarray], shapes: Sequence[Sequence[int]]
    ) -> tuple[np.ndarray, ...]:
        """Return our leaves [1], of the given shapes, of their tensors [1]."""
        (tensor,), (shape,) = tensors, shapes
        return (self.ours(tensor, shape),)


class JoinLayout(NamedTuple):
    """Several of our leaves in one of their tensors, in the order of the rule's paths.

    layout: the layout of each leaf alone, or one for each.
    axis: the axis of their tensor along which the leaves are concatenated.
    interleave: an axis of ours, counted from the end, whose entries alternate along `axis`: the
      first entry of every leaf, then the second of every leaf, and so on. -2 of [D, H, K] and of
      [H, K] fuses per head, as GPT-NeoX does. In `axis` of one leaf it is the slowest axis.
    """

    layout: Layout | tuple[Layout, ...]
    axis: int = 0
    interleave: int | None = None

    def list_layouts(self, num_leaves: int) -> tuple[Layout, ...]:
        """Return the layout of each leaf."""
        return (self.layout,) * num_leaves if isinstance(self.layout, Layout) else self.layout

    def export_tensors(self, leaves: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return their tensors [1] of our leaves.

        Raises:
          ValueError: the shapes of the leaves do not fit together.
        """
        layouts = self.list_layouts(len(leaves))
        tensors = [layout.theirs(leaf) for layout, leaf in zip(layouts, leaves, strict=True)]
        groups = _num_groups(self.interleave, [leaf.shape for leaf in leaves])
        return (_join_along(tensors, self.axis, groups),)

    def fill_params(
        self, tensors: Sequence[np.ndarray], shapes: Sequence[Sequence[int]]
    ) -> tuple[np.ndarray, ...]:
        """Return our leaves, of the given shapes, of their tensors [1]."""
        (tensor,) = tensors
        layouts = self.list_layouts(len(shapes))
        wholes = [
            layout.theirs(make_placeholder(shape))
            for layout, shape in zip(layouts, shapes, strict=True)
        ]
        sizes = [whole.shape[self.axis] for whole in wholes]
        parts = _split_along(tensor, sizes, self.axis, _num_groups(self.interleave, shapes))
        return tuple(
            layout.ours(part, shape) for layout, part, shape in zip(layouts, parts, shapes)
        )


class SplitLayout(NamedTuple):
    """One of our leaves in several of their tensors, in the order of the rule's names.

    parts: the number of their tensors, which then have equal sizes, or their sizes along `axis`.
    layout, axis, interleave: of the one tensor that a `JoinLayout` would make of theirs.
    """

    layout: Layout
    parts: int | tuple[int, ...]
    axis: int = 0
    interleave: int | None = None

    @property
    def num_parts(self) -> int:
        """The number of their tensors."""
        return self.parts if isinstance(self.parts, int) else len(self.parts)

    def export_tensors(self, leaves: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return their tensors of our leaves [1].

        Raises:
          ValueError: the leaf does not divide into the parts.
        """
        (leaf,) = leaves
        whole = self.layout.theirs(leaf)
        length, sizes = whole.shape[self.axis], self.parts
        if isinstance(sizes, int):
            sizes = (length // sizes,) * sizes
        if sum(sizes) != length:
            raise ValueError(
                f"axis {self.axis} of {list(whole.shape)} does not divide into {self.parts} parts"
            )
        return tuple(
            _split_along(whole, sizes, self.axis, _num_groups(self.interleave, [leaf.shape]))
        )

    def fill_params(
        self, tensors: Sequence[np.ndarray], shapes: Sequence[Sequence[int]]
    ) -> tuple[np.ndarray, ...]:
        """Return our leaves [1], of the given shapes, of their tensors."""
        whole = _join_along(tensors, self.axis, _num_groups(self.interleave, shapes))
        return (self.layout.ours(whole, shapes[0]),)


AnyLayout: TypeAlias = Layout | JoinLayout | SplitLayout
# (our path or paths, their name or names, layout)
Rule: TypeAlias = tuple[str | tuple[str, ...], str | tuple[str, ...], AnyLayout]
Rules: TypeAlias = tuple[Rule, ...]


def make_placeholder(shape: Sequence[int]) -> np.ndarray:
    """Return an array of a shape that takes one byte of memory."""
    return np.broadcast_to(np.False_, shape)


def _num_groups(interleave: int | None, shapes: Sequence[Sequence[int]]) -> int:
    """Return the length of the axis `interleave` of the shapes; 1 for None."""
    groups = {1 if interleave is None else shape[interleave] for shape in shapes}
    if len(groups) > 1:
        raise ValueError(
            f"shapes {[list(shape) for shape in shapes]} are interleaved along axis {interleave}, "
            "which must be of one length"
        )
    return groups.pop()


def _join_along(parts: Sequence[np.ndarray], axis: int, groups: int) -> np.ndarray:
    """Return the parts concatenated along `axis`, in each of `groups` equal sections of it."""
    shapes = [list(part.shape) for part in parts]
    axis %= parts[0].ndim
    if any(
        shape[:axis] + shape[axis + 1 :] != shapes[0][:axis] + shapes[0][axis + 1 :]
        for shape in shapes
    ):
        raise ValueError(f"{shapes} differ in another axis than {axis} and cannot be joined")
    if any(shape[axis] % groups for shape in shapes):
        raise ValueError(f"axis {axis} of {shapes} does not divide into {groups} groups")
    sections = [
        part.reshape(*part.shape[:axis], groups, -1, *part.shape[axis + 1 :]) for part in parts
    ]
    whole = np.concatenate(sections, axis + 1)
    return whole.reshape(*whole.shape[:axis], -1, *whole.shape[axis + 2 :])


def _split_along(
    whole: np.ndarray, sizes: Sequence[int], axis: int, groups: int
) -> list[np.ndarray]:
    """Return the parts of `whole`, with the given sizes along `axis`: inverts `_join_along`."""
    if any(size % groups for size in sizes):
        raise ValueError(f"parts of {list(sizes)} do not divide into {groups} groups")
    axis %= whole.ndim
    before, after = whole.shape[:axis], whole.shape[axis + 1 :]
    *ends, length = np.cumsum(sizes) // groups
    parts = np.split(whole.reshape(*before, groups, length, *after), ends, axis + 1)
    return [part.reshape(*before, size, *after) for part, size in zip(parts, sizes, strict=True)]


class Index(NamedTuple):
    """The number of their layer for our layer i of a stack: start + stride * i.

    In a name: f"layers.{Index(1, 3)}.norm.weight" is "layers.{1 + 3*i}.norm.weight".
    """

    start: int = 0
    stride: int = 1

    def __call__(self, i: int) -> int:
        """Return the number of their layer."""
        return self.start + self.stride * i

    def __str__(self) -> str:
        start = f"{self.start} + " if self.start else ""
        return f"{{{start}{f'{self.stride}*' if self.stride != 1 else ''}i}}"


def split_index(name: str) -> tuple[str, Index | None, str]:
    """Return (text before the index, index, text after it) of a name; or (name, None, "").

    Raises:
      ValueError: there are braces other than one of {i}, {3*i}, {1 + i} and {1 + 3*i}.
    """
    before, *found = re.split(r"\{(?:(\d+) \+ )?(?:(\d+)\*)?i\}", name)
    start, stride, after = found if len(found) == 3 else (None, None, "")
    if len(found) > 3 or re.search(r"[{}]", before + after):
        raise ValueError(f"{name} has braces other than one {{i}} or {{START + STRIDE*i}}")
    index = Index(int(start or 0), int(stride or 1)) if found else None
    return before, index, after


def make_kernel_layout(num_contracting_dims: int) -> Layout:
    """Return the layout of a kernel: ours [in..., out...], theirs the matrix [out, in].

    num_contracting_dims: the number of input dimensions.
    """
    return Layout(
        theirs=lambda a: a.reshape(math.prod(a.shape[:num_contracting_dims]), -1).T,
        ours=lambda a, shape: a.T.reshape(shape),
    )


SAME = Layout(theirs=lambda a: a, ours=lambda a, shape: a)
# a bias [H, K] <-> [H * K]
JOINED = Layout(theirs=lambda a: a.reshape(-1), ours=lambda a, shape: a.reshape(shape))
KERNEL = make_kernel_layout(1)  # [D, ...] <-> [..., D]
KERNEL_OUT = make_kernel_layout(2)  # [H, K, D] <-> [D, H * K]


def map_linear(ours: str, theirs: str, layout: Layout = KERNEL) -> Rules:
    """Return the two rules of a linear map with a bias."""
    return (f"{ours}/kernel", f"{theirs}.weight", layout), (
        f"{ours}/bias",
        f"{theirs}.bias",
        JOINED,
    )


def map_scores(ours: str, theirs: str) -> Rules:
    """Return the rule of a linear map without a bias."""
    return (map_linear(ours, theirs)[0],)


def map_norm(ours: str, theirs: str) -> Rules:
    """Return the two rules of a layer norm."""
    return (f"{ours}/scale", f"{theirs}.weight", SAME), (f"{ours}/bias", f"{theirs}.bias", SAME)


def map_embeddings(ours: str, theirs: str, **tables: str) -> Rules:
    """Return the rules of learned embeddings and their norm; tables: {our name: their name}."""
    rules = (
        (f"{ours}/{name}/embedding", f"{theirs}.{table}.weight", SAME)
        for name, table in tables.items()
    )
    return (*rules, *map_norm(f"{ours}/norm", f"{theirs}.LayerNorm"))


def map_layer(
    ours: str,
    theirs: str,
    *,
    query: str,
    key: str,
    value: str,
    out: str,
    attention_norm: str,
    up: str,
    down: str,
    mlp_norm: str,
) -> Rules:
    """Return the rules of a layer of attention and a feed-forward network.

    ours, theirs: the path of the layer. Each keyword argument is their name of our module.
    """
    return (
        *map_linear(f"{ours}/attention/query", f"{theirs}.{query}"),
        *map_linear(f"{ours}/attention/key", f"{theirs}.{key}"),
        *map_linear(f"{ours}/attention/value", f"{theirs}.{value}"),
        *map_linear(f"{ours}/attention/out", f"{theirs}.{out}", KERNEL_OUT),
        *map_norm(f"{ours}/attention_norm", f"{theirs}.{attention_norm}"),
        *map_linear(f"{ours}/mlp/up", f"{theirs}.{up}"),
        *map_linear(f"{ours}/mlp/down", f"{theirs}.{down}"),
        *map_norm(f"{ours}/mlp_norm", f"{theirs}.{mlp_norm}"),
    )
