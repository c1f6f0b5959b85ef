"""What tests of models of images share: images, transformers' models, and their weights as ours."""

import json
import pathlib
import tempfile

import jax
import numpy as np

from data.images.encoding import ImageEncoding
from models import build
from pretrain.convert.read_write import find_converter


def draw_pixels(config, rows=3, seed=0):
    """Return random images, uint8 [rows, H, W, C]."""
    shape = rows, config.image_size, config.image_size, config.channels
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def draw_params(config, seed=0):
    """Return (module, random parameters), of which no bias is 0 and no scale 1."""
    model, rng = build(config), np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), draw_pixels(config)))["params"]

    def draw_leaf(path, leaf):
        noise = 0.2 * rng.standard_normal(leaf.shape, np.float32)
        return noise + np.float32(path[-1].key == "scale")

    return model, jax.tree_util.tree_map_with_path(draw_leaf, shapes)


def normalize(config, pixels):
    """Return the pixels as PyTorch reads them, float32 [B, C, H, W]."""
    values = pixels.astype(np.float64) / 255
    values = (values - np.array(config.pixels.mean)) / np.array(config.pixels.std)
    return values.transpose(0, 3, 1, 2).astype(np.float32)


def load_theirs(config, params):
    """Return transformers' model with our parameters, from a folder with our export's tensors."""
    import transformers
    from safetensors.numpy import save_file

    converter = find_converter(config)
    described = converter.to_hf_config(config, ImageEncoding())
    kind = getattr(transformers, described["architectures"][0])
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "config.json").write_text(json.dumps(described))
        tensors = converter.to_hf(config, params)
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        model, report = kind.from_pretrained(path, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


def compute_their_outputs(config, params, pixels, **how):
    """Return the outputs of transformers' model with our parameters, by name."""
    import torch

    with torch.no_grad():
        found = load_theirs(config, params)(torch.tensor(normalize(config, pixels)), **how)
    return {name: value.numpy() for name, value in found.items()}


def convert_back(config, params):
    """Return the parameters after a conversion to their tensors and back, and the report."""
    converter = find_converter(config)
    zeros = jax.tree.map(np.zeros_like, params)
    return converter.from_hf(config, converter.to_hf(config, params), zeros)
