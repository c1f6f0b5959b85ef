"""Write transformer_xl*.safetensors: what `TransfoXLLMHeadModel` of transformers 4 computes.

    python tests/goldens/make_transformer_xl.py

transformers 5 has no Transformer-XL, so this needs an environment of its own, with
transformers==4.57.1, its dependencies, and torch. It also adds the model to given_models.json. A
file has the `config`, the tensors `weights.NAME`, `inputs.token_ids` of two segments, and
`outputs.first` and `outputs.second`, the log-probabilities of each: the first has no memory, the
second the first's. The models are random and tiny, but nothing in them is zero, one or alike.
"""

import json
import pathlib

import numpy as np
import torch
import transformers
from make_given import describe_model
from safetensors.numpy import save_file
from transformers.models.deprecated.transfo_xl import (
    TransfoXLConfig,
    TransfoXLLMHeadModel,
)

HERE = pathlib.Path(__file__).parent
SHAPE = dict(
    vocab_size=48, cutoffs=[12, 30], d_model=16, d_embed=16, n_head=3, d_head=6, d_inner=28,
    n_layer=2, mem_len=7, div_val=1, clamp_len=-1, same_length=False, dropout=0.0,
)  # fmt: skip
CASES = {
    # As the standard model of WikiText-103.
    "transformer_xl": SHAPE,
    # As the large model: narrower clusters, and both traps of the released configuration.
    "transformer_xl_large": SHAPE | dict(div_val=2, clamp_len=4, same_length=True),
    # One softmax, and biases that the layers share, as the models of characters.
    "transformer_xl_characters": SHAPE | dict(cutoffs=[], untie_r=False, clamp_len=9),
}
GIVEN = SHAPE | dict(vocab_size=264, cutoffs=[40, 130], div_val=2, clamp_len=6, eos_token_id=260)


def type_as(tensor, other=None, dtype=None):
    """Return the tensor in the dtype of another one; the model calls it with a dtype by name."""
    return tensor.to(dtype if other is None else other.dtype)


def make_model(settings, seed=0):
    """Return a model in evaluation mode with random values in every parameter."""
    torch.manual_seed(seed)
    made = TransfoXLLMHeadModel(TransfoXLConfig(**settings)).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.normal_(0.0, 0.3)
            if "layer_norm.weight" in name:
                parameter += 1
    made.tie_weights()
    return made


def save_model(made):
    """Return (config.json, {name: tensor}) of a model, each tensor under its first name.

    `save_pretrained` refuses biases that the layers share.
    """
    names = {}
    for name, tensor in made.state_dict().items():
        names.setdefault(tensor.data_ptr(), name)
    tensors = {name: made.state_dict()[name].numpy() for name in names.values()}
    return made.config.to_diff_dict() | {"architectures": [type(made).__name__]}, tensors


def compute_outputs(made, token_ids):
    """Return the log-probabilities of two segments of equal length, [B, L, V] each."""
    first, second = torch.from_numpy(token_ids).long().chunk(2, dim=1)
    # Without `mems` the first segment would attend to zeros.
    empty = [torch.zeros(0, len(first), made.config.d_model)] * made.config.n_layer
    with torch.no_grad():
        found = made(first, mems=empty)
        after = made(second, mems=found.mems)
    return {
        "first": found.prediction_scores.numpy(),
        "second": after.prediction_scores.numpy(),
    }


def main():
    torch.Tensor.type_as = type_as
    source = f"transformers {transformers.__version__}, torch {torch.__version__}"
    for name, settings in CASES.items():
        made = make_model(settings)
        config, weights = save_model(made)
        token_ids = np.random.default_rng(0).integers(0, 48, (2, 10), np.int32)
        outputs = compute_outputs(made, token_ids)
        tensors = {f"weights.{key}": np.ascontiguousarray(value) for key, value in weights.items()}
        tensors |= {"inputs.token_ids": token_ids}
        tensors |= {f"outputs.{key}": np.ascontiguousarray(value) for key, value in outputs.items()}
        metadata = {"config": json.dumps(config), "source": source}
        save_file(tensors, HERE / f"{name}.safetensors", metadata=metadata)
        print(f"{(HERE / f'{name}.safetensors').stat().st_size:>9,} {name}")
    path = HERE / "given_models.json"
    given = json.loads(path.read_text())
    given["transformer_xl"] = {"": describe_model(make_model(GIVEN))}
    lines = [f"{json.dumps(name)}: {json.dumps(parts)}" for name, parts in given.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
