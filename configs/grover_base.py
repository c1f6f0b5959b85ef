r"""Grover-Base (Zellers et al. 2019, section 3.2).

124 M parameters: the smallest GPT-2 on articles as fields; 512 rows of 1,024 tokens a step, 800,000
steps.

    python -m pretrain prepare REALNEWS --document fields --field domain,date,authors,title,text \
        --output realnews --vocabulary GPT2
    python -m pretrain train grover_base --workdir runs/grover_base data.store=realnews \
        data.objective.body=text

GPT2 holds the released vocab.json and merges.txt; `prepare` adds ten tokens for the fields. The
released code trains by Adafactor without momentum or parameter scaling, at 1e-4 after 10,000 warmup
steps; we use AdamW with beta1=0, which does not factor the squares or clip updates, and corrects
the moments' bias. Neither clips gradients. The layers differ from GPT-2's (docs/ladder.md). Not
run.
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
