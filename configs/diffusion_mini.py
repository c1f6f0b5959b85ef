"""Masked diffusion (Nie et al. 2025) on a BERT-mini.

BERT-mini's encoder learns to fill any share of a row, so it writes texts from masks alone, and
`evaluate` gives a bound of their likelihood that compares with GPT's loss (docs/diffusion.md). Rows
have 64 tokens, of which half are masked on average.

    python -m pretrain prepare BOOKS --output runs/books --vocab-size 8192
    python -m pretrain train diffusion_mini --workdir runs/diffusion_mini

Not run.
"""

from data.config import Data
from data.objectives.masked_diffusion import MaskedDiffusion
from models.config.bert import BertConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=BertConfig(
            vocab=8192,
            length=128,
            width=256,
            depth=4,
            num_heads=4,
            mlp=1024,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/books",
            objective=MaskedDiffusion(length=64, rows="windows"),
            batch_size=32,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=400, beta2=0.98),
        train=Train(steps=5_000, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
