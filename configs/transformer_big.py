r"""Transformer, big (Vaswani et al. 2017, table 3).

214 M parameters; 300,000 steps on transformer_base's store. For English to French the paper has
dropout 0.1.

    python -m pretrain train transformer_big --workdir runs/transformer_big data.store=wmt14
    python -m pretrain average --workdir runs/transformer_big --last 20 \
        --output runs/transformer_big_average

Not run.
"""

from data.config import Data
from data.objectives.seq2seq import Seq2Seq
from models.config.transformer import TransformerConfig
from pretrain.config import AdamW, Checkpoint, Run, Train


def config() -> Run:
    return Run(
        model=TransformerConfig(width=1024, num_heads=16, mlp=4096, dropout=0.3),
        data=Data(objective=Seq2Seq(length=256, target_length=256), batch_size=96),
        optimizer=AdamW(
            learning_rate=(1024 * 4000) ** -0.5,
            warmup_steps=4000,
            decay="inverse_square_root",
            weight_decay=0.0,
            beta2=0.98,
            epsilon=1e-9,
            max_grad_norm=0.0,
        ),
        train=Train(steps=300_000, label_smoothing=0.1),
        checkpoint=Checkpoint(every=600, keep=20),  # about ten minutes on the paper's machine
    )
