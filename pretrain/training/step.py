"""One optimisation step, as a pure function of (state, batch), and one evaluation of a batch."""

import jax
import jax.numpy as jnp
import optax

from pretrain.training.divergence import is_finite_step, tree_where, update_count
from pretrain.training.losses import DEFAULT_OPTIONS
from pretrain.training.state import State


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

    model: a Linen module; loss: a `losses.Loss` or `losses.MixedLoss`; optimizer: an optax transformation; rate: its schedule, for the metrics;
    norm_factor, norm_window: of `schema.Guard`; options: a `losses.LossOptions`.
    The gradient is that of the loss over the whole batch, however many micro-batches compute it: the weights are summed over the
    whole batch first, then sums add up. Randomness is a function of (seed, step, micro-batch). Metrics are float32 scalars.
    What the model keeps of a row goes on in the same row of the next batch; no gradient passes from one to the other.
    A step that `divergence.is_finite_step` does not take changes the step's number alone, and has 1 as its metric `skipped`.
    """

    part = make_gradient(model, loss, options)

    def step(state, batch):
        key = jax.random.fold_in(jax.random.key(seed), state.step + 1)  # 0 drew the parameters
        totals = {name: jnp.maximum(weight, 1.0) for name, weight in loss.totals(batch).items()}
        given = state.params, state.variables, batch, totals, key
        if microbatches == 1:
            grads, (sums, variables) = part(*given)
        else:
            grads, (sums, variables) = accumulate(part, *given, microbatches)
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
            "tokens": loss.count_tokens(batch),
        }
        new = optax.apply_updates(state.params, moves), moments, variables
        old = state.params, state.optimizer, state.variables
        params, moments, variables = tree_where(taken, new, old)
        return State(state.step + 1, params, moments, variables), metrics

    return step


def make_gradient(model, loss, options):
    """Return a pure `(params, variables, batch, totals, key) -> (gradients, (sums, what the model keeps))` of a share of the batch.

    totals: {name: weight of the whole batch}, by which the share's sums are divided.
    """

    def part(params, variables, batch, totals, key):
        """(gradients, (sums, what the model keeps)) of one micro-batch's share of the loss."""

        def objective(params):
            found = loss.compute(
                model,
                params,
                batch,
                train=True,
                dropout_key=key,
                options=options,
                variables=variables,
            )
            means = {name: found.sums[name] / totals[name] for name in loss.loss_terms}
            return loss.value(means), (found.sums, found.variables)

        return jax.grad(objective, has_aux=True)(params)

    return part


def accumulate(part, params, variables, batch, totals, key, microbatches):
    """(gradients, (sums, what the model keeps)) of all micro-batches, one after the other, in the memory of one: sums add up."""

    # Rows are dealt out in turn, so that each micro-batch is spread over all devices as the batch was.
    def deal(x):
        return x.reshape(-1, microbatches, *x.shape[1:]).swapaxes(0, 1)

    def collect(x):
        return x.swapaxes(0, 1).reshape(-1, *x.shape[2:])

    def add(total, xs):
        (rows, before), i = xs
        grads, (sums, kept) = part(params, before, rows, totals, jax.random.fold_in(key, i))
        return jax.tree.map(jnp.add, total, (grads, sums)), kept

    dealt = jax.tree.map(deal, (batch, variables))
    rows, before = jax.tree.map(lambda x: x[0], dealt)
    grads, (sums, _) = jax.eval_shape(part, params, before, rows, totals, key)
    zero = jax.tree.map(jnp.zeros_like, (grads, sums))
    (grads, sums), kept = jax.lax.scan(add, zero, (dealt, jnp.arange(microbatches)))
    return grads, (sums, jax.tree.map(collect, kept))


def make_evaluation(model, loss, options=DEFAULT_OPTIONS):
    """Return a pure `(params, batch) -> ({name: sum}, {name: weight}, rows)`, without dropout; a model that keeps a state begins anew.

    rows: what `Loss.row_predictions` gives, or None.
    """

    def evaluation(params, batch):
        found = loss.compute(model, params, batch, options=options)
        return found.sums, loss.totals(batch), found.predictions

    return evaluation
