"""GPT-3 Small, 125 M (Brown et al. 2020).

0.5 M tokens a step, 300 B in total (tables 2.1 and D.1). The learning rate warms up over 375 M
tokens and decays to a tenth by 260 B (appendix B). The paper's ramp of the batch from 32,768 tokens
over the first 4 B is `data.batch_ramp.start=16 data.batch_ramp.tokens=4e9`.

    python -m pretrain prepare TEXT --vocabulary GPT2 --output text
    python -m pretrain train gpt3_125m --workdir runs/gpt3_125m data.store=text

GPT2 holds the released vocab.json and merges.txt. Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt3 import Gpt3Config
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=Gpt3Config(),
        data=Data(objective=CausalLm(length=2048), batch_size=256),
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
