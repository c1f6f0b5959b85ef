"""GPT-3 Medium, 350M (Brown et al. 2020).

356 M parameters, 0.5 M tokens a step; the rest as in gpt3_125m. Table 2.1 calls it
350M, table D.1 counts 356 M.

    python -m pretrain train gpt3_350m --workdir runs/gpt3_350m data.store=text

Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt3 import Gpt3Config
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=Gpt3Config(width=1024, depth=24, num_heads=16, mlp=4096, remat=True),
        data=Data(objective=CausalLm(length=2048), batch_size=256),
        optimizer=AdamW(
            learning_rate=3e-4,
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
