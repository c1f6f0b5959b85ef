"""A workdir that begins with given parameters, or with another run's."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
from etils import epath

from data.source import Encoding
from data.store.atomic import build_folder
from pretrain.config import Run, to_json
from pretrain.host.terminal import escape_line
from pretrain.mesh.replica_check import fingerprint_leaves
from pretrain.settings.overrides import ConfigError
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.state import TrainState, add_factors, create_state
from pretrain.workdir.check import check_orbax_path
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.trained import Trained
from pretrain.workdir.workdir import Workdir


def start_workdir(
    workdir: epath.PathLike, run: Run, params: Any, encoding: Encoding, origin: Any = None
) -> None:
    """Create a workdir whose step 0 holds the given parameters.

    It is ready for `train`, `evaluate`, `predict` and `export`, and appears whole or not at all.

    Args:
      encoding: the meaning of the numbers in a batch, such as a vocabulary.
      params: of the model; with LoRA they may bring factors, and those that they lack are drawn.
      origin: a JSON-like note on the source of the parameters, saved as origin.json.

    Raises:
      FileExistsError: `workdir` exists and is not empty, or another process fills it meanwhile.
      ConfigError: Orbax cannot save below the path of `workdir`.
    """

    def make_state() -> TrainState:
        own = add_factors(run, params) if run.train.lora_rank else params
        return jax.jit(partial(create_state, optimizer=make_run_optimizer(run)))(own)

    write_new_workdir(workdir, run, make_state, encoding, origin)


def write_new_workdir(
    workdir: epath.PathLike,
    run: Run,
    make_state: Callable[[], TrainState],
    encoding: Encoding,
    origin: Any,
    rows: int | Mapping[str, int] = 0,
    files: Mapping[str, str] | None = None,
) -> None:
    """Create a workdir with one checkpoint, as `start_workdir` does.

    Args:
      make_state: returns the state that is saved.
      rows: rows that the state has read, as for `Checkpoints.save`.
      files: {name: text} of further files.
    """
    check_orbax_path(workdir)
    with build_folder(workdir) as folder:
        (folder / "config.json").write_text(to_json(run))
        for name, save in encoding.artefacts.items():
            save(str(folder / name))
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
        if origin is not None:
            (folder / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")
        with Checkpoints(folder, run.checkpoint) as checkpoints:
            checkpoints.save(make_state(), run, encoding.fingerprint, rows=rows, origin=origin)
            checkpoints.wait_until_saved()


def report_other_origin(
    workdir: Workdir, model_path: epath.PathLike, step: int | None = None
) -> None:
    """Print a line to stderr if a workdir that exists began with another model.

    Args:
      workdir: the workdir, which is resumed.
      step: the step of its checkpoint; None: any.
    """
    origin = workdir.read_origin() or {}
    if "folder" not in origin:
        return
    folder, origin_step = origin["folder"], origin.get("pretrained_step")
    if folder != name_folder(model_path) or step not in (None, origin_step):
        requested = name_folder(model_path) + (f" at step {step}" if step is not None else "")
        print(
            f"note: {workdir} goes on from its own last checkpoint; it began with "
            f"{escape_line(folder)} at step {origin_step}, not with {requested}. To begin with "
            "that, name another --workdir",
            file=sys.stderr,
        )


def digest_params(params: Any) -> str:
    """Return a hash of parameters: of the paths, dtypes, shapes and fingerprints of all leaves."""
    text = json.dumps(fingerprint_leaves(params), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def check_origin(workdir: Workdir, model: Any, fresh: str) -> None:
    """Check that a fine-tuning that exists began with the model that is named now.

    The contents decide, not the names. What a workdir of version 0.2.0 did not record is said.

    Args:
      workdir: the workdir, which would be resumed.
      model: the `Trained` of --from, or a `NewModel`, which has no parameters yet.
      fresh: the value of --fresh: "head" or "all".

    Raises:
      ConfigError: it began with another model, or with other parameters initialized at random.
    """
    origin = workdir.read_origin() or {}
    if "folder" not in origin:
        return
    began = f"{escape_line(origin['folder'])} at step {origin.get('pretrained_step')}"
    remedy = (
        f"name another --workdir, or resume this one by `train {workdir}/config.json --workdir "
        f"{workdir}`"
    )
    is_all = any(prefix.startswith("encoder/") for prefix in origin.get("fresh", ()))
    began_fresh = origin.get("fresh_flag", "all" if is_all else None)  # None: of version 0.2.0
    if isinstance(model, Trained) and began_fresh not in (None, fresh):
        raise ConfigError(
            f"{workdir} began with --fresh {began_fresh}, not --fresh {fresh}, which would be "
            f"ignored: {remedy}"
        )
    given, step = name_folder(model.workdir), model.step
    is_same_name = (origin["folder"], origin.get("pretrained_step")) == (given, step)
    if isinstance(model, Trained) and "pretrained_digest" in origin:
        is_same = origin["pretrained_digest"] == digest_params(model.params)
    else:
        is_same = is_same_name
        if is_same and isinstance(model, Trained):
            print(
                f"note: {workdir} was begun by a version of Cloze that recorded the name and the "
                f"step of its model ({began}) alone: whether {model.workdir} is it cannot be "
                "checked",
                file=sys.stderr,
            )
    if not is_same:
        raise ConfigError(
            f"{workdir} began with {began}, not with the model in {model.workdir} at step {step}: "
            f"give the --from and the --step that it began with, {remedy}"
        )


def name_folder(model_path: epath.PathLike) -> str:
    """Return the last part of the path of a model's folder, as origin.json has it."""
    return os.path.basename(os.path.abspath(model_path))
