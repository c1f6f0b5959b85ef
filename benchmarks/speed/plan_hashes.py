"""Hashes of what a recorded plan depends on: the code that counts, and the compiled program."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pathlib
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The files that count what is in a program, and the functions that use them.
COUNTING = (
    *(f"pretrain/plan/{name}.py" for name in ("hlo", "hlo_parser", "hbm_traffic", "collectives")),
    *(f"pretrain/plan/{name}.py" for name in ("floor", "work", "roofline", "topology")),
    *("pretrain/training/flops.py", "pretrain/training/accelerators.py"),
    "pretrain/kernels/pair_scopes.py",
)
COUNTING_FUNCTIONS = {
    "pretrain.plan.estimate": ("plan_run", "count_step", "compute_bounds"),
    "pretrain.plan.compile": ("compile_update", "_compile_program"),
}


def hash_counting() -> str:
    """Return a hash of the code that counts what is in a program."""
    digest = hashlib.sha256()
    for name in COUNTING:
        digest.update(f"{name}\0".encode() + (ROOT / name).read_bytes())
    for name, functions in COUNTING_FUNCTIONS.items():
        module = importlib.import_module(name)
        for function in functions:
            digest.update(inspect.getsource(getattr(module, function)).encode())
    return digest.hexdigest()[:16]


def hash_program(config: str, topology: str, overrides: Sequence[str]) -> str:
    """Return a hash of the training step as it goes to the compiler, and of the number of steps.

    Args:
      config: name of a configuration.
      topology: TPU slice.
      overrides: `path=value` arguments.
    """
    import jax

    from pretrain.config import load
    from pretrain.mesh.sharding import make_mesh
    from pretrain.plan.topology import make_tpu_machine
    from pretrain.training.program import make_program

    run = load(config, overrides)
    mesh = make_mesh(run.mesh, make_tpu_machine(topology).devices)
    program = make_program(run, mesh)
    with jax.set_mesh(mesh):
        lowered = program.train_step.lower(program.describe_state(), program.batch)
    text = f"{run.train.last_step} {dict(mesh.shape)}\n{lowered.as_text()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
