"""One layer of each family of models for long rows, as benchmarks/speed/long_rows.py measures it.

A family that does not exist is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from models import build
from pretrain.families import FAMILIES
from pretrain.kernels.model_hooks import make_local_hooks

SEGMENT = 512  # [tokens] of a segment of a Transformer-XL, and of its memory
WIDTH, HEAD_WIDTH = 128, 64


class LongRowModel(NamedTuple):
    """A model.

    Attributes:
      name: as tables show it.
      family: the name of its family.
      description: for the page.
      describe_fields: n -> further fields of its configuration.
      method: of its module, which returns the states, or a tuple that begins with them.
      reads_mask: whether the method takes an attention mask.
      in_segments: whether it reads a row in segments of SEGMENT tokens, with a memory.
      exponents: the claim: time and memory grow with a power of n between these two; None: none.
    """

    name: str
    family: str
    description: str
    describe_fields: Callable[[int], dict[str, Any]]
    method: str = "compute_states"
    reads_mask: bool = False
    in_segments: bool = False
    exponents: tuple[float, float] | None = None


def find_stride(length: int) -> int:
    """Return the multiple of 8 that is nearest to the square root of n."""
    return 8 * round(length**0.5 / 8)


def describe_encoder(length: int) -> dict[str, Any]:
    """Return the fields of an encoder with learned positions."""
    return dict(length=length, segments=1, attention_dropout=0.0)


def describe_sparse(length: int, pattern: str) -> dict[str, Any]:
    """Return the fields of a Sparse Transformer."""
    stride = find_stride(length)
    return dict(length=length, pattern=pattern, stride=stride, summary=8, subblocks=2)


def describe_transformer_xl(memory: int) -> dict[str, Any]:
    """Return the fields of a Transformer-XL."""
    return dict(head_width=HEAD_WIDTH, memory=memory, clusters=None)


def describe_reformer(length: int) -> dict[str, Any]:
    """Return the fields of a Reformer: one layer of hashed attention."""
    from models.config.reformer import Hashing  # pyright: ignore[reportMissingImports]

    return dict(
        layers=("lsh",),
        hashing=Hashing(chunk=64, rounds=2),
        head_width=HEAD_WIDTH,
        axial_shape=(length // 64, 64),
        axial_widths=(WIDTH // 2, WIDTH // 2),
    )


ALL_MODELS = (
    LongRowModel(
        "dense",
        "bert",
        "BERT, all pairs of positions",
        describe_encoder,
        "encode",
        True,
        False,
        (1.85, 2.15),
    ),
    LongRowModel(
        "Transformer-XL, one row",
        "transformer_xl",
        "without a memory",
        lambda length: describe_transformer_xl(1),
    ),
    LongRowModel(
        "Transformer-XL, segments",
        "transformer_xl",
        f"segments of {SEGMENT} with a memory of {SEGMENT}, one after the other",
        lambda length: describe_transformer_xl(SEGMENT),
        in_segments=True,
    ),
    LongRowModel(
        "XLNet",
        "xlnet",
        "the content stream",
        lambda length: dict(attention_dropout=0.0),
        "encode",
        True,
    ),
    LongRowModel(
        "Linformer",
        "linformer",
        "k = 128",
        lambda length: describe_encoder(length) | dict(rank=128),
        "encode",
        True,
        False,
        (0.0, 1.15),
    ),
    *(
        LongRowModel(
            f"Sparse Transformer, {pattern}",
            "sparse_transformer",
            "a stride near the square root of n, c = 8",
            lambda length, pattern=pattern: describe_sparse(length, pattern),
            exponents=(0.0, 1.55),
        )
        for pattern in ("fixed", "strided")
    ),
    LongRowModel(
        "Reformer",
        "reformer",
        "hashed attention of 2 rounds in chunks of 64",
        describe_reformer,
        exponents=(0.0, 1.15),
    ),
)
MODELS = tuple(spec for spec in ALL_MODELS if spec.family in FAMILIES)


def make_model(spec: LongRowModel, length: int) -> Any:
    """Return the module of a model for rows of n tokens."""
    fields = dict(vocab=256, width=WIDTH, depth=1, num_heads=WIDTH // HEAD_WIDTH, mlp=4 * WIDTH)
    config = FAMILIES[spec.family].config
    return build(
        config(**fields, dropout=0.0, **spec.describe_fields(length)), **make_local_hooks()
    )
