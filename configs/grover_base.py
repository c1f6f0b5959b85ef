"""Grover-Base (Zellers et al. 2019, section 3.2): the smallest GPT-2 on articles as fields.

124 M parameters, 512 rows of 1,024 tokens a step, 800 k steps.

    python -m pretrain prepare REALNEWS --document fields --field domain,date,authors,title,text \
        --output realnews --vocabulary GPT2
    python -m pretrain train grover_base --workdir runs/grover_base data.store=realnews \
        data.objective.body=text

GPT2 is a folder with the released vocab.json and merges.txt, to which the ten tokens of the fields
are added. The released code trains by Adafactor without momentum and without scaling by the
parameters' size, at 1e-4 with a warm-up of 10,000 steps. AdamW with beta1=0 differs from it: the
squares are not factored, updates are not clipped by their size, and moments are corrected for their
bias. Neither clips gradients. Its layers differ from GPT-2's, too (docs/ladder.md). Not run: the
project had no accelerator.
"""

from data.config import Data
from data.objectives.partitioned_fields import PartitionedFields
from models.config.gpt2 import Gpt2Config
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=Gpt2Config(vocab=50267),
        data=Data(objective=PartitionedFields(length=1024), batch_size=512),
        optimizer=AdamW(learning_rate=1e-4, warmup_steps=10_000, beta1=0.0, max_grad_norm=0.0),
        train=Train(steps=800_000),
    )
