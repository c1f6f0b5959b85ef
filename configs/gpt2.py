"""GPT-2 small, 124 M (Radford et al. 2019).

512 rows of 1,024 tokens a step, 300 B tokens. The paper gives neither learning rates nor steps: we
use GPT-3's for the nearest size. Its table 2 counts 117 M parameters; the released model has 124 M.

    python -m pretrain prepare WEBTEXT --vocabulary GPT2 --output webtext
    python -m pretrain train gpt2 --workdir runs/gpt2 data.store=webtext

WEBTEXT is a folder of text; GPT2 holds the released vocab.json and merges.txt. Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt2 import Gpt2Config
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=Gpt2Config(),
        data=Data(objective=CausalLm(length=1024), batch_size=512),
        optimizer=AdamW(
            learning_rate=6e-4,
            warmup_steps=715,
            end_lr_ratio=0.1,
            decay="cosine",
            decay_steps=495_911,
            weight_decay=0.1,
            beta2=0.95,
            epsilon=1e-8,
        ),
        train=Train(steps=572_205),
    )
