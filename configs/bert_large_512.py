r"""BERT-large (Devlin et al. 2018): then rows of 512.

The last 100,000 steps, in bert_large's workdir and learning-rate schedule.

    python -m pretrain train bert_large_512 --workdir runs/bert_large data.store=english \
        --allow-changes

Memory: 13 GiB a chip on 16 chips (compiled), 6 GiB with model.remat=true. Not run.
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
