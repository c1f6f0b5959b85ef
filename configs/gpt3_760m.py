"""GPT-3 Large, 760M (Brown et al. 2020).

760 M parameters, 0.5 M tokens a step; the rest as in gpt3_125m.

    python -m pretrain train gpt3_760m --workdir runs/gpt3_760m data.store=text

Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt3 import Gpt3Config
from pretrain.config import AdamW, Mesh, Run, Train


def config() -> Run:
    return Run(
        model=Gpt3Config(width=1536, depth=24, num_heads=16, mlp=6144, remat=True),
        data=Data(objective=CausalLm(length=2048), batch_size=256),
        optimizer=AdamW(
            learning_rate=2.5e-4,
            warmup_steps=715,
            end_lr_ratio=0.1,
            decay="cosine",
            decay_steps=495_911,
            weight_decay=0.1,
            beta2=0.95,
            epsilon=1e-8,
        ),
        train=Train(steps=572_205),
        mesh=Mesh(data=1, fsdp=-1),
    )
