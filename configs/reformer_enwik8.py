"""Reformer of enwik8 (Kitaev et al. 2020).

google/reformer-enwik8's sizes: 12 layers of two streams of 1,024, rows of 65,536 bytes; of every
four layers one hashes in 4 rounds and three are local.

    python -m pretrain prepare TEXT --output bytes --layout gpt2 --vocab-size 257
    python -m pretrain train reformer_enwik8 --workdir runs/reformer data.store=bytes

The vocabulary is 256 bytes and the end of text; the released model has 258 ids. Optimizer and batch
are ours. Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.reformer import ReformerConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=ReformerConfig(vocab=257, mlp_chunk=4_096),
        data=Data(objective=CausalLm(length=65_536), batch_size=8),
        optimizer=AdamW(
            learning_rate=5e-4,
            warmup_steps=5_000,
            decay="cosine",
            weight_decay=0.01,
            max_grad_norm=1.0,
        ),
        train=Train(steps=100_000),
    )
