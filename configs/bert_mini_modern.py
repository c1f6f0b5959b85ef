"""BERT-mini in ModernBERT's shape, by Muon.

ModernBERT's shape (Warner et al. 2024) at BERT-mini's size, Muon (Jordan et al. 2024), and two
phases of one command: short rows at a constant rate, then rows of 64 and the decay, with the tokens
of bert_mini and bert_mini_64 a step.

    python -m pretrain prepare BOOKS --output runs/books --vocab-size 8192
    python -m pretrain train bert_mini_modern --workdir runs/bert_mini_modern

After 1,500 such steps on books it has 4.295 nats a masked token, BERT's shape by AdamW 5.211 (one
seed, benchmarks/results/modern_recipe.md). The whole was not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.modernbert import ModernBertConfig
from pretrain.config import Checkpoint, Evaluate, Muon, Phase, Run, Train


def config() -> Run:
    return Run(
        model=ModernBertConfig(
            vocab=8192,
            length=128,
            width=256,
            depth=6,
            num_heads=4,
            mlp=384,
            window=32,
            dropout=0.0,
        ),
        data=Data(
            store="runs/books",
            objective=MaskedLm(length=16, max_predictions=5, mask_rate=0.3, rows="windows"),
            batch_size=64,
        ),
        optimizer=Muon(learning_rate=2e-3, warmup_steps=400, beta2=0.98, decay="constant"),
        train=Train(steps=7_500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
        phases=(
            Phase("short", steps=5_000),
            Phase(
                "long",
                steps=2_500,
                overrides=(
                    "data.objective.length=64",
                    "data.objective.max_predictions=20",
                    "data.batch_size=16",
                    "optimizer.warmup_steps=0",
                    "optimizer.decay=linear",
                ),
            ),
        ),
    )
