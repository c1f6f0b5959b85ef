"""GPT-3 2.7B (Brown et al. 2020).

2.65 B parameters, 1 M tokens a step; the rest as in gpt3_125m.

    python -m pretrain train gpt3_2_7b --workdir runs/gpt3_2_7b data.store=text

Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt3 import Gpt3Config
from pretrain.config import AdamW, Mesh, Run, Train


def config() -> Run:
    return Run(
        model=Gpt3Config(width=2560, depth=32, num_heads=32, mlp=10240, remat=True),
        data=Data(objective=CausalLm(length=2048), batch_size=512),
        optimizer=AdamW(
            learning_rate=1.6e-4,
            warmup_steps=358,
            end_lr_ratio=0.1,
            decay="cosine",
            decay_steps=247_955,
            weight_decay=0.1,
            beta2=0.95,
            epsilon=1e-8,
        ),
        train=Train(steps=286_102),
        mesh=Mesh(data=1, fsdp=-1),
    )
