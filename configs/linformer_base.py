"""Linformer of RoBERTa-base's size (Wang et al. 2020, section 5.1): n = 512, k = 256.

125.4 M parameters; one projection for all layers, heads, keys and values. The paper trains on
BookCorpus and English Wikipedia for 250,000 updates.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS --vocabulary VOCABULARY \
        --output english
    python -m pretrain train linformer_base --workdir runs/linformer_base data.store=english

BOOKS is a folder of text, VOCABULARY is a folder with RoBERTa's vocab.json and merges.txt. Or train
a byte-level vocabulary on your own text: `prepare ... --layout roberta --vocab-size 50265`.

Batch size and learning rate are those of RoBERTa on the same texts (Liu et al. 2019, table 3, the
row of 256); the paper gives none. Rows are full sentences, as RoBERTa's. Rows of texts that must
not read each other (rows="packed") are refused.

Not run: the project had no accelerator.
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
