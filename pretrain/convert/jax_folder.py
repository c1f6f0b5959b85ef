"""A checkpoint for programs that have JAX and not Cloze.

FOLDER/params/          Orbax: the parameters, under the names that the model gives them
FOLDER/config.json      the sizes, with the class that has them
FOLDER/models/          the paper's file, and of models/ what it imports
FOLDER/load.py          reads the three; needs flax and orbax-checkpoint
FOLDER/program.bin      `jax.export`: (params, inputs) -> what the model returns, in StableHLO, for any number of rows; needs jax alone
FOLDER/example.npz      inputs of two rows, `output.N` of the model for them: what a reader compares with
FOLDER/tokenizer.json   and its neighbours: the vocabulary, for the library tokenizers
"""

import ast
import dataclasses
import json
import pathlib

import jax
import numpy as np
import orbax.checkpoint as ocp

import models
from data.vocabulary.base import Vocabulary
from models import build
from pretrain.convert import name_of, tokenizer
from pretrain.convert.dtypes import round_tensors
from pretrain.convert.finite import check_finite
from pretrain.convert.safe_folder import check_output, replace_export
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.distributed.sharding import path_of

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")  # that the program is lowered for
LOADER = '''"""`model, params = load()`, then `model.apply({"params": params}, **inputs)`. Needs flax and orbax-checkpoint."""

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
    return importlib.import_module("models").build(config), ocp.StandardCheckpointer().restore(HERE / "params")
'''


def write_jax_folder(
    output,
    config,
    params,
    vocabulary: Vocabulary,
    inputs: dict,
    *,
    overwrite: bool = False,
    allow_nonfinite: bool = False,
    dtype: str = "float32",
) -> dict[str, int]:
    """Write a model as the folder `output`, which appears whole or not at all. Returns {file: bytes}.

    Args:
      inputs: {name of an argument of the model: array [B, ...]}, such as an empty batch has them: their types and other sizes are the program's.
      dtype: of the parameters, one of `dtypes.TYPES`; the program computes in it.

    Raises ValueError for values that are not finite unless `allow_nonfinite`, or beyond the range of `dtype`, and what `replace_export`
    raises for an `output` that exists.
    """
    check_output(output, overwrite)
    leaves = {
        path_of(keys): np.asarray(jax.device_get(leaf))
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
        (folder / "config.json").write_text(json.dumps(describe_config(config), indent=1) + "\n")
        (folder / "load.py").write_text(LOADER)
        copy_modules(config, folder)
        tokenizer.write(vocabulary, name_of(config), folder, getattr(config, "length", None))
        (folder / "README.md").write_text(describe_folder(config, inputs, dtype))
        return {
            path.relative_to(folder).as_posix(): path.stat().st_size
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }


# ---- the program ---------------------------------------------------------------


def write_program(folder: pathlib.Path, model, params, inputs: dict) -> None:
    """Write what the model makes of inputs of any number of rows, as StableHLO, and an example."""

    def run(params, inputs):
        return model.apply({"params": params}, **inputs)

    (rows,) = jax.export.symbolic_shape("B")
    given = {
        name: jax.ShapeDtypeStruct((rows, *value.shape[1:]), value.dtype)
        for name, value in inputs.items()
    }
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    jitted = jax.jit(run)
    exported = jax.export.export(jitted, platforms=PLATFORMS)(shapes, given)
    (folder / "program.bin").write_bytes(exported.serialize())
    example = draw_inputs(inputs, model.config)
    outputs = jax.tree.leaves(jitted(params, example))
    np.savez(
        folder / "example.npz",
        allow_pickle=False,
        **example,
        **{f"output.{i}": np.asarray(leaf, np.float32) for i, leaf in enumerate(outputs)},
    )


def draw_inputs(inputs: dict, config) -> dict[str, np.ndarray]:
    """Return two rows of inputs: ids at random, positions at the beginning of the row, everything valid."""
    rng = np.random.default_rng(0)
    limits = {"token_type_ids": 2, "segment_ids": 1, "masked_positions": 8}
    drawn = {}
    for name, value in inputs.items():
        shape = (2, *value.shape[1:])
        if value.dtype == bool:
            drawn[name] = np.ones(shape, bool)
        elif np.issubdtype(value.dtype, np.integer):
            drawn[name] = rng.integers(0, limits.get(name, config.vocab), shape).astype(value.dtype)
        else:
            drawn[name] = rng.random(shape).astype(value.dtype)
    return drawn


# ---- the code ------------------------------------------------------------------


def describe_config(config):
    """Return a configuration as JSON has it, with the class of each part, which `LOADER` reads."""
    if dataclasses.is_dataclass(config):
        fields = {
            field.name: describe_config(getattr(config, field.name))
            for field in dataclasses.fields(config)
        }
        return {"class": f"{type(config).__module__}:{type(config).__name__}", "fields": fields}
    return [describe_config(item) for item in config] if isinstance(config, tuple) else config


def copy_modules(config, folder: pathlib.Path) -> None:
    """Copy the files of models/ that the module of a configuration needs, those with the configuration included."""
    root = pathlib.Path(models.__file__).parent
    for path in find_modules(config, root):
        target = folder / "models" / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())


def find_modules(config, root: pathlib.Path) -> list[pathlib.Path]:
    """Return the files below `root` that a configuration's module and classes import, directly or by others."""
    parts = [part for part in (config, *vars(config).values()) if hasattr(part, "module")]
    waiting = ["models", *(type(part).__module__ for part in parts)]
    waiting += [f"models.{part.module.split(':')[0]}" for part in parts]
    found: dict[pathlib.Path, None] = {}
    while waiting:
        name = waiting.pop()
        package, *places = name.split(".")
        if package != "models":
            continue
        for end in range(len(places) + 1):
            base = root.joinpath(*places[:end])
            path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
            if path.is_file() and path not in found:
                found[path] = None
                waiting += list_imports(path)
    return sorted(found)


def list_imports(path: pathlib.Path) -> list[str]:
    """Return the dotted names that a file imports; `from a import b` as `a.b`."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def describe_folder(config, inputs: dict, dtype: str) -> str:
    """Return the page that tells a reader how to use the folder."""
    rows = "\n".join(
        f"| `{name}` | {value.dtype} | {['B', *value.shape[1:]]} |".replace("'", "")
        for name, value in inputs.items()
    )
    return f"""# A {type(config).__name__.removesuffix("Config")} model for JAX, parameters in {dtype}

Its code, with flax and orbax-checkpoint; `models/` is the paper's file and what it imports:

```python
from load import load  # load.py, in this folder

model, params = load()
outputs = model.apply({{"params": params}}, **inputs)
```

Its program, with jax and orbax-checkpoint alone, on {", ".join(PLATFORMS)}:

```python
import jax, orbax.checkpoint as ocp

program = jax.export.deserialize(open("program.bin", "rb").read())
outputs = program.call(ocp.StandardCheckpointer().restore("/absolute/path/of/params"), inputs)
```

| input | type | shape |
|---|---|---|
{rows}

`example.npz` has inputs of two rows, and as `output.N` what the model makes of them.
"""
