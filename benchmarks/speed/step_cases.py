"""The cases of benchmarks/speed/step.py: models, devices and batches."""

from __future__ import annotations

import numpy as np

from data.objectives import SpanCorruption

# name: (family, fields of its configuration, rows of 128 tokens, rows of 512 tokens); rows of ViT
# are images of 224 x 224 pixels, 197 positions, whatever the length
CASES = {
    "bert_mini": ("bert", {"width": 256, "depth": 4, "num_heads": 4, "mlp": 1024}, 32, 8),
    "bert_small": ("bert", {"width": 512, "depth": 4, "num_heads": 8, "mlp": 2048}, 16, 4),
    "bert_base": ("bert", {}, 8, 2),
    "t5_small": (
        "t5",
        {"width": 512, "depth": 6, "decoder_depth": 6, "num_heads": 8, "mlp": 2048, "dropout": 0.0},
        16,
        4,
    ),
    "gpt2": ("gpt2", {}, 4, 1),
    # 17 million parameters each, with 50,368 ids; without dropout
    "bert_17m": (
        "bert",
        {"vocab": 50368, "width": 256, "depth": 5, "num_heads": 4, "mlp": 1024}
        | {"dropout": 0.0, "attention_dropout": 0.0},
        32,
        8,
    ),
    "ettin_17m": (
        "modernbert",
        {"width": 256, "depth": 7, "num_heads": 4, "mlp": 384, "dropout": 0.0},
        32,
        8,
    ),
    "vit_ti": ("vit", {"width": 192, "num_heads": 3, "mlp": 768}, 16, 16),
    "vit_s": ("vit", {"width": 384, "num_heads": 6, "mlp": 1536}, 8, 8),
}
LARGE = {"width": 1024, "depth": 24, "num_heads": 16, "mlp": 4096}
GPU_CASES = {
    "bert_base": ("bert", {"attention_dropout": 0.0}, 256, 64),
    "bert_large": ("bert", LARGE | {"attention_dropout": 0.0}, 128, 32),
    "t5_base": ("t5", {"dropout": 0.0}, 128, 32),
    "t5_large": ("t5", LARGE | {"decoder_depth": 24, "dropout": 0.0}, 64, 16),
    "gpt2": ("gpt2", {"attention_dropout": 0.0}, 128, 32),
}
# device: (its cases, environment variables of all programs)
DEVICES = {
    "cpu": (CASES, {"JAX_PLATFORMS": "cpu"}),
    "gpu": (
        GPU_CASES,
        {
            "JAX_PLATFORMS": "cuda",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "GLIBC_TUNABLES": "",  # launch.sh's are for computing on the CPU
            "CUDA_VISIBLE_DEVICES": "0",
        },
    ),
}


def make_batch(family: str, length: int, rows: int) -> dict[str, np.ndarray]:
    """Return a batch of random ids without padding, by the batch spec of the family's objective.

    Args:
      length: tokens of a row.
    """
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.integers(1000, 30000, shape).astype(np.int32)  # noqa: E731
    ones = lambda *shape: np.ones(shape, np.float32)  # noqa: E731
    valid = np.ones((rows, length), bool)
    match family:
        case "bert" | "modernbert":
            P = -(-length * (30 if family == "modernbert" else 15) // 100)
            positions_BL = np.tile(np.arange(length, dtype=np.int32), (rows, 1))
            positions_BP = np.sort(rng.permuted(positions_BL, axis=1)[:, :P], axis=1)
            return {
                "token_ids": draw(rows, length),
                "attention_mask": valid,
                "masked_positions": positions_BP,
                "labels": draw(rows, P),
                "label_weights": ones(rows, P),
            }
        case "t5":
            T = SpanCorruption(inputs=length).axis_sizes()["T"]
            return {
                "encoder_token_ids": draw(rows, length),
                "encoder_attention_mask": valid,
                "labels": draw(rows, T),
                "label_weights": ones(rows, T),
            }
        case "gpt2":
            ids, weights = draw(rows, length + 1), ones(rows, length)
            weights[:, -1] = 0  # transformers shifts the labels, so that the last has none
            return {"token_ids": ids[:, :-1], "labels": ids[:, 1:], "label_weights": weights}
        case "vit":
            return {
                "pixels": rng.integers(0, 256, (rows, 224, 224, 3)).astype(np.uint8),
                "labels": rng.integers(0, 1000, rows).astype(np.int32),
                "row_weights": ones(rows),
            }
        case _:
            raise ValueError(f"family {family!r}: expected bert, modernbert, t5, gpt2 or vit")
