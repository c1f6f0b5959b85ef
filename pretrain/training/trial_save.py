"""Try to save as a run does, so that `doctor` finds what keeps a checkpoint from being saved."""

import jax
import jax.numpy as jnp
from etils import epath

from pretrain.config import CONFIGS, load
from pretrain.training.state import TrainState
from pretrain.workdir.checkpoints import Checkpoints


def try_save(folder: epath.Path) -> None:
    """Save a state of a few numbers as a checkpoint in a folder, as a run does, and restore it.

    Raises:
      ValueError: what was restored is not what was saved.
      Exception: whatever a run would meet at its save.
    """
    # The record of a checkpoint has a configuration, here any of them.
    run = load(min(path for path in CONFIGS.glob("*.py") if path.stem != "__init__"))
    params = {"probe": jnp.arange(8.0)}
    state = TrainState(jnp.asarray(1, jnp.int32), params, {"moments": params})
    placed = jax.tree.map(lambda leaf: leaf.sharding, state)
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(state, run, "doctor")
        checkpoints.wait_until_saved()
        restored = checkpoints.restore_state(jax.eval_shape(lambda: state), placed, "doctor")
    if restored is None or not jnp.array_equal(restored.params["probe"], params["probe"]):
        raise ValueError("the checkpoint is not there, or has other numbers")
