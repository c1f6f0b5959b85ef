"""A workdir that begins with given parameters."""

import json
from functools import partial
from typing import Any

import jax
from etils import epath

from data.source import Encoding
from data.store.atomic import build_folder
from pretrain.config import Run, to_json
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.state import create_state
from pretrain.workdir.checkpoints import Checkpoints


def start_workdir(
    workdir: epath.PathLike, run: Run, params: Any, encoding: Encoding, origin: Any = None
) -> None:
    """Create a workdir whose step 0 holds the given parameters.

    It is ready for `train`, `evaluate`, `predict` and `export`, and appears whole or not at all.

    Args:
      encoding: the meaning of the numbers in a batch, such as a vocabulary.
      origin: a JSON-like note on the source of the parameters, saved as origin.json.

    Raises:
      FileExistsError: `workdir` exists and is not empty, or another process fills it meanwhile.
    """
    with build_folder(workdir) as folder:
        (folder / "config.json").write_text(to_json(run))
        for name, save in encoding.artefacts.items():
            save(str(folder / name))
        if origin is not None:
            (folder / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")
        state = jax.jit(partial(create_state, optimizer=make_run_optimizer(run)))(params)
        with Checkpoints(folder, run.checkpoint) as checkpoints:
            checkpoints.save(state, run, encoding.fingerprint, origin=origin)
            checkpoints.wait_until_saved()
