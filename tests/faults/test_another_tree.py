"""Row 11: a sound checkpoint is restored exactly or not at all; another type, shape, key or family
is refused.
"""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from data.objectives import CausalLm, SpanCorruption
from models.config.albert import AlbertConfig
from models.config.gpt import GptConfig
from models.config.t5 import T5Config
from pretrain.config import Adafactor
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.checkpoints import Checkpoints


def change_model(**changes):
    return lambda run: dataclasses.replace(run, model=dataclasses.replace(run.model, **changes))


def change_family(kind, objective=None, **fields):
    def change_run(run):
        data = dataclasses.replace(run.data, objective=objective or run.data.objective)
        return dataclasses.replace(
            run, model=kind(width=32, depth=2, num_heads=8, mlp=64, **fields), data=data
        )

    return change_run


def cast_leaf(part, dtype):
    """Return the state's shapes with the first leaf of a part in another type."""

    def change_state(state):
        leaves, tree = jax.tree.flatten(getattr(state, part))
        at = next(i for i, leaf in enumerate(leaves) if leaf.dtype == jnp.float32)
        leaves[at] = jax.ShapeDtypeStruct(leaves[at].shape, dtype)
        return state.replace(**{part: jax.tree.unflatten(tree, leaves)})

    return change_state


CASES = {
    "parameters in bfloat16": (None, cast_leaf("params", jnp.bfloat16)),
    "moments in bfloat16": (None, cast_leaf("optimizer", jnp.bfloat16)),
    "parameters as integers": (None, cast_leaf("params", jnp.int32)),
    "wider mlp": (change_model(mlp=128), None),
    "larger vocabulary": (change_model(vocab=256), None),
    "longer rows": (change_model(length=64), None),
    "layers apart": (change_model(scan=False), None),
    "another optimizer": (lambda run: dataclasses.replace(run, optimizer=Adafactor()), None),
    "GPT": (change_family(GptConfig, CausalLm(length=32, end_of_text=False), vocab=128, length=32), None),
    "T5": (change_family(T5Config, SpanCorruption(inputs=32), vocab=128, decoder_depth=2, head_width=4), None),
    "ALBERT": (change_family(AlbertConfig, vocab=128, length=32, embedding=16), None),
}  # fmt: skip


@pytest.mark.held_by(3)
@pytest.mark.parametrize("case", CASES)
def test_another_tree_is_refused(finished, restorable, record_property, case):
    run, workdir = finished
    change, recast = CASES[case]
    shapes, placed = restorable(change(run) if change else run)
    shapes = recast(shapes) if recast else shapes
    with (
        Checkpoints(workdir, read_only=True) as checkpoints,
        pytest.raises(ConfigError, match="do not fit this configuration: .* was saved as"),
    ):
        checkpoints.restore_state(shapes, placed)
    assert not (workdir / "damaged").exists()
    record_property("refused", 1)
