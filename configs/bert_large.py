"""BERT-large (Devlin et al. 2018): rows of 128 first.

340 M parameters; the first 900,000 of a million steps, store and rows as in bert_base. Continue
with bert_large_512 in the same workdir.

    python -m pretrain train bert_large --workdir runs/bert_large data.store=english

It shards rows over all chips and rematerializes activations. `mesh.data=1 mesh.fsdp=-1` shards the
parameters too, which saves memory and costs time. Cost: 4 days on 64 TPU chips in the paper. Not
run.
"""

from data.config import Data
from data.objectives.sentence_pair import SentencePair
from models.config.bert import BertConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=BertConfig(width=1024, depth=24, num_heads=16, mlp=4096, remat=True),
        data=Data(
            objective=SentencePair(length=128, max_predictions=20, dupe_factor=10), batch_size=256
        ),
        optimizer=AdamW(learning_rate=1e-4, warmup_steps=10_000, weight_decay=0.01),
        train=Train(steps=1_000_000, stop_at_step=900_000),
    )
