"""Sparse Transformer of enwik8 (Child et al. 2019).

95 M parameters: 30 layers of 8 heads, rows of 12,288 bytes, fixed pattern with stride 128 and
c = 32, merged heads (sections 6 and 7.2). It recomputes layers in the backward pass (section 5.4).

    python -m pretrain prepare TEXT --output bytes --layout gpt2 --vocab-size 257
    python -m pretrain train sparse_transformer_enwik8 --workdir runs/sparse data.store=bytes

The paper trains for 80 epochs of 90 M bytes, with 5,000 warmup steps and cosine decay; batch size
and learning rate are ours. Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.sparse_transformer import SparseTransformerConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=SparseTransformerConfig(vocab=257, remat=True),
        data=Data(objective=CausalLm(length=12_288), batch_size=32),
        optimizer=AdamW(
            learning_rate=3.5e-4,
            warmup_steps=5_000,
            decay="cosine",
            weight_decay=0.01,
            max_grad_norm=1.0,
        ),
        train=Train(steps=18_000),
    )
