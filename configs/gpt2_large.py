"""GPT-2 large, 774 M (Radford et al. 2019).

Store and steps as in gpt2. Table 2 counts 762 M parameters; the released model has 774 M.

    python -m pretrain train gpt2_large --workdir runs/gpt2_large data.store=webtext

Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt2 import Gpt2Config
from pretrain.config import AdamW, Mesh, Run, Train


def config() -> Run:
    return Run(
        model=Gpt2Config(width=1280, depth=36, num_heads=20, mlp=5120, remat=True),
        data=Data(objective=CausalLm(length=1024), batch_size=512),
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
