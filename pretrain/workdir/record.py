"""The record of a checkpoint: every leaf's dtype, shape and fingerprint, with the configuration, under a checksum of its own."""

import json

import google_crc32c
import jax

from pretrain.config import check_format
from pretrain.distributed.sharding import path_of
from pretrain.overrides import ConfigError
from pretrain.workdir.errors import DamagedCheckpoint

FILE = "metadata"  # in the folder record/
# The parts of a state, and what an error calls their leaves.
ITEMS = {
    "params": "parameters",
    "optimizer": "optimizer's values",
    "variables": "states between steps",
}


def seal(record):
    """The record beside the checksum of its JSON text."""
    text = json.dumps(record, sort_keys=True)
    return {"record": record, "crc32c": google_crc32c.value(text.encode())}


def is_sealed(sealed) -> bool:
    """Whether this is what `seal` returned."""
    record = sealed.get("record") if isinstance(sealed, dict) else None
    return isinstance(record, dict) and seal(record)["crc32c"] == sealed.get("crc32c")


def read_record(step_folder):
    """Return the record in the folder of a committed step, read without Orbax.

    Raises DamagedCheckpoint where it is missing, cut or altered, ConfigError for another format, and whatever OSError the
    system raises where it refuses to read: that proves nothing about the file.
    """
    if not step_folder.is_dir():
        raise FileNotFoundError(f"{step_folder}: no such checkpoint")
    try:
        sealed = json.loads((step_folder / "record" / FILE).read_bytes())
    except FileNotFoundError as error:
        raise DamagedCheckpoint("its record is missing") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, or not JSON
        raise DamagedCheckpoint(f"its record is not JSON ({error})") from error
    if not is_sealed(sealed):
        raise DamagedCheckpoint("its record does not agree with its own checksum")
    check_format(sealed["record"].get("format"), step_folder)
    return sealed["record"]


def check_items(record, abstract):
    """Return the names of the parts of a state that a record has, once their leaves are those of `abstract`, a `State` of shapes.

    Where nothing was kept, as in a checkpoint that an import or another run's average began with, a model's state begins from zero.
    Raises ConfigError where leaves differ.
    """
    for name, what in ITEMS.items():
        if record[name] or name != "variables":
            check_leaves(record[name], getattr(abstract, name), what)
    return [name for name in ITEMS if record[name]]


def check_leaves(recorded, tree, what):
    """Raise ConfigError where the leaves that were saved are not those of `tree`: the model or the optimizer is another."""
    expected = {
        path_of(keys): [str(leaf.dtype), list(leaf.shape)]
        for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    for path in sorted(expected.keys() | recorded.keys()):
        saved = recorded[path][:2] if path in recorded else "absent"
        wanted = expected.get(path, "absent")
        if saved != wanted:
            raise ConfigError(
                f"the checkpoint's {what} do not fit this configuration: {path} was saved as {saved}, needed is {wanted}"
            )
