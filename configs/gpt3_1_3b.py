"""GPT-3 XL, 1.3B (Brown et al. 2020).

1.32 B parameters, 1 M tokens a step; the rest as in gpt3_125m. Table 2.1 has 24 heads of
128, which would be a width of 3,072 and 1.5 B parameters; 16 heads give table D.1's 1.32 B.

    python -m pretrain train gpt3_1_3b --workdir runs/gpt3_1_3b data.store=text

Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt3 import Gpt3Config
from pretrain.config import AdamW, Mesh, Run, Train


def config() -> Run:
    return Run(
        model=Gpt3Config(width=2048, depth=24, num_heads=16, mlp=8192, remat=True),
        data=Data(objective=CausalLm(length=2048), batch_size=512),
        optimizer=AdamW(
            learning_rate=2e-4,
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
