"""The Transformer (Vaswani et al. 2017), base model, English-German.

63 M parameters, 100,000 steps of 25,000 tokens a side.

    python -m pretrain prepare tfds:wmt14_translate/de-en --document pair --field en,de \
        --output wmt14 --layout transformer --algorithm bpe --vocab-size 37000
    python -m pretrain train transformer_base --workdir runs/transformer_base data.store=wmt14
    python -m pretrain average --workdir runs/transformer_base --last 5 \
        --output runs/transformer_base_average

The paper's peak learning rate is 1 / sqrt(512 * 4000). Its batches have pairs of similar length;
here rows are packed with several pairs. Not run: the project had no accelerator.
configs/transformer_multi30k.py was run.
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
