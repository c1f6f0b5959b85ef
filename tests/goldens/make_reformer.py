"""Write reformer.safetensors: what `ReformerModelWithLMHead` of transformers computes (needs
`peers`).

    python tests/goldens/make_reformer.py

The file has the `config`, the tensors `weights.NAME`, and `inputs.N` and `outputs.N`, the ids and
logits of rows of N tokens: shorter than a chunk, padded, and of whole chunks. The model is random
and tiny, but nothing in it is zero, one or alike. Its rotations are `jax.random`'s, as ours,
not `hash_seed`'s.
"""

import json
import pathlib
import tempfile
from unittest import mock

import jax
import numpy as np
import torch
import transformers
from make import randomize_model, save_model
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
SHAPE = dict(
    attn_layers=["local", "lsh", "lsh", "local", "lsh", "lsh"],
    vocab_size=48, hidden_size=24, num_attention_heads=3, attention_head_size=5, feed_forward_size=40, is_decoder=True,
    axial_pos_shape=[4, 8], axial_pos_embds_dim=[10, 14], max_position_embeddings=32, num_hashes=3, num_buckets=[2, 4],
    lsh_attn_chunk_length=4, local_attn_chunk_length=8,
)  # fmt: skip
LENGTHS = 3, 6, 21, 32
SEED = 1  # of ours


def draw_normal(shape, **settings):
    """Return the rotations of our models, for torch.randn."""
    return torch.from_numpy(np.array(jax.random.normal(jax.random.key(SEED), shape)))


def main():
    made = transformers.ReformerModelWithLMHead(transformers.ReformerConfig(**SHAPE)).eval()
    made = randomize_model(made, 0)
    with tempfile.TemporaryDirectory() as folder:
        config, weights = save_model(made, pathlib.Path(folder))
    tensors = {f"weights.{name}": value for name, value in weights.items()}
    for length in LENGTHS:
        ids = np.random.default_rng(length).integers(0, SHAPE["vocab_size"], (2, length))
        with torch.no_grad(), mock.patch("torch.randn", draw_normal):
            logits = made(torch.from_numpy(ids)).logits.numpy()
        tensors |= {f"inputs.{length}": ids.astype(np.int32), f"outputs.{length}": logits}
    source = f"transformers {transformers.__version__}, torch {torch.__version__}"
    save_file(
        {name: np.ascontiguousarray(value) for name, value in tensors.items()},
        HERE / "reformer.safetensors",
        metadata={"config": json.dumps(config), "source": source},
    )


if __name__ == "__main__":
    main()
