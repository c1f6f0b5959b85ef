"""The check that a checkpoint's parameters are finite."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pretrain.inference.trained import Trained


def check_finite_params(
    trained: Trained,
    consequence: str = "a prediction means nothing",
    remedy: str = "use another --step",
) -> None:
    """Raise ValueError, which names a parameter, if parameters are NaN or infinite.

    A bias may be -inf: that of an output excludes a token or a class.

    Args:
      trained: the checkpoint.
      consequence: what follows from such parameters, for the error.
      remedy: what to do about it, for the error.
    """
    import jax

    for path, is_sound in jax.tree.leaves_with_path(_make_finite_check()(trained.params)):
        if not is_sound:
            raise ValueError(
                f"{trained.workdir}: the parameters of step {trained.step:,} are not finite "
                f"({jax.tree_util.keystr(path, simple=True, separator='/')}), so {consequence}; "
                f"{remedy}"
            )


@cache
def _make_finite_check() -> Any:
    """Return the jitted check of parameters; there is one, so that it is compiled once a model."""
    import jax
    import jax.numpy as jnp

    def check_leaf(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path[-1:], simple=True)
        return (leaf < jnp.inf if name == "bias" else jnp.isfinite(leaf)).all()

    return jax.jit(partial(jax.tree_util.tree_map_with_path, check_leaf))
