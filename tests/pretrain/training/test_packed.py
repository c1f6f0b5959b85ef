"""Runs on packed rows resume, count real tokens, and score held-out text as rows of one text do."""

import dataclasses
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from data.objectives import MaskedLm
from data.pipeline import Stream
from models import build
from pretrain.__main__ import main
from pretrain.config import load
from pretrain.mesh.sharding import make_mesh
from pretrain.training.losses import find_loss
from pretrain.training.startup import OpenedData, describe_start
from pretrain.training.state import init_params
from pretrain.workdir import metrics_file

WORDS = "data.objective=MaskedLm data.objective.length=64 data.objective.max_predictions=10 data.objective.rows=packed model.length=64".split()
WORDS += "model.dropout=0.0 evaluate.every=0 checkpoint.every=2 train.steps=4".split()


@pytest.mark.more
def test_a_packed_run_on_a_mesh_goes_on_where_it_stopped(configs, stores, tmp_path):
    def train_run(name, *words):
        mesh = ("mesh.data=2", "mesh.fsdp=2", "mesh.model=2")
        assert (
            main(
                [
                    "train",
                    str(configs["bert"]),
                    "--workdir",
                    str(tmp_path / name),
                    *WORDS,
                    *mesh,
                    *words,
                ]
            )
            == 0
        )
        return metrics_file.read_metrics(tmp_path / name / "metrics.jsonl")

    whole = train_run("run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "4")  # as if it had been killed before
    again = train_run("run")
    assert [row["step"] for row in again] == [row["step"] for row in whole] == [1, 2, 3, 4]
    stream = Stream(stores["bert"], load(tmp_path / "run" / "config.json").data, seed=0)
    for step, (one, other) in enumerate(zip(whole, again)):
        batch = stream.build_batch(step)
        assert batch["segment_ids"].max() > 1 and not batch["attention_mask"].all()
        assert one["tokens"] == other["tokens"] == batch["attention_mask"].sum()
        assert one["loss"] == other["loss"] and one["gradient_norm"] == other["gradient_norm"]
    assert whole[3]["loss"] < whole[0]["loss"]
    assert {row["seconds"] for row in whole[2:]}.isdisjoint(
        row["seconds"] for row in again
    )  # the last two steps were repeated


@pytest.mark.parametrize(
    ("rows", "length", "message"),
    [("documents", 64, True), ("documents", 6, False), ("packed", 64, False)],
)
def test_runs_that_pad_much_are_advised_of_packing(configs, stores, rows, length, message):
    """Documents have some 50 tokens: half of a row of 64 is padding, and little of a row of 6."""
    words = [
        f"data.objective.rows={rows}",
        f"data.objective.length={length}",
        f"data.objective.max_predictions={max(length * 10 // 64, 1)}",
    ]
    run = load(configs["bert"], [*WORDS, *words])
    stream = Stream(stores["bert"], run.data, seed=0)
    opened = OpenedData(stores["bert"], "", [])
    state = SimpleNamespace(params={})
    program = SimpleNamespace(abstract_state=state, exchange=[], refusals=[])
    names = dict(name="", start=0, stop=run.train.steps, heldout=None)
    phase = SimpleNamespace(program=program, stream=stream, run=run, **names)
    text = describe_start(run, opened, phase, make_mesh(run.mesh), 0)
    padding = 1 - stream.build_batch(0)["attention_mask"].mean()
    assert (
        ("data.objective.rows=packed puts several documents into one" in text)
        == message
        == (padding > 0.2)
    )


def test_held_out_text_has_the_loss_of_rows_of_its_own(configs, stores):
    """With the same tokens of the same texts masked, the sums of all packed rows equal those over all
    padded ones.
    """
    run = load(configs["bert"], WORDS)
    packed, alone = (
        Stream(
            stores["bert"],
            dataclasses.replace(run.data, objective=MaskedLm(64, 10, rows=rows)),
            split="heldout",
        )
        for rows in ("packed", "documents")
    )
    table = packed.table
    row_P, start_P, _, at_P = table.locate_segments(np.arange(table.count))
    own_P = np.searchsorted(
        alone.table.locate_spans(np.arange(alone.num_rows))[0], start_P
    )  # the padded row of a text
    together, apart = (
        dict(stream.build(np.arange(stream.num_rows), np.arange(stream.num_rows).astype(np.uint64)))
        for stream in (packed, alone)
    )
    apart["token_ids"] = np.where(apart["attention_mask"], apart["token_ids"], 0)
    for key in ("masked_positions", "labels"):
        apart[key][:] = 0
    apart["label_weights"][:] = 0
    for b, slot in zip(*np.nonzero(together["label_weights"])):  # the same tokens are masked
        position = together["masked_positions"][b, slot]
        piece = np.flatnonzero((row_P == b) & (at_P <= position))[-1]
        row = own_P[piece]
        free = int(apart["label_weights"][row].sum())
        apart["masked_positions"][row, free], apart["labels"][row, free] = (
            position - at_P[piece],
            together["labels"][b, slot],
        )
        apart["label_weights"][row, free] = 1
    for piece, row in enumerate(own_P):  # with the same replacements
        here = together["token_ids"][row_P[piece], at_P[piece] :]
        n = int(apart["attention_mask"][row].sum())
        apart["token_ids"][row, :n] = here[:n]
    model, loss = build(run.model), find_loss("masked_lm")
    params = jax.tree.map(
        lambda leaf: 5 * leaf, init_params(model, packed.objective, 0)
    )  # fresh models hardly attend to other texts
    sums = jax.jit(lambda params, batch: loss.sum_batch(model, params, batch))
    one, other = sums(params, together), sums(params, apart)
    assert together["label_weights"].sum() == apart["label_weights"].sum() > 30
    assert float(one["masked_lm"]) == pytest.approx(float(other["masked_lm"]), rel=1e-5)
