"""Samples during training: a model's predictions for the gaps of a few held-out rows.

The rows and their gaps are the same at each evaluation, spread over the held-out split. A sample
shows the likeliest token at each target. In a span, and in the continuation of a text, the model
sees the correct tokens before each target, as in training (teacher forcing).

B sampled rows   T targets of a row   D width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from data.inspection.gaps import MAX_TARGETS, GapReader
from data.mixed_stream import MixedStream
from data.pipeline import Stream
from pretrain.config import Run
from pretrain.mesh.device_feed import place_shared_rows
from pretrain.mesh.gradient_exchange import cast_params
from pretrain.mesh.sharding import make_gather, make_replicated_sharding
from pretrain.mesh.xla_options import get_compiler_options
from pretrain.training.losses import Loss, MixedLoss
from pretrain.training.program import Program
from pretrain.workdir import samples_file


class GapSampler:
    """Appends a line of samples to a file of the workdir at each call `sampler(params, step)`.

    All processes must call it; the first one writes.
    """

    def __init__(
        self,
        run: Run,
        program: Program,
        mesh: jax.sharding.Mesh,
        heldout: Stream,
        workdir: epath.PathLike,
        check: Callable[[], None],
        part: str = "",
    ) -> None:
        """Choose the rows and compile nothing yet.

        Args:
          check: called before the file is written; it raises if the workdir may not be written.
        """
        self.path = epath.Path(workdir) / samples_file.NAME
        B = min(run.evaluate.samples, heldout.num_rows)
        self.rows = heldout.build_evaluation_rows(np.arange(B) * heldout.num_rows // B)
        self.gaps = GapReader(heldout.objective.gaps, heldout)
        self.gapped_rows = [
            self.gaps.read_gaps({key: value[b] for key, value in self.rows.items()})
            for b in range(B)
        ]
        self.mesh, self.check = mesh, check
        loss = program.loss.parts[part] if isinstance(program.loss, MixedLoss) else program.loss
        predict = partial(
            predict_likeliest,
            program.model,
            loss,
            run.train.compute_dtype,
            make_gather(mesh),
            self.gaps.num_ids,
        )
        self.predict_fn = jax.jit(
            predict,
            out_shardings=make_replicated_sharding(mesh),
            compiler_options=get_compiler_options(mesh),
        )

    def __call__(self, params: Any, step: int) -> None:
        batch = {key: place_shared_rows(self.mesh, value) for key, value in self.rows.items()}
        probability_BT, token_id_BT = jax.device_get(self.predict_fn(params, batch))
        if jax.process_index():
            return
        samples = [
            self.gaps.describe_row(*row)
            for row in zip(self.gapped_rows, token_id_BT, probability_BT)
        ]
        self.check()
        samples_file.add_samples(self.path, {"step": step, "samples": samples})


def make_sampler(
    run: Run,
    program: Program,
    mesh: jax.sharding.Mesh,
    heldout: Stream | MixedStream | None,
    workdir: epath.PathLike,
    check: Callable[[], None] = lambda: None,
) -> GapSampler | None:
    """Return the `GapSampler` of a run, or None for a run without samples.

    A mixture of objectives samples its first part that has gaps.
    """
    for part, stream in heldout.streams.items() if heldout and run.evaluate.samples else ():
        if stream.num_rows and stream.vocabulary and stream.objective.gaps:
            return GapSampler(run, program, mesh, stream, workdir, check, part)
    return None


def predict_likeliest(
    model: Any,
    loss: Loss,
    compute_dtype: str,
    gather: Callable[[Any], Any],
    size: int,
    params: Any,
    batch: dict[str, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Return (probability, id) [B, T] of the likeliest token at the first `MAX_TARGETS` targets.

    Args:
      compute_dtype: dtype of the arithmetic.
      gather: applied to the parameters that make the logits, as in `LossOptions`.
      size: number of ids of the vocabulary; padding ids of the embedding come after them.
    """
    compute_params, results = cast_params(params, compute_dtype), []
    states = loss.compute_states(model, compute_params, batch)

    def score_tokens(
        y_BTD: jax.Array, labels_BT: jax.Array, weights_BT: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        logits_BTV = model.apply(
            {"params": gather(compute_params)}, y_BTD[:, :MAX_TARGETS], method="compute_logits"
        )
        probability_BTV = jax.nn.softmax(logits_BTV.astype(jnp.float32), axis=-1)[..., :size]
        results.append((probability_BTV.max(axis=-1), probability_BTV.argmax(axis=-1)))
        return jnp.float32(0), jnp.float32(0)

    loss.compute_sums(states, score_tokens, batch)
    return results[0]
