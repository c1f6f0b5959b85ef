"""Compile a run's programs for a mesh and collect memory sizes, the scheduled text and warnings."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from pretrain.host.terminal import escape
from pretrain.training.program import Program, make_program

if TYPE_CHECKING:
    from pretrain.config import Run

# XLA's partitioner warns so when it gathers a whole array on every device.
REMATERIALIZATION_WARNING = "Involuntary full rematerialization"

# The TPU's compiler takes a third of the time. The schedule is worse than a run's, and its
# bytes differ by up to a tenth.
QUICK_OPTIONS = {"exec_time_optimization_effort": -1.0}


class CompiledProgram(NamedTuple):
    """The outcome of compiling one program.

    Attributes:
      memory_sizes: {argument, output, alias, temp, code, peak} in bytes on each device; None if it
        does not fit.
      text: the scheduled HLO; None if it does not fit.
      needed_bytes: bytes of HBM that it needs, if the compiler reports that it does not fit.
      limit_bytes: bytes of HBM available, if the compiler reports that it does not fit.
    """

    seconds: float
    memory_sizes: dict[str, int] | None = None
    text: str | None = None
    needed_bytes: float | None = None
    limit_bytes: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Return whether the program fits in memory."""
        return self.text is not None


def compile_update(
    run: Run, mesh: jax.sharding.Mesh, program: Program | None = None, quick: bool = False
) -> CompiledProgram:
    """Compile the training step that `train` runs, with its optimizer and donated buffers."""
    program = program or make_program(run, mesh)
    state, batch, update = program.describe_state(), program.batch, program.train_step
    return _compile_program(mesh, lambda: update.lower(state, batch), quick)


def compile_score(
    run: Run, mesh: jax.sharding.Mesh, program: Program | None = None, quick: bool = False
) -> CompiledProgram:
    """Compile the evaluation of one batch."""
    program = program or make_program(run, mesh)
    state, batch, score = program.describe_state(), program.batch, program.evaluation_step
    arguments = state.params, batch, state.variables
    return _compile_program(mesh, lambda: score.lower(*arguments), quick)


def _compile_program(
    mesh: jax.sharding.Mesh, lower: Callable[[], Any], quick: bool
) -> CompiledProgram:
    """Compile the lowered program that `lower` returns."""
    start, compiled = time.monotonic(), None
    needed, limit = None, None
    is_quick = quick and mesh.devices.flat[0].platform == "tpu"
    with jax.set_mesh(mesh), _capture_warnings() as warnings:
        try:
            compiled = lower().compile(compiler_options=QUICK_OPTIONS if is_quick else None)
        except jax.errors.JaxRuntimeError as error:
            needed, limit = _parse_memory_error(str(error))
    seconds = time.monotonic() - start
    if compiled is None:
        return CompiledProgram(
            seconds, needed_bytes=needed, limit_bytes=limit, warnings=tuple(warnings)
        )
    stats = compiled.memory_analysis()
    attributes = {
        "argument": "argument_size",
        "output": "output_size",
        "alias": "alias_size",
        "temp": "temp_size",
        "code": "generated_code_size",
    }
    sizes = {name: getattr(stats, f"{size}_in_bytes") for name, size in attributes.items()}
    sizes["peak"] = (
        getattr(stats, "peak_memory_in_bytes", 0)
        or sizes["argument"] + sizes["output"] - sizes["alias"] + sizes["temp"]
    )
    return CompiledProgram(seconds, sizes, compiled.as_text(), warnings=tuple(warnings))


def _parse_memory_error(message: str) -> tuple[float | None, float | None]:
    """Return (bytes needed, bytes available) of the compiler's message that memory ran out.

    (None, None) if the message has no figures.
    """
    found = re.search(r"\(([\d.]+)([KMG]?)\) exceeds available HBM \(([\d.]+)([KMG]?)\)", message)
    if not found:
        if "RESOURCE_EXHAUSTED" in message:
            return None, None
        raise RuntimeError(message.splitlines()[0])
    unit = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
    return float(found[1]) * unit[found[2]], float(found[3]) * unit[found[4]]


@contextlib.contextmanager
def _capture_warnings() -> Iterator[list[str]]:
    """Yield a list that on exit receives XLA's rematerialization warnings.

    XLA writes them to file descriptor 2, past Python. If an exception is raised, everything that
    was written goes to the original file descriptor.
    """
    warnings: list[str] = []
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        failed = True
        try:
            yield warnings
            failed = False
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            file.seek(0)
            output = file.read()
            if failed:
                os.write(2, escape(output.decode(errors="replace")).encode())
            arrays = (
                line.partition(REMATERIALIZATION_WARNING)[2].strip(" .:")
                for line in output.decode(errors="replace").splitlines()
                if REMATERIALIZATION_WARNING in line
            )
            warnings += dict.fromkeys(array or REMATERIALIZATION_WARNING for array in arrays)
