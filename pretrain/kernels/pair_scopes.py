"""Name scopes that state how much of an attention square a mask leaves.

A jaxpr shows the shapes of a matmul and the grid of a kernel, but not what a mask hides or skips.
These scopes write it into the names of the equations, where `pretrain.training.flops` reads it.
They change no result.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from models.layers.masks import Mask

VISIBLE_PAIRS = re.compile(r"visible_(\d+)_of_(\d+)")
RARE = "for_queries_without_keys"
KERNEL = re.compile(r"splash_m[hq]a_(fwd|dq|dkv)_")


def name_visible_pairs(attend: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return `attend` inside a scope that states how many of the pairs it scores are visible."""

    @functools.wraps(attend)
    def attend_in_scope(q_BLHK: jax.Array, k_BMHK: jax.Array, *args: Any, **options: Any) -> Any:
        mask = options.get("mask")
        if not isinstance(mask, Mask) or mask.local_window_size == (None, None):
            return attend(q_BLHK, k_BMHK, *args, **options)
        L, M = q_BLHK.shape[1], k_BMHK.shape[1]
        visible = mask.count_visible_pairs(L, M)
        scored = L * M if options.get("bias") is not None else mask.count_scored_pairs(L, M)
        with jax.named_scope(f"visible_{visible}_of_{scored}"):
            return attend(q_BLHK, k_BMHK, *args, **options)

    return attend_in_scope


def read_visible_share(scope: str) -> Fraction:
    """Return the share of visible pairs that a name scope states; 1 if it states none."""
    found = VISIBLE_PAIRS.search(scope)
    return Fraction(int(found[1]), int(found[2])) if found else Fraction(1)


def name_rare_branch() -> contextlib.AbstractContextManager[Any]:
    """Return a scope for a conditional whose costly branch only rows of padding take."""
    return jax.named_scope(RARE)


def is_rare_branch(scope: str) -> bool:
    """Return whether a name scope comes from `name_rare_branch`."""
    return RARE in scope


def name_computed_blocks(
    kernel: Any, count_blocks: Callable[[int, int], int]
) -> contextlib.AbstractContextManager[Any]:
    """Return a scope that states how many blocks each pass of a Splash kernel computes.

    Args:
      count_blocks: (sizes of a block of queries, of keys) -> how many blocks of a head hold a pair
        that is visible, such as `count_visible_blocks`.
    """
    sizes = kernel.kwargs["block_sizes"]
    passes = {
        "fwd": (kernel.fwd_mask_info, sizes.block_q, sizes.block_kv),
        "dq": (kernel.dq_mask_info, sizes.block_q_dq, sizes.block_kv_dq),
        "dkv": (kernel.dkv_mask_info, sizes.block_q_dkv, sizes.block_kv_dkv),
    }
    counts = []
    for name, (mask_info, block_q, block_kv) in passes.items():
        _, *grid = mask_info.block_mask.shape  # The first axis is of the heads.
        counts.append(f"{name}_{count_blocks(block_q, block_kv)}_of_{math.prod(grid)}")
    return jax.named_scope("_".join(["blocks", *counts]))


def count_visible_blocks(
    reach: tuple[int | None, int | None], L: int, M: int, block_q: int, block_kv: int
) -> int:
    """Return how many blocks of an L x M square hold a pair that is visible."""
    num_before, num_after = reach
    first_queries = np.arange(0, L, block_q)
    first_keys = 0 if num_before is None else np.maximum(first_queries - num_before, 0)
    end_keys = (
        M if num_after is None else np.minimum(first_queries + block_q + num_after, M)
    ) + np.zeros(len(first_queries), int)
    return int((-(-end_keys // block_kv) - first_keys // block_kv).clip(0).sum())


def read_computed_share(scope: str) -> Fraction:
    """Return the share of a kernel's blocks that it computes, by its name scope; 1 by default."""
    kernel = KERNEL.search(scope)
    found = kernel and re.search(rf"blocks_[\w]*?{kernel[1]}_(\d+)_of_(\d+)", scope)
    return Fraction(int(found[1]), int(found[2])) if found else Fraction(1)
