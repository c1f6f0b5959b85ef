"""Proof that a committed checkpoint is damaged, found in its files and not in the error that a library raised.

A read that fails may be damage, or a permission, exhausted memory, a network, a bug. Only the first may cost a checkpoint, and error
texts do not tell them apart. So after a failed read the files are examined again. Damage is proven by

- a file that the inventory names and that is missing, has another size, or another checksum;
- an array that TensorStore cannot decode though every file can be read to its end;
- an array whose fingerprint is not the recorded one.

Orbax's descriptions are in the inventory with their CRC32C, array data with their size alone: they would have to be read back at each save.
"""

import contextlib
import itertools
import json

import google_crc32c
import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from pretrain.distributed import processes
from pretrain.overrides import ConfigError
from pretrain.workdir.errors import DamagedCheckpoint, NotRestored, reason
from pretrain.workdir.record import is_sealed, seal

INVENTORY = "inventory.json"
REQUIRED = ("_METADATA", "manifest.ocdbt")  # without an inventory, such as one that was deleted
BLOCK = 1 << 24
# How TensorStore begins its message for bytes that it has read and cannot decode. NOT_FOUND is missing on purpose: missing files are
# found by the inventory, and an array that is looked up by a wrong name proves nothing.
UNDECODABLE = ("DATA_LOSS", "OUT_OF_RANGE")
CODEC_ERRORS = (
    "Zstd",
    "ZSTD",
)  # with FAILED_PRECONDITION or INVALID_ARGUMENT, which have other causes too
VERDICT_WAIT = (
    360  # seconds: a process that waits in Orbax's barrier for one that failed does so for 300
)
_attempts = itertools.count()


# ---- while a checkpoint is read ----------------------------------------------


@contextlib.contextmanager
def reading(step_folder, recorded):
    """Raise what libraries and the system raise in the block as DamagedCheckpoint with proof, else as NotRestored.

    recorded: as in `find_damage`. ConfigError passes, and so does what is no Exception, such as Ctrl-C.
    """
    try:
        yield
    except (DamagedCheckpoint, ConfigError):
        raise
    except Exception as error:
        try:
            proof, unread = find_damage(step_folder, recorded), ""
        except (
            Exception
        ) as refused:  # the examination meets the same cause, or one of its own: no proof
            proof, unread = None, f", and its files could not be examined ({reason(refused)})"
            unread = "" if reason(refused) == reason(error) else unread
        if proof:
            raise DamagedCheckpoint(proof) from error
        raise NotRestored(
            f"{step_folder}: the checkpoint was not restored ({reason(error)}){unread}. Nothing proves that it is damaged, so nothing was "
            "moved or changed. Remove the cause, and give the same command again."
        ) from error


@contextlib.contextmanager
def same_verdict():
    """Leave the block in all processes of a run alike: what is damaged for one is damaged for all, and where one stops, all stop.

    Raises DamagedCheckpoint or NotRestored with another process's words where this one has read its part.
    """
    if jax.process_count() == 1 or processes.client() is None:
        yield
        return
    from pretrain.distributed.preflight import collect, publish

    name, damage = f"restore/{next(_attempts)}", None
    try:
        yield
    except DamagedCheckpoint as error:
        damage = error
    except Exception as error:
        publish(name, {"stopped": reason(error)}, VERDICT_WAIT)
        raise
    publish(name, {"damaged": str(damage) if damage else None}, VERDICT_WAIT)
    verdicts = list(enumerate(collect(name, VERDICT_WAIT)))
    for index, verdict in verdicts:
        if "stopped" in verdict:
            raise NotRestored(
                f"process {index} could not restore the checkpoint: {verdict['stopped']}"
            )
    for index, verdict in verdicts:
        if verdict["damaged"]:
            raise DamagedCheckpoint(f"{verdict['damaged']} (found by process {index})") from damage


# ---- the files ---------------------------------------------------------------


def arrays_handler():
    """Return Orbax's handler of a tree of arrays, which also writes the inventory, just before the folder gets its final name.

    A subclass would need save and restore arguments of its own, and Orbax alone could not read the checkpoint any more.
    """
    handler = ocp.StandardCheckpointHandler()
    finalize = handler.finalize

    def finalize_and_list(directory):
        finalize(directory)
        write_inventory(epath.Path(directory))

    handler.finalize = finalize_and_list
    return handler


def write_inventory(folder):
    """Write the size of each file in `folder`, and the CRC32C of those that hold no array data."""
    files = {
        name: [path.stat().length, None if _holds_arrays(name) else _crc32c(path)]
        for name, path in _files(folder)
    }
    (folder / INVENTORY).write_text(json.dumps(seal({"files": files})))


def find_damage(step_folder, recorded) -> str | None:
    """Return what proves that a committed step is damaged, or None without proof.

    recorded: {item: {path: [dtype, shape, fingerprint]}} of the items to examine, such as params. Raises OSError where the system refuses
    to list or read a file, which is no proof, and ValueError where TensorStore fails for another reason than the bytes.
    """
    for item, leaves in recorded.items():
        folder = step_folder / item
        if not folder.is_dir():
            return f"{item} is missing" if step_folder.is_dir() else None
        if proof := _compare_inventory(folder) or _decode(folder, leaves):
            return f"{item}: {proof}"
    return None


def _compare_inventory(folder):
    found = {name: (path, _read_to_end(path)) for name, path in _files(folder)}
    if (inventory := _read_inventory(folder)) is None:
        return next((f"{name} is missing" for name in REQUIRED if name not in found), None)
    for name, (size, checksum) in inventory.items():
        if name not in found:
            return f"{name} is missing"
        path, length = found[name]
        if length != size:
            return f"{name} has {length:,} bytes, {size:,} were written"
        if checksum is not None and (seen := _crc32c(path)) != checksum:
            return f"{name} has CRC32C {seen:08x}, {checksum:08x} was written"
    return None


def _read_inventory(folder):
    """{file: [size, CRC32C or None]}, or None where there is no sound inventory to compare with."""
    try:
        sealed = json.loads((folder / INVENTORY).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return sealed["record"]["files"] if is_sealed(sealed) else None


def _decode(folder, leaves):
    """Read each array by TensorStore alone, one after the other, chunk by chunk, and compare its fingerprint."""
    import tensorstore

    context = tensorstore.Context({"file_io_concurrency": {"limit": 1}})
    base = (
        str(folder) + "/" if "://" in str(folder) else {"driver": "file", "path": str(folder) + "/"}
    )
    for path, (dtype, shape, recorded) in leaves.items():
        kvstore = {"driver": "ocdbt", "base": base, "path": path.replace("/", ".") + "/"}
        try:
            store = tensorstore.open(
                {"driver": "zarr", "kvstore": kvstore}, context=context, open=True, read=True
            ).result()
            seen = (
                _fingerprint(store, shape)
                if str(store.dtype.name) == dtype and list(store.shape) == shape
                else None
            )
        except ValueError as error:
            text = str(error)
            if text.startswith(UNDECODABLE) or any(word in text for word in CODEC_ERRORS):
                return f"{path} cannot be decoded ({text.split(' [tensorstore_spec')[0].split(' [source locations')[0][:300]})"
            raise
        if seen is not None and seen != recorded:
            return f"{path} is not what was saved (fingerprint {seen}, recorded {recorded})"
    return None


def _fingerprint(store, shape):
    """As `fingerprints.fingerprint`, on the host and with one chunk in memory at a time."""
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
        place = np.zeros(values.shape, np.uint64)
        for axis, size in enumerate(shape):
            along = np.arange(here[axis].start, here[axis].stop, dtype=np.uint64)
            place = place * np.uint64(size) + along.reshape(
                [-1 if i == axis else 1 for i in range(len(shape))]
            )
        factors = (place * np.uint64(2) + np.uint64(1)) % np.uint64(2**32)
        total += int((bits * factors % np.uint64(2**32)).sum(dtype=np.uint64))
    return total % 2**32


def _files(folder, prefix=""):
    """Yield (path within `folder`, path) of each file but the inventory. Raises OSError for a folder that cannot be listed."""
    for path in sorted(folder.iterdir()):
        name = prefix + path.name
        if path.is_dir():
            yield from _files(path, f"{name}/")
        elif name != INVENTORY:
            yield name, path


def _holds_arrays(name):
    return "/d/" in f"/{name}"


def _read_to_end(path):
    """The number of bytes that can be read."""
    length = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            length += len(block)
    return length


def _crc32c(path):
    return google_crc32c.value(path.read_bytes())
