"""One optimisation step, as a pure function of (state, batch), and one evaluation of a batch."""

import jax
import jax.numpy as jnp
import optax

from pretrain.training.divergence import is_finite_step, tree_where, update_count
from pretrain.training.losses import DEFAULT_OPTIONS


def make_step(
    model,
    loss,
    optimizer,
    rate,
    *,
    seed,
    microbatches=1,
    norm_factor=0.0,
    norm_window=0,
    options=DEFAULT_OPTIONS,
):
    """A pure `(state, batch) -> (state, metrics)`, to be jitted with shardings and a donated state.

    model: a Linen module; loss: a `losses.Loss`; optimizer: an optax transformation; rate: its schedule, for the metrics;
    norm_factor, norm_window: of `schema.Guard`; options: a `losses.LossOptions`.
    The gradient is that of the loss over the whole batch, however many micro-batches compute it: the weights are summed over the
    whole batch first, then sums add up. Randomness is a function of (seed, step, micro-batch). Metrics are float32 scalars.
    A step that `divergence.is_finite_step` does not take changes the step's number alone, and has 1 as its metric `skipped`.
    """

    def part(params, batch, totals, key):
        """(gradients, sums) of one micro-batch's share of the loss."""

        def objective(params):
            sums = loss.sums(model, params, batch, train=True, dropout_key=key, options=options)
            means = {name: sums[name] / totals[name] for name in loss.loss_terms}
            return loss.value(means), sums

        return jax.grad(objective, has_aux=True)(params)

    def step(state, batch):
        key = jax.random.fold_in(jax.random.key(seed), state.step + 1)  # 0 drew the parameters
        totals = {name: jnp.maximum(weight, 1.0) for name, weight in loss.totals(batch).items()}
        if microbatches == 1:
            grads, sums = part(state.params, batch, totals, key)
        else:
            grads, sums = accumulate(part, state.params, batch, totals, key, microbatches)
        moves, moments = optimizer.update(grads, state.optimizer, state.params)
        means = {name: value / totals[name] for name, value in sums.items()}
        value, norm = loss.value(means), optax.tree.norm(grads)
        taken = is_finite_step(value, norm, state.optimizer, norm_factor, norm_window)
        metrics = means | {
            "loss": value,
            "gradient_norm": norm,
            "skipped": 1.0 - taken.astype(jnp.float32),
            "learning_rate": jnp.asarray(
                rate(update_count(state.optimizer, state.step)), jnp.float32
            ),
            "tokens": sum(batch[key].sum(dtype=jnp.float32) for key in loss.tokens),
        }
        new = optax.apply_updates(state.params, moves), moments
        params, moments = tree_where(taken, new, (state.params, state.optimizer))
        return state.replace(step=state.step + 1, params=params, optimizer=moments), metrics

    return step


def accumulate(part, params, batch, totals, key, microbatches):
    """The sum of `part` over micro-batches, one after the other, in the memory of one."""
    # Rows are dealt out in turn, so that each micro-batch is spread over all devices as the batch was.
    dealt = jax.tree.map(lambda x: x.reshape(-1, microbatches, *x.shape[1:]).swapaxes(0, 1), batch)

    def add(total, xs):
        rows, i = xs
        return jax.tree.map(
            jnp.add, total, part(params, rows, totals, jax.random.fold_in(key, i))
        ), None

    first = jax.tree.map(lambda x: x[0], dealt)
    zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(part, params, first, totals, key))
    total, _ = jax.lax.scan(add, zero, (dealt, jnp.arange(microbatches)))
    return total


def make_evaluation(model, loss, options=DEFAULT_OPTIONS):
    """Return a pure `(params, batch) -> ({name: sum}, {name: weight}, rows)`, without dropout.

    rows: what `Loss.row_predictions` gives, or None.
    """

    def evaluation(params, batch):
        sums, rows = loss.sums_and_predictions(model, params, batch, options=options)
        return sums, loss.totals(batch), rows

    return evaluation
