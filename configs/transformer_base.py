r"""Transformer, base (Vaswani et al. 2017).

63 M parameters, English to German; 25,000 tokens a side a step, 100,000 steps.

    python -m pretrain prepare tfds:wmt14_translate/de-en --document pair --field en,de \
        --output wmt14 --layout transformer --algorithm bpe --vocab-size 37000
    python -m pretrain train transformer_base --workdir runs/transformer_base data.store=wmt14
    python -m pretrain average --workdir runs/transformer_base --last 5 \
        --output runs/transformer_base_average

The peak learning rate is 1 / sqrt(512 * 4000). The paper batches pairs of similar length; we pack
several pairs into a row. Not run; transformer_multi30k was.
"""

from data.config import Data
from data.objectives.seq2seq import Seq2Seq
from models.config.transformer import TransformerConfig
from pretrain.config import AdamW, Checkpoint, Run, Train


def config() -> Run:
    return Run(
        model=TransformerConfig(),
        data=Data(objective=Seq2Seq(length=256, target_length=256), batch_size=96),
        optimizer=AdamW(
            learning_rate=(512 * 4000) ** -0.5,
            warmup_steps=4000,
            decay="inverse_square_root",
            weight_decay=0.0,
            beta2=0.98,
            epsilon=1e-9,
            max_grad_norm=0.0,
        ),
        train=Train(steps=100_000, label_smoothing=0.1),
        checkpoint=Checkpoint(every=1_500, keep=5),  # about ten minutes on the paper's machine
    )
