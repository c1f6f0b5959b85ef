r"""A tiny RoBERTa: 2 layers of width 128.

A smoke test on the built-in corpus, with a byte-level vocabulary.

    python -m pretrain prepare builtin --output runs/builtin_bytes --vocab-size 4096 \
        --layout roberta
    python -m pretrain train roberta_tiny --workdir runs/roberta_tiny
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.roberta import RobertaConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=RobertaConfig(
            vocab=4096,
            length=128,
            width=128,
            depth=2,
            num_heads=2,
            mlp=512,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/builtin_bytes",
            objective=MaskedLm(length=32, max_predictions=10, mask_rate=0.3, rows="sentences"),
            batch_size=64,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=100, beta2=0.98),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
