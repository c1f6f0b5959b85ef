r"""Linformer of RoBERTa-base's size (Wang et al. 2020).

125.4 M parameters: n = 512 projected to k = 256, one projection for all layers, heads, keys and
values (section 5.1); 250,000 steps.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS --vocabulary VOCABULARY \
        --output english
    python -m pretrain train linformer_base --workdir runs/linformer_base data.store=english

BOOKS and VOCABULARY as in roberta_base. The paper gives no batch size or learning rate: we use
RoBERTa's on the same texts (Liu et al. 2019, table 3, batch 256). Rows are full sentences; packed
rows are not supported. Not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.linformer import LinformerConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=LinformerConfig(),
        data=Data(
            objective=MaskedLm(length=512, max_predictions=77, rows="sentences"), batch_size=256
        ),
        optimizer=AdamW(
            learning_rate=1e-4,
            warmup_steps=10_000,
            weight_decay=0.01,
            beta2=0.98,
            max_grad_norm=0.0,
        ),
        train=Train(steps=250_000),
    )
