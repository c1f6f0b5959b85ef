"""A model of patches of images that begins with the body of another one."""

from functools import partial
from typing import Any

import jax

from models import build
from models.layers.layer_layout import match_layout
from pretrain.config import Run
from pretrain.mesh.sharding import format_path
from pretrain.settings.overrides import ConfigError
from pretrain.training.state import init_params

# The parts of a model of patches that another one begins with. The rest are heads.
BODY = ("embeddings", "encoder", "norm")


def take_body(run: Run, place: str, theirs: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters of a run that begins with a trained body, and the paths of new ones.

    Args:
      run: the run.
      place: the name of the other model, for an error.
      theirs: the parameters of the other model.

    Raises:
      ConfigError: a parameter of the body is missing, or has another shape.
    """
    model = build(run.model)
    initial = jax.jit(partial(init_params, model, run.data.objective, run.train.seed))()
    params = jax.device_get(initial)
    body = {part: params[part] for part in BODY}
    try:
        taken = match_layout(theirs, body)
    except KeyError as error:
        raise ConfigError(f"--from: {place} has no parameter {error}") from None
    leaves = jax.tree_util.tree_leaves_with_path(body)
    for (keys, expected), actual in zip(leaves, jax.tree.leaves(taken), strict=True):
        if expected.shape != actual.shape:
            raise ConfigError(
                f"--from: {format_path(keys)} is {list(actual.shape)} in {place}, and "
                f"{list(expected.shape)} in the configuration; give both models the same sizes"
            )
    paths = [format_path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(params)]
    new = [path for path in paths if path.partition("/")[0] not in BODY]
    return params | taken, new
