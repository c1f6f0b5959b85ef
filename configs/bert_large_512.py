"""BERT-large (Devlin et al. 2018), phase 2 of 2: rows of 512 tokens.

The last 100,000 of a million steps.

    python -m pretrain train bert_large_512 --workdir runs/bert_large data.store=english \
        --allow-changes

It continues the workdir of bert_large, which has shorter rows, and its learning rate schedule. On
16 chips a step takes 13 GiB of each (compiled), or 6 GiB with model.remat=true. Not run: the
project had no accelerator.
"""

from data.config import Data
from data.objectives.sentence_pair import SentencePair
from models.config.bert import BertConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=BertConfig(width=1024, depth=24, num_heads=16, mlp=4096),
        data=Data(
            objective=SentencePair(length=512, max_predictions=77, dupe_factor=10), batch_size=256
        ),
        optimizer=AdamW(learning_rate=1e-4, warmup_steps=10_000, weight_decay=0.01),
        train=Train(steps=1_000_000),
    )
