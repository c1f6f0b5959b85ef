"""A Reformer in training: rotations and dropout of each step are the same after a kill."""

import pytest

from data.config import Data
from data.objectives import CausalLm
from models.config.reformer import Hashing, LocalChunks, ReformerConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from tests.pretrain.training.recurrent_runs import check_killed_run


@pytest.fixture(scope="module")
def run(stores):
    return Run(
        model=ReformerConfig(
            vocab=256,
            width=16,
            depth=2,
            num_heads=2,
            head_width=4,
            mlp=32,
            dropout=0.1,
            layers=("local", "lsh"),
            hashing=Hashing(chunk=4, rounds=2, dropout=0.1),
            local=LocalChunks(chunk=4, dropout=0.1),
            axial_shape=(4, 5),
            axial_widths=(8, 8),
        ),
        data=Data(objective=CausalLm(length=18), store=str(stores["t5"].path), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2, epsilon=1e-4),
        train=Train(steps=12, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )


def test_a_run_that_is_killed_ends_with_the_same_bits(run, tmp_path):
    check_killed_run(run, tmp_path)
