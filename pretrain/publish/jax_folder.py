"""Export of a model for programs that have JAX and not Cloze.

FOLDER/params/          Orbax checkpoint of the parameters, under the model's own paths
FOLDER/config.json      the configuration, with the name of its class
FOLDER/models/          the module of the model, and the modules of models/ that it imports
FOLDER/load.py          loads the three; needs flax and orbax-checkpoint
FOLDER/program.bin      `jax.export` of (params, inputs) -> outputs in StableHLO, for any number of
                        rows; needs jax alone
FOLDER/example.npz      inputs of two rows, and the model's outputs as `output.N`, to compare with
FOLDER/tokenizer.json   and its neighbours: the vocabulary, for the library tokenizers; of a model
                        of images classes.json and preprocessor_config.json
"""

import collections
import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

import models
from data.images.encoding import ImageEncoding
from data.vocabulary.base import Vocabulary
from models import build
from pretrain.convert.encodings.files import write_encoding
from pretrain.convert.encodings.processor import CROP_RATIO
from pretrain.convert.export_folder import check_output, list_sizes, replace_export
from pretrain.convert.weight_values import check_finite, round_tensors
from pretrain.host.command import PREFIX
from pretrain.kernels.model_hooks import make_local_hooks
from pretrain.mesh.sharding import format_path
from pretrain.publish.renamed_imports import list_imports, rename_imports
from pretrain.workdir.check import check_orbax_path
from pretrain.workdir.evidence import check_manifest

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")  # for which the program is lowered
LOADER = '''"""`model, params = load()`, then `model.apply({"params": params}, **inputs)`.

Needs flax and orbax-checkpoint.
"""

import importlib, json, pathlib, sys
import orbax.checkpoint as ocp

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def make(node):
    """Return the configuration that config.json describes."""
    if not isinstance(node, dict):
        return tuple(map(make, node)) if isinstance(node, list) else node
    module, name = node["class"].split(":")
    fields = {key: make(value) for key, value in node["fields"].items()}
    return getattr(importlib.import_module(module), name)(**fields)


def load():
    """Return the Flax module and its parameters."""
    config = make(json.loads((HERE / "config.json").read_text()))
    model = importlib.import_module("models").build(config)
    return model, ocp.StandardCheckpointer().restore(HERE / "params")
'''


def write_jax_folder(
    output: str | os.PathLike[str],
    config: Any,
    params: Any,
    encoding: Vocabulary | ImageEncoding,
    inputs: Mapping[str, Any],
    *,
    overwrite: bool = False,
    allow_nonfinite: bool = False,
    dtype: str = "float32",
    crop_ratio: float | None = CROP_RATIO,
) -> dict[str, int]:
    """Write a model as a folder, which appears whole or not at all.

    Args:
      encoding: its vocabulary, or the classes of its images.
      inputs: {argument of the model: array [B, ...]}, such as an empty batch has; the program takes
        arrays of these dtypes and sizes, for any B.
      dtype: of the parameters, one of `dtypes.TYPES`; the program computes in it.

    Returns:
      {file: size in bytes}.

    Raises:
      ValueError: parameters are not finite, or beyond the range of `dtype`.
      FileExistsError: `output` exists and may not be replaced.
      ConfigError: Orbax cannot save below the path of `output`.
    """
    check_orbax_path(check_output(output, overwrite).resolve())
    leaves = {
        format_path(keys): np.asarray(jax.device_get(leaf))
        for keys, leaf in jax.tree_util.tree_leaves_with_path(params)
    }
    if not allow_nonfinite:
        for name, leaf in leaves.items():
            check_finite(name, leaf, "--allow-nonfinite exports it as it is.")
    tree = jax.tree.structure(params)
    params = jax.tree.unflatten(tree, round_tensors(leaves, dtype).values())
    model = build(config, **make_local_hooks())
    with replace_export(output, overwrite) as folder:
        write_program(folder, model, params, inputs)
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder.resolve() / "params", params)
        check_manifest(epath.Path(folder / "params"))
        (folder / "config.json").write_text(json.dumps(describe_config(config), indent=1) + "\n")
        (folder / "load.py").write_text(LOADER)
        copy_modules(config, folder)
        if isinstance(encoding, ImageEncoding):
            encoding.save(folder)
        write_encoding(folder, config, encoding, crop_ratio)
        (folder / "README.md").write_text(describe_folder(config, inputs, dtype))
        return list_sizes(folder)


# ---- the program ---------------------------------------------------------------


def write_program(folder: pathlib.Path, model: Any, params: Any, inputs: Mapping[str, Any]) -> None:
    """Write the model as StableHLO for any number of rows, and an example of inputs and outputs."""

    def apply_model(params: Any, inputs: Mapping[str, Any]) -> Any:
        return model.apply({"params": params}, **inputs)

    (rows,) = jax.export.symbolic_shape("B")
    input_shapes = {
        name: jax.ShapeDtypeStruct((rows, *value.shape[1:]), value.dtype)
        for name, value in inputs.items()
    }
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    jitted = jax.jit(apply_model)
    exported = jax.export.export(jitted, platforms=PLATFORMS)(shapes, input_shapes)
    (folder / "program.bin").write_bytes(exported.serialize())
    example = draw_inputs(inputs, model.config)
    outputs = jax.tree.leaves(jitted(params, example))
    arrays: dict[str, Any] = {
        **example,
        **{f"output.{i}": np.asarray(leaf, np.float32) for i, leaf in enumerate(outputs)},
    }
    np.savez(folder / "example.npz", **arrays)


def draw_inputs(inputs: Mapping[str, Any], config: Any) -> dict[str, np.ndarray]:
    """Return two rows of inputs: random ids or pixels, positions at the start, full masks."""
    rng = np.random.default_rng(0)
    limits = {"token_type_ids": 2, "segment_ids": 1, "masked_positions": 8, "pixels": 256}
    limits = collections.defaultdict(lambda: config.vocab, limits)
    drawn = {}
    for name, value in inputs.items():
        shape = (2, *value.shape[1:])
        if value.dtype == bool:
            drawn[name] = np.ones(shape, bool)
        elif np.issubdtype(value.dtype, np.integer):
            drawn[name] = rng.integers(0, limits[name], shape).astype(value.dtype)
        else:
            drawn[name] = rng.random(shape).astype(value.dtype)
    return drawn


# ---- the code ------------------------------------------------------------------


def describe_config(config: Any) -> Any:
    """Return a configuration as a JSON value with the class of each dataclass, for `LOADER`."""
    if dataclasses.is_dataclass(config):
        fields = {
            field.name: describe_config(getattr(config, field.name))
            for field in dataclasses.fields(config)
        }
        module = type(config).__module__.removeprefix(PREFIX)
        return {"class": f"{module}:{type(config).__name__}", "fields": fields}
    return [describe_config(item) for item in config] if isinstance(config, tuple) else config


def copy_modules(config: Any, folder: pathlib.Path) -> None:
    """Copy the files of models/ that a configuration and its module need."""
    root = pathlib.Path(models.__file__).parent
    for path in find_modules(config, root):
        target = folder / "models" / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        renamed = rename_imports(path.read_text("utf-8"), {models.__name__: "models"})
        target.write_text(renamed, "utf-8")


def find_modules(config: Any, root: pathlib.Path) -> list[pathlib.Path]:
    """Return the files below `root` that a configuration and its module import, transitively."""
    configs = [value for value in (config, *vars(config).values()) if hasattr(value, "module")]
    waiting = ["models", *(type(value).__module__ for value in configs)]
    waiting += [f"models.{value.module.split(':')[0]}" for value in configs]
    found: dict[pathlib.Path, None] = {}
    while waiting:
        name = waiting.pop()
        package, *names = name.removeprefix(PREFIX).split(".")
        if package != "models":
            continue
        for end in range(len(names) + 1):
            base = root.joinpath(*names[:end])
            path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
            if path.is_file() and path not in found:
                found[path] = None
                waiting += list_imports(path.read_text("utf-8"))
    return sorted(found)


def describe_folder(config: Any, inputs: Mapping[str, Any], dtype: str) -> str:
    """Return the README of the folder."""
    rows = "\n".join(
        f"| `{key}` | {value.dtype} | {['B', *value.shape[1:]]} |".replace("'", "")
        for key, value in inputs.items()
    )
    name = type(config).__name__.removesuffix("Config")
    return f"""# A {name} model for JAX, parameters in {dtype}

Its code needs flax and orbax-checkpoint; `models/` has its module and its imports:

```python
from load import load  # load.py, in this folder

model, params = load()
outputs = model.apply({{"params": params}}, **inputs)
```

Its program needs jax and orbax-checkpoint alone, and runs on {", ".join(PLATFORMS)}:

```python
import jax, orbax.checkpoint as ocp

program = jax.export.deserialize(open("program.bin", "rb").read())
outputs = program.call(ocp.StandardCheckpointer().restore("/absolute/path/of/params"), inputs)
```

| input | type | shape |
|---|---|---|
{rows}

`example.npz` has inputs of two rows, and the model's outputs for them as `output.N`.
"""
