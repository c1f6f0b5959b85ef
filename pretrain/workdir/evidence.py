"""Proof that a committed checkpoint is damaged, found in its files and not in an error's text.

A failed read may mean damage, or a permission, exhausted memory, a network error or a bug. Only
damage may cost a checkpoint, and error texts do not identify the cause. So after a failed read
the files are examined again. Damage is proven by

- a file of the inventory that is missing, or has another size or checksum;
- an array that TensorStore cannot decode although every file can be read to its end;
- an array whose fingerprint is not the recorded one.

The inventory has the CRC32C of Orbax's metadata, but only the size of array data: its checksum
would cost reading the data back at each save.
"""

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import google_crc32c
import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from pretrain.processes import processes
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.checkpoint_record import is_sealed, seal_record
from pretrain.workdir.errors import DamagedCheckpoint, NotRestored, summarize_error

INVENTORY = "inventory.json"
MANIFEST = "manifest.ocdbt"
REQUIRED = ("_METADATA", MANIFEST)  # without an inventory, such as one that was deleted
BLOCK = 1 << 24  # [bytes] read at once
# Beginnings of TensorStore's messages for bytes that it read and cannot decode. NOT_FOUND is not
# among them: the inventory finds missing files, and an array looked up by a wrong name proves
# nothing.
UNDECODABLE = ("DATA_LOSS", "OUT_OF_RANGE")
# In messages of FAILED_PRECONDITION or INVALID_ARGUMENT, which have other causes too.
CODEC_ERRORS = ("Zstd", "ZSTD")
# [seconds] A process may wait 300 s in Orbax's barrier for another one that failed.
FAILURE_WAIT = 360
_attempts = itertools.count()


# ---- while a checkpoint is read ----------------------------------------------


@contextlib.contextmanager
def diagnose_read_errors(step_folder: epath.Path, recorded: Mapping[str, Any]) -> Iterator[None]:
    """Raise an error of the block as DamagedCheckpoint if there is proof, else as NotRestored.

    ConfigError passes, and so does what is not an Exception, such as KeyboardInterrupt.
    """
    try:
        yield
    except (DamagedCheckpoint, ConfigError):
        raise
    except Exception as error:
        try:
            proof, unread = find_damage(step_folder, recorded), ""
        except Exception as second:  # the same cause or another one: no proof
            proof, unread = None, ""
            if summarize_error(second) != summarize_error(error):
                unread = f", and its files could not be examined ({summarize_error(second)})"
        if proof:
            raise DamagedCheckpoint(proof) from error
        raise NotRestored(
            f"{step_folder}: the checkpoint was not restored ({summarize_error(error)}){unread}. "
            "Nothing proves that it is damaged, so nothing was moved or changed. Remove the cause, "
            "and give the same command again."
        ) from error


@contextlib.contextmanager
def share_failures() -> Iterator[None]:
    """Leave the block in the same way in all processes of a run.

    If a checkpoint is damaged for one process, all raise DamagedCheckpoint. If one process raises
    another error, the others raise NotRestored with its description.
    """
    if jax.process_count() == 1 or processes.get_client() is None:
        yield
        return
    from pretrain.processes.exchange import collect_values, publish_value

    name, damage = f"restore/{next(_attempts)}", None
    try:
        yield
    except DamagedCheckpoint as error:
        damage = error
    except Exception as error:
        publish_value(name, {"stopped": summarize_error(error)}, FAILURE_WAIT)
        raise
    publish_value(name, {"damaged": str(damage) if damage else None}, FAILURE_WAIT)
    verdicts = list(enumerate(collect_values(name, FAILURE_WAIT)))
    for index, verdict in verdicts:
        if "stopped" in verdict:
            raise NotRestored(
                f"process {index} could not restore the checkpoint: {verdict['stopped']}"
            )
    for index, verdict in verdicts:
        if verdict["damaged"]:
            raise DamagedCheckpoint(f"{verdict['damaged']} (found by process {index})") from damage


# ---- the files ---------------------------------------------------------------


def make_arrays_handler() -> ocp.StandardCheckpointHandler:
    """Return Orbax's handler of a tree of arrays, extended to write the inventory.

    It writes the inventory just before the folder gets its final name. A subclass would need save
    and restore arguments of its own, and Orbax alone could no longer read the checkpoint.
    """
    handler = ocp.StandardCheckpointHandler()
    finalize = handler.finalize

    def finalize_folder(directory: epath.Path) -> None:
        finalize(directory)
        check_manifest(epath.Path(directory))
        write_inventory(epath.Path(directory))

    handler.finalize = finalize_folder
    return handler


def check_manifest(folder: epath.Path) -> None:
    """Raise OSError if Orbax has saved arrays to a folder without the manifest that finds them."""
    if not (folder / MANIFEST).exists():
        raise OSError(f"{folder}: Orbax wrote no {MANIFEST}, without which no array can be read")


def write_inventory(folder: epath.Path) -> None:
    """Write the size of each file in a folder, and the CRC32C of those without array data."""
    files = {
        name: [path.stat().length, None if _is_array_data(name) else _compute_crc32c(path)]
        for name, path in _list_files(folder)
    }
    (folder / INVENTORY).write_text(json.dumps(seal_record({"files": files})))


def find_damage(step_folder: epath.Path, recorded: Mapping[str, Any]) -> str | None:
    """Return the proof that a committed step is damaged, or None without proof.

    Args:
      recorded: {item: {path: [dtype, shape, fingerprint]}} of the items to examine, e.g. params.
    """
    for item, leaves in recorded.items():
        folder = step_folder / item
        if not folder.is_dir():
            return f"{item} is missing" if step_folder.is_dir() else None
        if proof := _compare_inventory(folder) or _check_arrays(folder, leaves):
            return f"{item}: {proof}"
    return None


def _compare_inventory(folder: epath.Path) -> str | None:
    """Return how the files of a folder differ from its inventory, None if they agree."""
    found = {name: (path, _read_to_end(path)) for name, path in _list_files(folder)}
    if (inventory := _read_inventory(folder)) is None:
        return next((f"{name} is missing" for name in REQUIRED if name not in found), None)
    for name, (size, checksum) in inventory.items():
        if name not in found:
            return f"{name} is missing"
        path, length = found[name]
        if length != size:
            return f"{name} has {length:,} bytes, {size:,} were written"
        if checksum is not None and (actual := _compute_crc32c(path)) != checksum:
            return f"{name} has CRC32C {actual:08x}, {checksum:08x} was written"
    return None


def _read_inventory(folder: epath.Path) -> dict[str, Any] | None:
    """Return {file: [size, CRC32C or None]}, or None if there is no sound inventory."""
    try:
        sealed = json.loads((folder / INVENTORY).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return sealed["record"]["files"] if is_sealed(sealed) else None


def _check_arrays(folder: epath.Path, leaves: Mapping[str, Any]) -> str | None:
    """Read the arrays with TensorStore alone; return the first one that is damaged, or None.

    The arrays are read one after the other, chunk by chunk, and compared by fingerprint.
    """
    import tensorstore

    context = tensorstore.Context({"file_io_concurrency": {"limit": 1}})
    base: Any = f"{folder}/"
    if "://" not in base:
        base = {"driver": "file", "path": base}
    for path, (dtype, shape, recorded) in leaves.items():
        kvstore = {"driver": "ocdbt", "base": base, "path": path.replace("/", ".") + "/"}
        spec: Any = {"driver": "zarr", "kvstore": kvstore}
        fingerprint = None
        try:
            store = tensorstore.open(spec, context=context, open=True, read=True).result()
            if str(store.dtype.name) == dtype and list(store.shape) == shape:
                fingerprint = _compute_fingerprint(store, shape)
        except ValueError as error:
            text = str(error)
            if text.startswith(UNDECODABLE) or any(codec in text for codec in CODEC_ERRORS):
                cause = text.split(" [tensorstore_spec")[0].split(" [source locations")[0]
                return f"{path} cannot be decoded ({cause[:300]})"
            raise
        if fingerprint is not None and fingerprint != recorded:
            return f"{path} is not what was saved (fingerprint {fingerprint}, recorded {recorded})"
    return None


def _compute_fingerprint(store: Any, shape: list[int]) -> int:
    """Return the `fingerprints.compute_fingerprint` of an array, computed on the host.

    Only one chunk is in memory at a time.
    """
    chunk, total = store.chunk_layout.read_chunk.shape or (), 0  # None for a scalar
    for corner in np.ndindex(*(-(-size // step) for size, step in zip(shape, chunk))):
        begin = [number * step for number, step in zip(corner, chunk)]
        here = tuple(
            slice(start, min(start + step, size)) for start, step, size in zip(begin, chunk, shape)
        )
        values = np.ascontiguousarray(store[here].read().result())
        bits = values.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[values.dtype.itemsize]).astype(
            np.uint64
        )
        position = np.zeros(values.shape, np.uint64)
        for axis, size in enumerate(shape):
            along = np.arange(here[axis].start, here[axis].stop, dtype=np.uint64)
            position = position * np.uint64(size) + along.reshape(
                [-1 if i == axis else 1 for i in range(len(shape))]
            )
        factors = (position * np.uint64(2) + np.uint64(1)) % np.uint64(2**32)
        total += int((bits * factors % np.uint64(2**32)).sum(dtype=np.uint64))
    return total % 2**32


def _list_files(folder: epath.Path, prefix: str = "") -> Iterator[tuple[str, epath.Path]]:
    """Yield (path relative to the folder, path) of each file except the inventory."""
    for path in sorted(folder.iterdir()):
        name = prefix + path.name
        if path.is_dir():
            yield from _list_files(path, f"{name}/")
        elif name != INVENTORY:
            yield name, path


def _is_array_data(name: str) -> bool:
    return "/d/" in f"/{name}"


def _read_to_end(path: epath.Path) -> int:
    """Return the number of bytes that can be read from a file."""
    length = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            length += len(block)
    return length


def _compute_crc32c(path: epath.Path) -> int:
    return google_crc32c.value(path.read_bytes())
