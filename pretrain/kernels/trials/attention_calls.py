"""The calls of attention in a program, and random inputs of their shapes.

A call is cut to a few rows and to the heads of one device. Its masks keep their rules: padding of
several lengths, texts that are packed into a row, ranks, chunks and windows.

B batch   L length of queries   M length of keys   H heads   K head width   P predicted positions
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from models.layers.masks import Mask
from models.layers.relative.distance_bias import DistanceBias
from pretrain.kernels.attention.choice import AttentionCall
from pretrain.kernels.hash_dropout import drop_by_hash

ROWS = 4, 3, 2  # that a trial may have; the first that divides a device's rows
# Pairs of queries and keys in a trial: the plain equations hold several arrays of 256 MiB.
MAX_PAIRS = 1 << 26
HIDDEN_RANK = np.iinfo(np.int32).max  # of padding: no query has a higher one


def describe_value(value: Any) -> Any:
    """Return a JSON-like description of a part of a call, equal in all processes and starts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        known = {name: describe_value(part) for name, part in parts.items() if part is not None}
        return {"type": type(value).__name__} | known
    if isinstance(value, tuple):
        return [describe_value(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return f"{np.dtype(value.dtype).name}{list(value.shape)}"


def describe_call(call: AttentionCall) -> dict[str, Any]:
    """Return a JSON-like description of a call."""
    return {name: describe_value(part) for name, part in call._asdict().items()}


def name_call(call: AttentionCall) -> str:
    """Return the sizes of a call as a person reads them."""
    B, L, H, K = call.q_BLHK.shape
    parts = [f"{B} x {L} x {call.k_BMHK.shape[1]} positions, {H} heads of {K}"]
    parts.append(np.dtype(call.q_BLHK.dtype).name)
    if isinstance(call.mask, Mask):
        names = ("attention_mask_BM", "segment_ids", "pattern", "chunks", "ranks", "window")
        words = ("padding", "packed texts", "a sparse pattern", "chunks", "ranks", "a window")
        parts += [w for n, w in zip(names, words) if getattr(call.mask, n) is not None]
        parts += ["causal"] if call.mask.causal else []
    parts += ["a bias"] if call.bias is not None else []
    parts += ["a soft cap"] if call.soft_cap is not None else []
    parts += [f"dropout {call.drop.rate:g}"] if call.drop is not None else []
    return ", ".join(parts)


def count_pairs(call: AttentionCall) -> int:
    """Return the pairs that the plain equations score in one head of one row."""
    L, M = call.q_BLHK.shape[1], call.k_BMHK.shape[1]
    return call.mask.count_scored_pairs(L, M) if isinstance(call.mask, Mask) else L * M


def cut_call(call: AttentionCall, mesh: Mesh) -> AttentionCall:
    """Return the shapes of a call with a few rows and the heads of one device.

    Long rows have fewer heads, and one row.
    """
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype),
        call._replace(scale=None, drop=None, soft_cap=None),
    )
    B, _, H, _ = call.q_BLHK.shape
    num_shards, num_parts = mesh.shape["data"] * mesh.shape["fsdp"], mesh.shape["model"]
    own_rows = B if B % num_shards else B // num_shards
    heads = H if H % num_parts else H // num_parts
    num_rows = next((count for count in ROWS if own_rows % count == 0), 1)
    pairs = count_pairs(call)
    num_rows = num_rows if num_rows * heads * pairs <= MAX_PAIRS else 1
    fitting = [
        n for n in range(1, heads + 1) if heads % n == 0 and num_rows * n * pairs <= MAX_PAIRS
    ]
    heads = max(fitting, default=1)
    return _resize(shapes, num_rows, heads)._replace(
        scale=call.scale,
        drop=call.drop and call.drop.replace(key=None, drop_fn=drop_by_hash),
        soft_cap=call.soft_cap,
    )


def _resize(call: AttentionCall, num_rows: int, heads: int) -> AttentionCall:
    """Return the shapes of a call with other numbers of rows and of heads."""

    def cut(x: Any, **axes: int) -> Any:
        """Set axes of a shape, a0=4 the first; axes of size 1 are broadcast and stay."""
        if x is None:
            return None
        sizes = list(x.shape)
        for name, size in axes.items():
            axis = int(name[1:])
            sizes[axis] = 1 if sizes[axis] == 1 else size
        return jax.ShapeDtypeStruct(tuple(sizes), x.dtype)

    mask, bias = call.mask, call.bias
    if isinstance(mask, Mask):
        chunks = mask.chunks
        if chunks is not None and chunks.buckets_BHRL is not None:
            chunks = chunks.replace(buckets_BHRL=cut(chunks.buckets_BHRL, a0=num_rows, a1=heads))
        pairs = {
            name: ids and tuple(cut(x, a0=num_rows) for x in ids)
            for name, ids in (("segment_ids", mask.segment_ids), ("ranks", mask.ranks))
        }
        attention_mask = cut(mask.attention_mask_BM, a0=num_rows)
        mask = mask.replace(attention_mask_BM=attention_mask, chunks=chunks, **pairs)
    elif mask is not None and len(mask.shape) == 4:
        mask = cut(mask, a0=num_rows, a1=heads)
    if isinstance(bias, DistanceBias):
        texts = bias.texts and bias.texts.replace(
            same_BHL=cut(bias.texts.same_BHL, a0=num_rows, a1=heads),
            other_BHL=cut(bias.texts.other_BHL, a0=num_rows, a1=heads),
            query_ids_BL=cut(bias.texts.query_ids_BL, a0=num_rows),
            key_ids_BN=cut(bias.texts.key_ids_BN, a0=num_rows),
        )
        bias = bias.replace(
            q_BLHK=cut(bias.q_BLHK, a0=num_rows, a2=heads),
            r_RHK=cut(bias.r_RHK, a1=heads),
            position_BP=cut(bias.position_BP, a0=num_rows),
            texts=texts,
        )
    elif bias is not None:
        bias = cut(bias, a0=num_rows, a1=heads)
    q, k, v = (cut(x, a0=num_rows, a2=heads) for x in call[:3])
    return call._replace(q_BLHK=q, k_BMHK=k, v_BMHK=v, mask=mask, bias=bias)


class InputDrawer:
    """Draws the inputs of a call: what the masks and the bias say of a row fits together.

    Attributes:
      is_own_row: whether queries and keys are of one row, of which some queries may be predicted
        positions; else, as from a decoder to an encoder, each has its own.
      lengths_B: the tokens of each row of keys, without a memory's.
      text_ids: the text of each query and of each key; 0 on padding.
    """

    def __init__(self, call: AttentionCall, seed: int = 0) -> None:
        """Draw what the parts share."""
        self.call, self.rng = call, np.random.default_rng(seed)
        B, L = call.q_BLHK.shape[:2]
        M, mask, bias = call.k_BMHK.shape[1], call.mask, call.bias
        self.offset = mask.offset if isinstance(mask, Mask) else 0
        N = M - self.offset
        ranks = mask.ranks if isinstance(mask, Mask) else None
        has_positions = isinstance(bias, DistanceBias) and bias.position_BP is not None
        self.is_own_row = L == N or ranks is not None or has_positions
        self.lengths_B = np.array([N, *self.rng.integers(N // 2 + 1, N + 1, B)])[:B]
        P = max(L - N, 0) if self.is_own_row else 0
        self.positions_BP = np.sort(
            [self.rng.choice(N, P, replace=P > N) for _ in range(B)], axis=-1
        ).astype(np.int32)
        is_start_BM = self.rng.random((B, M)) < 5 / M
        ids_BM = 1 + np.cumsum(is_start_BM, axis=1, dtype=np.int32)
        ids_BM[:, self.offset :][np.arange(N) >= self.lengths_B[:, None]] = 0
        if self.is_own_row:
            ids_BL = self._spread(ids_BM[:, self.offset :])
        else:
            ids_BL = np.sort([self.rng.choice(ids_B[ids_B > 0], L) for ids_B in ids_BM], axis=-1)
        self.text_ids = ids_BL, ids_BM

    def _spread(self, x_BN: np.ndarray) -> np.ndarray:
        """Return what each query has of its position in the row."""
        predicted_BP = np.take_along_axis(x_BN, self.positions_BP, axis=1)
        L = self.call.q_BLHK.shape[1] - self.positions_BP.shape[1]
        return np.concatenate([x_BN[:, :L], predicted_BP], axis=1)

    def find_valid_queries(self) -> np.ndarray:
        """Return bool [B, L]: the queries whose outputs count. Padding may attend to anything."""
        B, L = self.call.q_BLHK.shape[:2]
        mask = self.call.mask
        is_padded = isinstance(mask, Mask) and (
            mask.attention_mask_BM is not None or mask.segment_ids or mask.ranks
        )
        if not self.is_own_row or not is_padded:
            return np.ones((B, L), bool)
        N = self.call.k_BMHK.shape[1] - self.offset
        return self._spread(np.arange(N) < self.lengths_B[:, None])

    def draw_arrays(self) -> AttentionCall:
        """Return the call with arrays of NumPy; scores have a deviation of about 1."""
        call, rng = self.call, self.rng
        K = call.q_BLHK.shape[-1]
        deviation = 1.0 if call.scale is None else K**-0.5 / call.scale
        q, k, v = (
            rng.standard_normal(x.shape, np.float32).astype(x.dtype) * np.asarray(size, x.dtype)
            for x, size in zip(call[:3], (deviation, 1.0, 1.0), strict=True)
        )
        drop = call.drop
        if drop is not None:
            drop = drop.replace(key=rng.integers(0, 2**32, 2, np.uint32))
        mask, bias = self._draw_mask(), self._draw_bias()
        return AttentionCall(q, k, v, mask, bias, call.scale, drop, call.soft_cap)

    def _draw_mask(self) -> Any:
        mask, rng = self.call.mask, self.rng
        if mask is None:
            return None
        if not isinstance(mask, Mask):  # each query sees its own position, or the first one
            L, M = mask.shape[-2:]
            is_own_LM = np.minimum(np.arange(L), M - 1)[:, None] == np.arange(M)
            return (rng.random(mask.shape) < 0.7) | is_own_LM
        ids_BL, ids_BM = self.text_ids
        is_token_BM = np.ones(ids_BM.shape, bool)
        is_token_BM[:, self.offset :] = (
            np.arange(ids_BM.shape[1] - self.offset) < self.lengths_B[:, None]
        )
        chunks = mask.chunks
        if chunks is not None and chunks.buckets_BHRL is not None:
            shape = chunks.buckets_BHRL.shape
            count = max(2, shape[-1] // chunks.size)
            chunks = chunks.replace(buckets_BHRL=rng.integers(0, count, shape, np.int32))
        return mask.replace(
            attention_mask_BM=None if mask.attention_mask_BM is None else is_token_BM,
            segment_ids=mask.segment_ids and (ids_BL, ids_BM),
            ranks=mask.ranks and self._draw_ranks(is_token_BM),
            chunks=chunks,
        )

    def _draw_ranks(self, is_token_BM: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ranks as of a permutation: predicted positions in an order, after all others."""
        B, M = is_token_BM.shape
        ranks_BN = np.zeros((B, M - self.offset), np.int32)
        for ranks_N, positions_P in zip(ranks_BN, self.positions_BP, strict=True):
            ranks_N[positions_P] = self.rng.permutation(len(positions_P)) + 1
        key_ranks_BM = np.full((B, M), -1, np.int32)
        key_ranks_BM[:, self.offset :] = ranks_BN
        key_ranks_BM[~is_token_BM] = HIDDEN_RANK
        return np.maximum(self._spread(ranks_BN), 1), key_ranks_BM

    def _draw_bias(self) -> Any:
        bias, rng = self.call.bias, self.rng

        def draw(x: Any) -> np.ndarray:
            return rng.standard_normal(x.shape, np.float32).astype(x.dtype)

        if not isinstance(bias, DistanceBias):
            return None if bias is None else draw(bias)
        texts = bias.texts
        if texts is not None:
            ids_BL, ids_BM = self.text_ids
            texts = texts.replace(
                same_BHL=draw(texts.same_BHL),
                other_BHL=draw(texts.other_BHL),
                query_ids_BL=ids_BL,
                key_ids_BN=ids_BM,
            )
        return bias.replace(
            q_BLHK=draw(bias.q_BLHK),
            r_RHK=draw(bias.r_RHK),
            position_BP=None if bias.position_BP is None else self.positions_BP,
            texts=texts,
        )
