"""Models for long rows that carry nothing between steps: a run that is killed ends as any other.

Those with a memory are in test_transformer_xl.py and test_xlnet.py.
"""

import pytest

from data.config import Data
from data.objectives import CausalLm, MaskedLm
from models.config.linformer import LinformerConfig
from models.config.music_transformer import MusicTransformerConfig
from models.config.reformer import Hashing, LocalChunks, ReformerConfig
from models.config.sparse_transformer import SparseTransformerConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from tests.pretrain.training.recurrent_runs import check_killed_run

SIZES = dict(vocab=256, width=16, depth=2, num_heads=2, mlp=32, dropout=0.1)
MODELS = {
    "linformer": LinformerConfig(**SIZES, length=18, rank=4),
    "music_transformer": MusicTransformerConfig(**SIZES, head_width=4, max_distance=6),
    "reformer": ReformerConfig(
        **SIZES,
        head_width=4,
        layers=("local", "lsh"),
        hashing=Hashing(chunk=4, rounds=2, dropout=0.1),
        local=LocalChunks(chunk=4, dropout=0.1),
        axial_shape=(4, 5),
        axial_widths=(8, 8),
    ),
    "sparse_transformer": SparseTransformerConfig(
        **SIZES, length=18, stride=4, summary=2, subblocks=1
    ),
}
OBJECTIVES = {
    "linformer": (MaskedLm(length=18, max_predictions=4, rows="documents"), "bert"),
}


@pytest.mark.more
@pytest.mark.parametrize("family", MODELS)
def test_a_run_that_is_killed_ends_with_the_same_bits(family, stores, tmp_path):
    objective, store = OBJECTIVES.get(family, (CausalLm(length=18), "t5"))
    run = Run(
        model=MODELS[family],
        data=Data(objective=objective, store=str(stores[store].path), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2, epsilon=1e-4),
        train=Train(steps=12, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )
    check_killed_run(run, tmp_path)
