"""Transformer-XL in evaluation, with its memory. Meshes and kills: test_meshes_and_kills.py."""

import dataclasses

import jax
import numpy as np

from data.config import Data
from data.objectives import CausalLm
from data.pipeline import Stream
from models import build
from models.config.transformer_xl import Clusters, TransformerXLConfig
from pretrain.config import Mesh
from pretrain.mesh.sharding import make_mesh
from pretrain.training.evaluation import make_evaluator
from pretrain.training.losses import find_loss
from tests.tiny import compute_shapes

LENGTH = 6


def test_an_evaluation_with_memory_is_that_of_long_rows(stores):
    """One lane of segments scores as one row of the whole text, document by document."""
    model = TransformerXLConfig(
        **dict(vocab=256, width=16, depth=2, num_heads=2, head_width=4, mlp=32, dropout=0.1),
        memory=2_000,
        clusters=Clusters((32, 64), 2),
    )
    objective = CausalLm(length=LENGTH, order="lanes", separate_documents=True)
    data = Data(objective=objective, batch_size=1)
    held = Stream(stores["t5"], data, split="heldout")
    mesh, rng = make_mesh(Mesh(data=1), jax.devices()[:1]), np.random.default_rng(0)
    _, shapes = compute_shapes(model)
    params = jax.tree.map(lambda leaf: 0.3 * rng.standard_normal(leaf.shape, np.float32), shapes)
    loss = find_loss("causal_lm")
    with jax.set_mesh(mesh):
        module = build(model)
        evaluate = make_evaluator(module, loss, mesh, compute_dtype="float32")
        found = evaluate(params, held)
        shuffled = dataclasses.replace(data, objective=CausalLm(length=LENGTH))
        cut = evaluate(params, Stream(stores["t5"], shuffled, split="heldout"))
    whole = held.table.whole_S[0] * LENGTH
    objective = CausalLm(length=int(whole), order="lanes", separate_documents=True)
    rows = Stream(stores["t5"], Data(objective=objective, batch_size=1), split="heldout")
    batch = rows.build(np.zeros(1, int), None)
    sum_batch = jax.jit(lambda params, batch: loss.sum_batch(module, params, batch))
    sums = sum_batch(params, batch)
    short = held.build(np.array([held.num_rows - 1]), None)
    own = held.table.mark_own_tokens(np.array([held.num_rows - 1]))[:, 1:]
    rest = 0.0
    if held.num_rows > held.table.whole_S[0]:  # it was moved back, and reads no memory
        short["label_weights"] = own.astype(np.float32)
        rest = float(sum_batch(params, short)["causal_lm"])
    expected = (float(sums["causal_lm"]) + rest) / found["targets"]
    assert abs(found["loss"] - expected) < 1e-4 < 1e-3 < abs(found["loss"] - cut["loss"])
