"""Damage to files, as torn writes, bad sectors and editors leave them; a function of a seed."""

from __future__ import annotations

import pathlib
import random


def cut_file(path: pathlib.Path, rng: random.Random) -> str:
    """Cut a file at a random byte, and return what was done."""
    size = rng.randrange(max(1, path.stat().st_size))
    with open(path, "r+b") as file:
        file.truncate(size)
    return f"cut to {size:,} bytes"


def flip_bit(path: pathlib.Path, rng: random.Random) -> str:
    """Flip the top bit of a random byte, and return what was done.

    A text is no UTF-8 afterwards, so that the damage can be noticed in a log without checksums.
    """
    raw = bytearray(path.read_bytes())
    if not raw:
        return "empty, left alone"
    place = rng.randrange(len(raw))
    raw[place] ^= 0x80
    path.write_bytes(raw)
    return f"bit flipped in byte {place:,}"


def zero_block(path: pathlib.Path, rng: random.Random) -> str:
    """Overwrite up to 512 bytes with zeros, and return what was done."""
    raw = bytearray(path.read_bytes())
    place = rng.randrange(max(1, len(raw)))
    raw[place : place + 512] = bytes(len(raw[place : place + 512]))
    path.write_bytes(raw)
    return f"zeros from byte {place:,}"


def append_garbage(path: pathlib.Path, rng: random.Random) -> str:
    """Append up to 300 random bytes, and return what was done."""
    garbage = rng.randbytes(rng.randint(1, 300))
    with open(path, "ab") as file:
        file.write(garbage)
    return f"{len(garbage)} random bytes appended"


def delete_file(path: pathlib.Path, rng: random.Random) -> str:
    """Delete a file, and return what was done."""
    path.unlink()
    return "deleted"


DAMAGES = (cut_file, flip_bit, zero_block, append_garbage, delete_file)


def damage_file(path: pathlib.Path, rng: random.Random) -> str:
    """Damage a file in one of the ways of `DAMAGES`, and return what was done to which."""
    return f"{path.name} {rng.choice(DAMAGES)(path, rng)}"


def damage_checkpoint(step: pathlib.Path, rng: random.Random) -> str:
    """Damage one file of a checkpoint, every second time one in which most bytes are."""
    files = sorted(path for path in step.rglob("*") if path.is_file() and path.stat().st_size)
    weights = [path.stat().st_size for path in files] if rng.random() < 0.5 else None
    (path,) = rng.choices(files, weights)
    return f"checkpoint {step.name}: {path.relative_to(step).parent}/{damage_file(path, rng)}"
