"""Changes of a run that need less memory, each tried against the estimate."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jax.sharding import AbstractMesh

from data.mixed import Mixed
from models.config.heads import HeadedConfig
from pretrain.config import Run, override_run, validate_run
from pretrain.mesh.sharding import AXES, make_mesh
from pretrain.settings import Adafactor
from pretrain.settings.overrides import ConfigError
from pretrain.training.memory.memory_estimate import count_residuals, estimate_on_devices
from pretrain.training.program import check_batch, make_program

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from pretrain.training.program import Program

SHARD_STATE = ("mesh.data=1", "mesh.fsdp=-1")  # adds exchanges, most of them overlapped
MAX_CHEAPER_STEPS = 3  # that are proposed
MAX_DEVICES = 1 << 14


def change_run(run: Run, overrides: Sequence[str]) -> Run:
    """Return a valid copy of a run with overrides."""
    changed = override_run(run, overrides, report=lambda _: None)
    validate_run(changed)
    return changed


class ResidualCounts:
    """The bytes of the activations of whole batches, traced once for each model."""

    def __init__(self, run: Run, mesh: Mesh) -> None:
        """Count for a run on meshes that split its rows over as many devices as `mesh`."""
        self.run, self.mesh = run, mesh
        self.counts: dict[Any, int] = {}  # {configuration of a model: bytes on each device}

    def count(self, run: Run, program: Program) -> int:
        """Return the bytes on each device, as `count_residuals`."""
        if run.model not in self.counts:
            if run.model != self.run.model:
                program = make_program(run, self.mesh)
            self.counts[run.model] = count_residuals(run, self.mesh, program)
        return self.counts[run.model]


def find_remedies(run: Run, mesh: Mesh, budget: int) -> list[str]:
    """Return changes, `path=value ...`, after which a step takes `budget` bytes at most.

    They keep the devices and the model: cheaper steps, and the largest smaller batch. If none
    suffices, they are more devices and a narrower model.
    """
    counts = ResidualCounts(run, mesh)
    changes = list(
        itertools.islice(find_cheaper_steps(run, mesh, counts, budget), MAX_CHEAPER_STEPS)
    )
    changes += find_batch_size(run, mesh, counts, budget)
    if not changes:
        changes += find_larger_mesh(run, mesh, counts, budget)
        changes += find_narrower_model(run, mesh, counts, budget)
    return [" ".join(overrides) for overrides in changes]


def find_remat_key(model: Any) -> str | None:
    """Return the key that makes a model recompute its activations; None for one that cannot."""
    encoder = model.encoder if isinstance(model, HeadedConfig) else model
    if "remat" not in {field.name for field in dataclasses.fields(encoder)}:
        return None
    return "model.remat" if encoder is model else "model.encoder.remat"


def find_cheaper_steps(
    run: Run, mesh: Mesh, counts: ResidualCounts, budget: int
) -> Iterator[list[str]]:
    """Yield overrides that keep model and batch: microbatches, remat, sharding, the optimizer."""
    key = find_remat_key(run.model)
    remat = [] if key is None or run.model.remat else [f"{key}=true"]
    is_sharded = mesh.shape["fsdp"] * mesh.shape["sequence"] * mesh.shape["model"] == mesh.size
    shards = [] if is_sharded else [*SHARD_STATE]
    adafactor = [] if isinstance(run.optimizer, Adafactor) else ["optimizer=adafactor"]
    variants = [[], remat, shards, adafactor, [*remat, *shards], [*shards, *adafactor]]
    for number, overrides in enumerate(variants):
        if overrides in variants[:number]:
            continue
        try:
            changed = change_run(run, overrides)
            new_mesh = make_mesh(changed.mesh, list(mesh.devices.flat))
        except ValueError:  # The mesh or the sections do not fit each other.
            continue
        fitting = add_microbatches(changed, new_mesh, counts, budget)
        if fitting is not None and (overrides or fitting):
            yield [*overrides, *fitting]


def add_microbatches(run: Run, mesh: Mesh, counts: ResidualCounts, budget: int) -> list[str] | None:
    """Return the fewest microbatches as overrides, [] if none are needed; None if none fit."""
    program = make_program(run, mesh)
    most = run.data.batch_size // (mesh.shape["data"] * mesh.shape["fsdp"])
    fixed: dict[bool, int] = {}  # {whether gradients are summed: bytes without activations}
    for count in range(run.train.microbatches, max(most, 1) + 1):
        overrides = [f"train.microbatches={count}"] if count != run.train.microbatches else []
        changed = change_run(run, overrides)
        try:
            check_batch(changed, mesh)
        except ConfigError:  # The batch does not divide.
            continue
        if (count > 1) not in fixed:
            fixed[count > 1] = estimate_on_devices(changed, program, mesh, 0).expected
        left = budget - fixed[count > 1]
        if left >= 0 and counts.count(run, program) // count <= left:
            return overrides
        if count > 1 and left < 0:
            return None  # More microbatches make only the activations smaller.
    return None


def find_batch_size(
    run: Run, mesh: Mesh, counts: ResidualCounts, budget: int
) -> Iterator[list[str]]:
    """Yield the largest smaller batch that fits as overrides, if there is one."""
    if isinstance(run.data.objective, Mixed):  # Each part has its own share of the rows.
        return
    program = make_program(run, mesh)
    left = budget - estimate_on_devices(run, program, mesh, 0).expected
    step = run.train.microbatches * mesh.shape["data"] * mesh.shape["fsdp"]
    if left <= 0 or run.data.batch_size <= step:
        return
    bytes_per_row = counts.count(run, program) / run.train.microbatches / run.data.batch_size
    size = int(left / max(bytes_per_row, 1)) // step * step
    if size > 0:
        yield [f"data.batch_size={min(size, run.data.batch_size - step)}"]


def find_larger_mesh(
    run: Run, mesh: Mesh, counts: ResidualCounts, budget: int
) -> Iterator[list[str]]:
    """Yield the fewest devices, by a power of two, over which the sharded state fits."""
    program = make_program(run, mesh)
    old_rows = fsdp = mesh.shape["data"] * mesh.shape["fsdp"]
    rest = mesh.shape["sequence"] * mesh.shape["model"]
    while (fsdp := 2 * fsdp) * rest <= MAX_DEVICES:
        sizes = {axis: mesh.shape[axis] for axis in AXES} | {"data": 1, "fsdp": fsdp}
        larger = AbstractMesh(tuple(sizes.values()), tuple(sizes))
        if run.data.batch_size % (fsdp * run.train.microbatches):
            return
        left = budget - estimate_on_devices(run, program, larger, 0).expected
        if left >= 0 and (
            counts.count(run, program) * old_rows // fsdp // run.train.microbatches <= left
        ):
            yield [f"mesh.data=1 mesh.fsdp={fsdp} on {fsdp * rest} such devices"]
            return


def find_narrower_model(
    run: Run, mesh: Mesh, counts: ResidualCounts, budget: int
) -> Iterator[list[str]]:
    """Yield the first of width / 2, width / 4, ... that fits, with its microbatches."""
    if isinstance(run.model, HeadedConfig):  # Its encoder is pretrained.
        return
    if "width" not in {field.name for field in dataclasses.fields(run.model)}:  # LeNet-5
        return
    width, program = run.model.width, make_program(run, mesh)
    needed = estimate_on_devices(run, program, mesh, 0).expected
    while (width := width // 2) >= 1:
        needed //= 4  # No parameter shrinks faster than by the square of the width.
        if needed > budget:
            continue
        overrides = [f"model.width={width}"]
        try:
            fitting = add_microbatches(change_run(run, overrides), mesh, counts, budget)
        except ValueError:  # The width does not divide by other sizes of the model.
            continue
        if fitting is not None:
            yield [*overrides, *fitting]
            return
