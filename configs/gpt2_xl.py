"""GPT-2 XL, 1.56 B (Radford et al. 2019).

Store and steps as in gpt2. Table 2 counts 1.54 B parameters; the released model has 1.56 B.

    python -m pretrain train gpt2_xl --workdir runs/gpt2_xl data.store=webtext

Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt2 import Gpt2Config
from pretrain.config import AdamW, Mesh, Run, Train


def config() -> Run:
    return Run(
        model=Gpt2Config(width=1600, depth=48, num_heads=25, mlp=6400, remat=True),
        data=Data(objective=CausalLm(length=1024), batch_size=512),
        optimizer=AdamW(
            learning_rate=2e-4,
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
