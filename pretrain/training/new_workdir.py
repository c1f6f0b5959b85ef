"""A workdir that begins with given parameters."""

import json
from functools import partial

import jax

from data.store.atomic import build_folder
from pretrain.config import to_json
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.state import start
from pretrain.workdir.checkpoints import Checkpoints


def start_workdir(workdir, run, params, encoding, origin=None):
    """Make a workdir whose step 0 holds the given parameters, ready for `train`, `evaluate`, `predict` and `export`.

    encoding: a `data.source.Encoding`, such as a vocabulary. origin: a JSON-like note on where the parameters come from, kept as origin.json. The folder appears whole or not at all.
    Raises FileExistsError where `workdir` is there and not empty, or another process fills it meanwhile.
    """
    with build_folder(workdir) as part:
        (part / "config.json").write_text(to_json(run))
        for name, save in encoding.artefacts.items():
            save(str(part / name))
        if origin is not None:
            (part / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")
        state = jax.jit(partial(start, optimizer=make_run_optimizer(run)))(params)
        with Checkpoints(part, run.checkpoint) as checkpoints:
            checkpoints.save(state, run, encoding.fingerprint, origin=origin)
            checkpoints.wait()
