"""The Sparse Transformer of enwik8 (Child et al. 2019, sections 6 and 7.2): 95 M parameters.

30 layers of 8 heads, rows of 12,288 bytes, fixed pattern with stride 128 and c = 32, merged heads.

    python -m pretrain prepare TEXT --output bytes --layout gpt2 --vocab-size 257
    python -m pretrain train sparse_transformer_enwik8 --workdir runs/sparse data.store=bytes

The vocabulary is the 256 bytes and the end of a text. The paper trains for 80 epochs of 90 M bytes
with a warm-up of 5,000 steps and a cosine decay; batch size and learning rate of enwik8 are those
of this file, not of the paper. The backward pass recomputes the layers, as in section 5.4. Not run:
the project had no accelerator.
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
