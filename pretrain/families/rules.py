"""Rules that map our parameters to those of Hugging Face transformers, and back. No JAX.

A rule is (our path, their name, layout). A path with `layers` and a name with `{i}` stand for every layer of that stack,
whether ours are stacked (a leaf has a leading axis of layers) or not (`layer_0`, ...).

D width   H heads   K head width
"""

import math
from collections.abc import Callable
from typing import NamedTuple


class Layout(NamedTuple):
    """Two inverse functions: ours -> theirs, and (theirs, our shape) -> ours."""

    theirs: Callable
    ours: Callable


def kernel(contract):
    """Ours is [in..., out...], of which the first `contract` are summed over; theirs is the matrix [out, in]."""
    return Layout(
        theirs=lambda a: a.reshape(math.prod(a.shape[:contract]), -1).T,
        ours=lambda a, shape: a.T.reshape(shape),
    )


SAME = Layout(theirs=lambda a: a, ours=lambda a, shape: a)
JOINED = Layout(
    theirs=lambda a: a.reshape(-1), ours=lambda a, shape: a.reshape(shape)
)  # a bias [H, K] <-> [H * K]
KERNEL = kernel(1)  # [D, ...] <-> [..., D]
KERNEL_OUT = kernel(2)  # [H, K, D] <-> [D, H * K]


def linear(ours, theirs, layout=KERNEL):
    """The two rules of a linear map with a bias."""
    return (f"{ours}/kernel", f"{theirs}.weight", layout), (
        f"{ours}/bias",
        f"{theirs}.bias",
        JOINED,
    )


def norm(ours, theirs):
    """The two rules of a layer norm."""
    return (f"{ours}/scale", f"{theirs}.weight", SAME), (f"{ours}/bias", f"{theirs}.bias", SAME)


class Part(NamedTuple):
    """A name of theirs for one of `count` equal parts of a tensor, along `axis`, such as the queries of a fused projection.

    A rule may have it in the place of a name; the parts are joined in an export and split in an import.
    """

    name: str
    index: int
    count: int
    axis: int
