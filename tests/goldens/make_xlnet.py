"""Write xlnet.safetensors: what `XLNetLMHeadModel` of transformers computes (needs `peers`).

    python tests/goldens/make_xlnet.py

The file has the `config`, the tensors `weights.NAME`,
the `inputs` and the `outputs`: logits without a permutation, and of the predicted positions of two
segments with `perm_mask` and `target_mapping`; the second reads the memory of the first. The model
is random and tiny, but nothing in it is zero, one or alike.
"""

import json
import pathlib
import tempfile

import numpy as np
import torch
import transformers
from make import randomize_model, save_model
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
SHAPE = dict(
    vocab_size=48, d_model=24, n_layer=2, n_head=3, d_inner=40, mem_len=7, clamp_len=9, dropout=0.0
)


def make_model(settings, seed=0):
    """Return a model in evaluation mode with random values in every parameter."""
    made = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**settings)).eval()
    return randomize_model(made, seed)


def make_inputs(vocab, seed=0, rows=3, length=11, predicted=4):
    """Return two segments of rows of 11, 8 and 6 tokens: ids, texts, orders and predictions."""
    rng = np.random.default_rng(seed)
    lengths = np.array([11, 8, 6])
    valid = np.arange(length) < lengths[:, None]
    inputs = {"attention_mask": valid}
    inputs["token_type_ids"] = np.where(
        np.arange(length) == lengths[:, None] - 1, 2, np.arange(length) >= lengths[:, None] // 2
    ).astype(np.int32)
    for segment in ("first", "second"):
        ids = np.where(valid, rng.integers(1, vocab, (rows, length)), 0)
        inputs[f"{segment}.token_ids"] = ids.astype(np.int32)
        positions = np.sort([rng.choice(size, predicted, replace=False) for size in lengths])
        inputs[f"{segment}.masked_positions"] = positions.astype(np.int32)
        ranks = np.zeros((rows, length), np.int32)
        orders = [1 + rng.permutation(predicted + 1) for _ in range(rows)]
        for row, order in enumerate(orders):
            ranks[row, positions[row]] = order[:predicted]
            # One more token has a rank and is not predicted, as special tokens do.
            others = np.setdiff1d(np.arange(lengths[row]), positions[row])
            ranks[row, others[-1]] = order[predicted]
        inputs[f"{segment}.permutation_ranks"] = ranks
    return inputs


def compute_outputs(made, inputs):
    """Return the outputs of both segments."""
    read = {
        "attention_mask": torch.from_numpy(inputs["attention_mask"].astype(np.float32)),
        "token_type_ids": torch.from_numpy(inputs["token_type_ids"]).long(),
        "use_mems": True,
    }
    outputs, memory = {}, None
    for segment in ("first", "second"):
        ids = torch.from_numpy(inputs[f"{segment}.token_ids"]).long()
        positions = inputs[f"{segment}.masked_positions"]
        ranks = inputs[f"{segment}.permutation_ranks"]
        # 1 where query i may not attend to key j; without its own token (theirs shows that itself).
        hidden = (ranks[:, None, :] >= ranks[:, :, None]) & (ranks[:, None, :] > 0)
        mapping = positions[:, :, None] == np.arange(ids.shape[1])
        with torch.no_grad():
            plain = made(ids, mems=memory, **read)
            found = made(
                ids,
                mems=memory,
                perm_mask=torch.from_numpy(hidden.astype(np.float32)),
                target_mapping=torch.from_numpy(mapping.astype(np.float32)),
                **read,
            )
        outputs[f"{segment}.plain"] = plain.logits.numpy()
        outputs[f"{segment}.predicted"] = found.logits.numpy()
        memory = found.mems
    return outputs


def main():
    made = make_model(SHAPE)
    with tempfile.TemporaryDirectory() as folder:
        config, weights = save_model(made, pathlib.Path(folder))
    inputs = make_inputs(SHAPE["vocab_size"])
    parts = {"weights": weights, "inputs": inputs, "outputs": compute_outputs(made, inputs)}
    tensors = {
        f"{part}.{key}": np.ascontiguousarray(value)
        for part, values in parts.items()
        for key, value in values.items()
    }
    source = f"transformers {transformers.__version__}, torch {torch.__version__}"
    save_file(
        tensors,
        HERE / "xlnet.safetensors",
        metadata={"config": json.dumps(config), "source": source},
    )


if __name__ == "__main__":
    main()
