"""Operations that a trainer replaces, the attention kernel and the constraint on activations, are
used in every layer.
"""

import dataclasses

import jax
import pytest

from models import build
from models.layers.ops import PLAIN, attend
from tests.models.promises.cases import for_cases, has_field, has_relative_positions


@for_cases(of=lambda name: has_field(name, "num_heads"))  # else it has no layer of attention
def test_a_trainers_parts_reach_every_layer(case):
    config = dataclasses.replace(case.config, scan=False)
    seen, read = [], []
    ops = PLAIN._replace(
        constrain=lambda x: seen.append(x.shape) or x,
        attend=lambda q, k, v, **kw: read.append(kw["mask"]) or attend(q, k, v, **kw),
    )
    model = build(config, ops=ops)
    jax.eval_shape(model.init, jax.random.key(0), **case.batch)
    c = case.config
    # Of two streams, the second has the predicted positions.
    length = 15 if "permutation_ranks" in case.batch else 12
    own = [(3, length, c.width)] * c.depth
    if hasattr(c, "generator_width"):
        own = [(3, 12, c.generator_width)] * c.depth + own
    if hasattr(c, "generator_depth"):
        own = [(3, 12, c.width)] * c.generator_depth + own
    across = [(3, 6, c.width)] * getattr(c, "decoder_depth", 0)
    assert seen == own + across
    is_causal = not case.has_encoder
    assert [getattr(mask, "causal", False) for mask in read] == [is_causal] * len(own) + [
        True,
        False,
    ] * len(across)


@for_cases(of=lambda name: not has_field(name, "num_heads"))
def test_a_trainers_parts_reach_every_recurrent_layer(case):
    """The constraint reaches each layer that reads whole rows, the linear map each kernel."""
    config = dataclasses.replace(case.config, scan=False)
    seen, multiplied = [], set()

    def apply_linear(x, kernel, *rest):
        multiplied.add(kernel.shape)
        return PLAIN.linear(x, kernel, *rest)

    ops = PLAIN._replace(constrain=lambda x: seen.append(x.shape) or x, linear=apply_linear)
    init = jax.eval_shape(build(config, ops=ops).init, jax.random.key(0), **case.batch)
    directions = 2 if "backward_ids" in case.batch else 1
    assert [shape[:2] for shape in seen] == [(3, 12)] * case.config.depth * directions
    leaves = jax.tree_util.tree_leaves_with_path(init["params"])
    kernels = {leaf.shape for path, leaf in leaves if path[-1].key == "kernel"}
    assert kernels <= multiplied


@for_cases(of=lambda name: has_field(name, "length") and not has_relative_positions(name))
def test_a_row_longer_than_the_positions_is_refused(case):
    model = case.replace(length=11)
    with pytest.raises(ValueError, match="a row of 12 tokens is longer than the 11 positions"):
        jax.eval_shape(model.init, jax.random.key(0), **case.batch)
