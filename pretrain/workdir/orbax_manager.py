"""The Orbax checkpoint manager of a workdir, and the saving and restoring of its items."""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from etils import epath

from pretrain.workdir.checkpoint_record import FILE, ITEMS
from pretrain.workdir.errors import silence_orbax
from pretrain.workdir.evidence import make_arrays_handler
from pretrain.workdir.retention import Retention

Place = Callable[[str, tuple[int, ...]], Any]  # (path, shape) -> sharding; None: the default one
LISTINGS = 20  # attempts at a folder from which a run deletes steps while they are listed


def open_manager(
    folder: epath.Path, retention: Retention | None, read_only: bool
) -> ocp.CheckpointManager:
    """Return the manager of the checkpoints in a folder.

    Orbax lists the steps, then reads the metadata of each. A step that a run deletes in between is
    an error of several types; a reader lists the steps again.

    Args:
      folder: an absolute path; Orbax accepts no other.
      retention: which checkpoints stay; None deletes nothing.
      read_only: whether nothing in the folder is created, changed or deleted.
    """
    silence_orbax()
    options = ocp.CheckpointManagerOptions(
        preservation_policy=retention,
        cleanup_tmp_directories=not read_only,
        read_only=read_only,
        create=not read_only,
    )
    handlers: dict[str, Any] = {name: make_arrays_handler() for name in ITEMS}
    handlers["record"] = ocp.JsonCheckpointHandler(filename=FILE)
    for _ in range(LISTINGS - 1 if read_only else 0):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return ocp.CheckpointManager(folder, options=options, item_handlers=handlers)
    return ocp.CheckpointManager(folder, options=options, item_handlers=handlers)


def save_items(
    manager: ocp.CheckpointManager, step: int, items: dict[str, Any], record: dict[str, Any]
) -> bool:
    """Start saving trees, {name: tree}, and a JSON record; return whether saving started."""
    arguments: dict[str, Any] = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
    arguments["record"] = ocp.args.JsonSave(record)
    return manager.save(step, args=ocp.args.Composite(**arguments))


def restore_items(manager: ocp.CheckpointManager, step: int, targets: dict[str, Any]) -> Any:
    """Return {name: tree} of a step; targets: {name: tree of shapes, dtypes and shardings}."""
    arguments = {name: ocp.args.StandardRestore(target) for name, target in targets.items()}
    return manager.restore(step, args=ocp.args.Composite(**arguments))


def restore_part(folder: epath.Path, target: Any) -> Any:
    """Return part of the tree in a folder; of its dictionaries, keys that target lacks stay unread.

    target: the part's tree of shapes, dtypes and shardings.
    """
    arguments = ocp.args.PyTreeRestore(
        item=target,
        restore_args=ocp.checkpoint_utils.construct_restore_args(target),
        partial_restore=True,
    )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        return reader.restore(folder, args=arguments)


def place_on_first_device(path: str, shape: tuple[int, ...]) -> Any:
    """Return the sharding that puts a whole parameter on the first device."""
    return jax.sharding.SingleDeviceSharding(jax.devices()[0])


def make_target(leaf: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    """Return the shape, dtype and sharding with which a leaf is restored."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def make_tree_target(leaves: Mapping[str, Any], choose_sharding: Place) -> dict[str, Any]:
    """Return the nested targets of recorded leaves, {path: [dtype, shape, fingerprint]}."""
    tree: dict[str, Any] = {}
    for path, (dtype, shape, _) in leaves.items():
        node = tree
        *parents, name = path.split("/")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = jax.ShapeDtypeStruct(
            tuple(shape), jnp.dtype(dtype), sharding=choose_sharding(path, tuple(shape))
        )
    return tree


def make_zeros(leaf: Any, sharding: Any) -> jax.Array:
    """Return zeros of the shape and dtype of a leaf, with this sharding."""
    return jax.jit(partial(jnp.zeros, leaf.shape, leaf.dtype), out_shardings=sharding)()


def move_aside(step_folder: epath.Path, damaged: epath.Path) -> None:
    """Move the folder of a step into the folder `damaged`, under its own name or NAME.1, NAME.2."""
    damaged.mkdir(exist_ok=True)
    step = step_folder.name
    names = (damaged / (step if not n else f"{step}.{n}") for n in range(1000))
    step_folder.rename(next(path for path in names if not path.exists()))
