"""One training step and the evaluation of one batch, as pure functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import optax

from models.layers.ops import leave_unchanged
from pretrain.mesh.gradient_exchange import GradientFn, cast_params
from pretrain.training.divergence import count_updates, is_finite_step, tree_where
from pretrain.training.losses import DEFAULT_OPTIONS, Loss, LossOptions, MixedLoss
from pretrain.training.state import TrainState


def make_train_step(
    model: Any,
    loss: Loss | MixedLoss,
    optimizer: optax.GradientTransformation,
    learning_rate: Callable[[Any], Any],
    *,
    seed: int,
    microbatches: int = 1,
    norm_factor: float = 0.0,
    norm_window: int = 0,
    options: LossOptions = DEFAULT_OPTIONS,
    exchange: Callable[[GradientFn], GradientFn] = leave_unchanged,
) -> Callable[[TrainState, Any], tuple[TrainState, dict[str, jax.Array]]]:
    """Return a pure function (state, batch) -> (state, metrics), to be jitted with a donated state.

    The gradient belongs to the loss over the whole batch, whatever the number of microbatches: the
    weights are summed over the whole batch first, then sums are added up. Dropout is a function of
    (seed, step, microbatch). Metrics are float32 scalars. The model's variables pass from each row
    to the same row of the next batch, without a gradient. A step that `is_finite_step` rejects
    changes nothing but the step number, and has the metric `skipped` = 1.

    Args:
      learning_rate: the rate as a function of the update count, for the metrics.
      microbatches: number of parts of the batch that are computed one after the other.
      norm_factor, norm_window: as in `schema.Guard`.
      exchange: makes the gradient of the batch from the gradient of one device's rows; see
        `gradient_exchange`. By default the gradient is the batch's already.
    """
    compute = make_gradient(model, loss, options)
    if microbatches > 1:
        compute = partial(accumulate_gradients, compute, microbatches)
    compute = exchange(compute)

    def step(state: TrainState, batch: Any) -> tuple[TrainState, dict[str, jax.Array]]:
        key = jax.random.fold_in(jax.random.key(seed), state.step + 1)  # 0 drew the parameters
        totals = {name: jnp.maximum(w, 1.0) for name, w in loss.sum_weights(batch).items()}
        grads, (sums, variables) = compute(state.params, state.variables, batch, totals, key)
        updates, opt_state = optimizer.update(grads, state.optimizer, state.params)
        means = {name: value / totals[name] for name, value in sums.items()}
        value, norm = loss.compute_loss(means), optax.tree.norm(grads)
        rate = learning_rate(count_updates(state.optimizer, state.step))
        is_taken = is_finite_step(value, norm, state.optimizer, norm_factor, norm_window)
        metrics = means | {
            "loss": value,
            "gradient_norm": norm,
            "skipped": 1.0 - is_taken.astype(jnp.float32),
            "learning_rate": jnp.asarray(rate, jnp.float32),
            "tokens": loss.count_tokens(batch),
        }
        new = optax.apply_updates(state.params, updates), opt_state, variables
        old = state.params, state.optimizer, state.variables
        params, opt_state, variables = tree_where(is_taken, new, old)
        return TrainState(state.step + 1, params, opt_state, variables), metrics

    return step


def make_gradient(model: Any, loss: Loss | MixedLoss, options: LossOptions) -> GradientFn:
    """Return a pure (params, variables, batch, totals, key) -> (gradients, (sums, new variables)).

    The batch may be a microbatch. totals: {name: weight of the whole batch}; they divide the sums.
    The gradients are float32, also of parameters in another dtype.
    """

    def compute_gradient(
        params: Any, variables: Any, batch: Any, totals: dict[str, jax.Array], key: jax.Array
    ) -> tuple[Any, tuple[dict[str, jax.Array], Any]]:
        def compute_loss(params: Any) -> tuple[jax.Array, tuple[dict[str, jax.Array], Any]]:
            output = loss.compute_batch(
                model,
                params,
                batch,
                train=True,
                dropout_key=key,
                options=options,
                variables=variables,
            )
            means = {name: output.sums[name] / totals[name] for name in loss.loss_terms}
            return loss.compute_loss(means), (output.sums, output.variables)

        grads, outputs = jax.grad(compute_loss, has_aux=True)(params)
        return cast_params(grads, "float32"), outputs

    return compute_gradient


def accumulate_gradients(
    compute_gradient: GradientFn,
    microbatches: int,
    params: Any,
    variables: Any,
    batch: Any,
    totals: dict[str, jax.Array],
    key: jax.Array,
) -> tuple[Any, tuple[dict[str, jax.Array], Any]]:
    """Return (gradients, (sums, new variables)) of a batch, in the memory of one microbatch.

    The microbatches run one after the other by `compute_gradient`; gradients and sums are added up.
    """

    # Microbatch i takes every n-th row, so that it is sharded over all devices as the batch was.
    def split_rows(x: jax.Array) -> jax.Array:
        return x.reshape(-1, microbatches, *x.shape[1:]).swapaxes(0, 1)

    def join_rows(x: jax.Array) -> jax.Array:
        return x.swapaxes(0, 1).reshape(-1, *x.shape[2:])

    def add_microbatch(total: Any, xs: Any) -> tuple[Any, Any]:
        (rows, old_variables), i = xs
        microbatch_key = jax.random.fold_in(key, i)
        grads, (sums, new_variables) = compute_gradient(
            params, old_variables, rows, totals, microbatch_key
        )
        return jax.tree.map(jnp.add, total, (grads, sums)), new_variables

    split_inputs = jax.tree.map(split_rows, (batch, variables))
    rows, old_variables = jax.tree.map(lambda x: x[0], split_inputs)
    grads, (sums, _) = jax.eval_shape(compute_gradient, params, old_variables, rows, totals, key)
    zeros = jax.tree.map(jnp.zeros_like, (grads, sums))
    (grads, sums), new_variables = jax.lax.scan(
        add_microbatch, zeros, (split_inputs, jnp.arange(microbatches))
    )
    return grads, (sums, jax.tree.map(join_rows, new_variables))


def make_evaluation_fn(
    model: Any, loss: Loss | MixedLoss, options: LossOptions = DEFAULT_OPTIONS
) -> Callable[..., tuple[dict[str, jax.Array], dict[str, jax.Array], jax.Array | None, Any]]:
    """Return a pure (params, batch, variables={}) -> sums, weights, predictions, new variables.

    The sums and weights are {name: float32 scalar}, the predictions come from
    `Loss.row_predictions`, or are None. There is no dropout. The model's variables come from the
    batch before; {}: they begin at zero.
    """

    def evaluate_batch(
        params: Any, batch: Any, variables: Any = MappingProxyType({})
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], jax.Array | None, Any]:
        output = loss.compute_batch(
            model, params, batch, options=options, variables=dict(variables)
        )
        return output.sums, loss.sum_weights(batch), output.predictions, output.variables

    return evaluate_batch
