"""Hugging Face folders with given weights: the common starting point of two versions of the code
with different names.

Configurations, names and shapes are transformers' (tests/goldens/given_models.json); each value is
a function of its tensor's name and of its place. No module of the project is imported here.
"""

import json
import pathlib
import shutil
import zlib

import numpy as np
from safetensors.numpy import save_file

GOLDENS = pathlib.Path(__file__).parent / "goldens"
MODELS = json.loads((GOLDENS / "given_models.json").read_text())
TOKENIZERS = {  # the golden folder with the model's tokenizer
    "bert": "hf_bert",
    "electra": "hf_bert",
    "distilbert": "hf_bert",
    "modernbert": "hf_bert",
    "modernbert-decoder": "hf_bert",
    "eurobert": "hf_bert",
    "neobert": "hf_bert",
    **dict.fromkeys(("esm", "esmc"), "hf_bert"),
    "albert": "hf_albert",
    "deberta_v3": "hf_albert",
    "roberta": "hf_roberta",
    "bart": "hf_roberta",
    "t5": "hf_t5",
    "t5gemma": "hf_t5",
    "marian": "hf_t5",
    "xlnet": "hf_albert",
    "gpt": "hf_gpt",
    "gpt2": "hf_gpt2",
    "gpt_bert": "hf_roberta",
    "linformer": "hf_bert",
    **dict.fromkeys(("lstm_lm", "music_transformer", "sparse_transformer"), "hf_gpt2"),
    "transformer_xl": "hf_gpt2",
    "reformer": "hf_gpt2",
}
SCALE = 0.15  # seed of the weights


def make_uniforms(name: str, shape) -> np.ndarray:
    """Return float32 values in [-1, 1), multiples of 2**-23: a hash of the tensor's name and each
    index.
    """
    x = np.arange(int(np.prod(shape)), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        zlib.crc32(name.encode())
    )
    x = (x ^ (x >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)).reshape(
        shape
    )


def make_values(name: str, shape) -> np.ndarray:
    """Return a tensor's values: near 1 for weights of norms, 0 for a bias that our models do not
    have, else near 0.
    """
    if name == "final_logits_bias" or name.endswith("bias_hh_l0"):
        return np.zeros(shape, np.float32)
    if ".embeddings." in name:  # ELECTRA's two networks share their embeddings
        name = name.removeprefix("generator/")
    if name == "lm_head.decoder.bias":  # as its copy, which a Reformer does not use
        name = "lm_head.bias"
    if name.endswith("inv_freq"):  # frequencies of sinusoids, which are no parameters
        return (10_000.0 ** -(np.arange(shape[0]) / shape[0])).astype(np.float32)
    norm = len(shape) == 1 and name.endswith(".weight")
    return np.float32(norm) + np.float32(SCALE) * make_uniforms(name, shape)


def make_tensors(model: str) -> dict[str, np.ndarray]:
    """Return {name: float32 array} of a model of MODELS; names in a subfolder begin with the
    subfolder's name.
    """
    return {
        f"{part}/{name}" if part else name: make_values(f"{part}/{name}" if part else name, shape)
        for part, described in MODELS[model].items()
        for name, shape in described["tensors"].items()
    }


def write_folder(model: str, folder) -> pathlib.Path:
    """Write a model of MODELS as the new Hugging Face folder `folder`."""
    folder, given = pathlib.Path(folder), make_tensors(model)
    tokenizer = TOKENIZERS[model if model in TOKENIZERS else model.split("_")[0]]
    for part, described in MODELS[model].items():
        (folder / part).mkdir(parents=True)
        (folder / part / "config.json").write_text(json.dumps(described["config"]))
        own = {name: given[f"{part}/{name}" if part else name] for name in described["tensors"]}
        save_file(own, folder / part / "model.safetensors", metadata={"format": "pt"})
    for path in (GOLDENS / tokenizer).glob("tokenizer*.json"):
        shutil.copy(path, folder)
    return folder


def fill_tensors(shapes, export) -> list[np.ndarray]:
    """Return float32 arrays of the given shapes whose export has the values of this module.

    export(arrays) -> {Hugging Face name: tensor}, a rearrangement without arithmetic. A value that
    it leaves out is 0. The number of each value's place is exported first, which shows where the
    value goes; float32 holds these numbers exactly.
    """
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    assert ends[-1] < 2**24
    places = [
        np.arange(end - int(np.prod(shape)), end).reshape(shape) + 1
        for shape, end in zip(shapes, ends)
    ]
    flat = np.zeros(
        1 + ends[-1], np.float32
    )  # index 0: values that the export adds by itself, such as a bias of zeros
    for name, tensor in export([place.astype(np.float32) for place in places]).items():
        flat[tensor.astype(np.int64)] = make_values(name, tensor.shape)
    return [flat[place] for place in places]
