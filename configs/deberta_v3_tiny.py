"""A tiny DeBERTa-v3, with a generator of one layer.

A smoke test with 2 layers of width 128; corpus and vocabulary as in bert_tiny.

    python -m pretrain prepare builtin --output runs/builtin --vocab-size 4096
    python -m pretrain train deberta_v3_tiny --workdir runs/deberta_v3_tiny
"""

from data.config import Data
from data.objectives.replaced_token import ReplacedToken
from models.config.deberta_v3 import DebertaV3Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=DebertaV3Config(
            vocab=4096,
            length=128,
            width=128,
            depth=2,
            generator_depth=1,
            num_heads=2,
            mlp=512,
            buckets=16,
            max_distance=64,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/builtin",
            objective=ReplacedToken(
                length=16, max_predictions=5, mask_rate=0.3, whole_words=True, rows="windows"
            ),
            batch_size=128,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=100),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
