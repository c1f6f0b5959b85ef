"""Compiles a run's programs for a mesh and keeps what the compiler tells: bytes, the scheduled text, warnings, or that it does not fit."""

import contextlib
import os
import re
import tempfile
import time
from typing import NamedTuple

import jax

from pretrain.training.program import make_program

REPEATED = "Involuntary full rematerialization"  # the partitioner gave up: it gathers a whole array on every device


# The TPU's compiler spends a third of the time; its schedule and the last tenth of the bytes are not what a run would get.
QUICK = {"exec_time_optimization_effort": -1.0}


class Compiled(NamedTuple):
    """What became of one program. bytes and text are None where it does not fit.

    bytes: {argument, output, alias, temp, code, peak}, on each device; needed, limit: bytes, where the compiler says that it does not
    fit; warnings: what the partitioner complained of.
    """

    seconds: float
    bytes: dict | None = None
    text: str | None = None
    needed: float | None = None
    limit: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def fits(self):
        return self.text is not None


def compile_update(run, mesh, program=None, quick=False):
    """`Compiled` of the training step: the one that `train` runs, optimizer, donation and all."""
    program = program or make_program(run, mesh)
    return _compile(mesh, lambda: program.update.lower(program.state(), program.batch), quick)


def compile_score(run, mesh, program=None, quick=False):
    """`Compiled` of the evaluation of one batch."""
    program = program or make_program(run, mesh)
    return _compile(mesh, lambda: program.score.lower(program.state().params, program.batch), quick)


def _compile(mesh, lower, quick):
    began, compiled, sizes = time.monotonic(), None, (None, None)
    with jax.set_mesh(mesh), _heard() as heard:
        try:
            compiled = lower().compile(
                compiler_options=QUICK if quick and mesh.devices.flat[0].platform == "tpu" else None
            )
        except jax.errors.JaxRuntimeError as error:
            sizes = _sizes(str(error))
    seconds = time.monotonic() - began
    if compiled is None:
        return Compiled(seconds, needed=sizes[0], limit=sizes[1], warnings=tuple(heard))
    stats = compiled.memory_analysis()
    names = {
        "argument": "argument_size",
        "output": "output_size",
        "alias": "alias_size",
        "temp": "temp_size",
        "code": "generated_code_size",
    }
    sizes = {name: getattr(stats, f"{attribute}_in_bytes") for name, attribute in names.items()}
    sizes["peak"] = (
        getattr(stats, "peak_memory_in_bytes", 0)
        or sizes["argument"] + sizes["output"] - sizes["alias"] + sizes["temp"]
    )
    return Compiled(seconds, sizes, compiled.as_text(), warnings=tuple(heard))


def _sizes(message):
    """(bytes needed, bytes there) of the compiler's message that memory ran out; any other error is raised again."""
    found = re.search(r"\(([\d.]+)([KMG]?)\) exceeds available HBM \(([\d.]+)([KMG]?)\)", message)
    if not found:
        if "RESOURCE_EXHAUSTED" in message:
            return None, None
        raise RuntimeError(message.splitlines()[0])
    unit = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
    return float(found[1]) * unit[found[2]], float(found[3]) * unit[found[4]]


@contextlib.contextmanager
def _heard():
    """Gives a list that holds, afterwards, what XLA complained of meanwhile: it writes to file descriptor 2, past Python.

    Everything that it wrote is passed on if an exception comes through.
    """
    lines, kept = [], os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        failed = True
        try:
            yield lines
            failed = False
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said = file.read()
            if failed:
                os.write(2, said)
            found = (
                line.partition(REPEATED)[2].strip(" .:")
                for line in said.decode(errors="replace").splitlines()
                if REPEATED in line
            )
            lines += dict.fromkeys(line or REPEATED for line in found)
