"""What a model says in the gaps of a few held-out rows, at each evaluation of its training.

The rows are the same each time, spread over the held-out part, with the same gaps. What is told is what the model finds likeliest at each
target; in a span, and in what follows a text, it sees the right pieces before each, as in training.

B rows told of   T targets of a row   D width   V vocabulary
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from data.inspection.gaps import TARGETS, GapReader
from data.mixed_stream import split_stream
from pretrain.distributed.device_feed import place_whole
from pretrain.distributed.precision import cast_params
from pretrain.distributed.sharding import gathered, replicated
from pretrain.distributed.xla_options import compiler_options
from pretrain.workdir import samples_file


class Sampler:
    """Calling it with parameters and their step adds a line to the file of a workdir, by the first process; all of them must call it."""

    def __init__(self, run, program, mesh, heldout, workdir, check, part=""):
        """heldout: a `data.pipeline.Stream`. check: called before the file is written; raises where it may not be. part: of a mixture."""
        self.path = epath.Path(workdir) / samples_file.NAME
        B = min(run.evaluate.samples, heldout.rows)
        self.rows = heldout.evaluation_rows(np.arange(B) * heldout.rows // B)
        self.gaps = GapReader(heldout.objective.gaps, heldout)
        self.read = [
            self.gaps.read({key: value[b] for key, value in self.rows.items()}) for b in range(B)
        ]
        self.mesh, self.check = mesh, check
        told = partial(
            likeliest,
            program.model,
            program.loss.parts[part] if part else program.loss,
            run.train.compute_dtype,
            gathered(mesh),
            self.gaps.ids,
        )
        self.told = jax.jit(
            told, out_shardings=replicated(mesh), compiler_options=compiler_options(mesh)
        )

    def __call__(self, params, step):
        batch = {key: place_whole(self.mesh, value) for key, value in self.rows.items()}
        chance_BT, id_BT = jax.device_get(self.told(params, batch))
        if jax.process_index():
            return
        told = [self.gaps.describe(*row) for row in zip(self.read, id_BT, chance_BT)]
        self.check()
        samples_file.write(self.path, {"step": step, "samples": told})


def make_sampler(run, program, mesh, heldout, workdir, check=lambda: None):
    """`Sampler` of a run that is to have some, else None; of a mixture, of its first part that has gaps."""
    for part, stream in split_stream(heldout).items() if heldout and run.evaluate.samples else ():
        if stream.rows and stream.vocabulary and stream.objective.gaps:
            return Sampler(run, program, mesh, stream, workdir, check, part)
    return None


def likeliest(model, loss, compute, gather, size, params, batch):
    """(probability, id) [B, T] of the likeliest of the first `size` ids, for the first `TARGETS` targets of a row: no others are scored."""
    lean, found = cast_params(params, compute), []
    states = loss.compute_states(model, lean, batch)

    def score_tokens(y_BTD, labels_BT, weights_BT):
        logits_BTV = model.apply({"params": gather(lean)}, y_BTD[:, :TARGETS], method="logits")
        chance_BTV = jax.nn.softmax(logits_BTV.astype(jnp.float32), axis=-1)[..., :size]
        found.append((chance_BTV.max(axis=-1), chance_BTV.argmax(axis=-1)))
        return jnp.float32(0), jnp.float32(0)

    loss.score(states, score_tokens, batch)
    return found[0]
