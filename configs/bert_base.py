r"""BERT-base (Devlin et al. 2018, section 3, A.2).

110 M parameters; 256 rows a step, a million steps on Wikipedia and books: 900,000 with rows of 128
tokens, then 100,000 with rows of 512.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS --vocabulary vocab.txt \
        --output english
    python -m pretrain train bert_base --workdir runs/bert_base data.store=english
    python -m pretrain train bert_base --workdir runs/bert_base data.store=english \
        --allow-changes data.objective.length=512 data.objective.max_predictions=77 \
        train.stop_at_step=0

BOOKS is a folder of text, vocab.txt the released vocabulary. Cost: 4 days on 16 TPU chips in the
paper. Not run.
"""

from data.config import Data
from data.objectives.sentence_pair import SentencePair
from models.config.bert import BertConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=BertConfig(),
        data=Data(
            objective=SentencePair(length=128, max_predictions=20, dupe_factor=10), batch_size=256
        ),
        optimizer=AdamW(learning_rate=1e-4, warmup_steps=10_000, weight_decay=0.01),
        train=Train(steps=1_000_000, stop_at_step=900_000),
    )
