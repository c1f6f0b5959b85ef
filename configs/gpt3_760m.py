"""GPT-3 Large (Brown et al. 2020, tables 2.1 and D.1).

760 M parameters, 0.5 M tokens a step, 300 B in total.

    python -m pretrain prepare TEXT --vocabulary GPT2 --output text
    python -m pretrain train gpt3_760m --workdir runs/gpt3_760m data.store=text

GPT2 is a folder with the released vocab.json and merges.txt. The learning rate has a warmup of 375
M tokens and decays to a tenth until 260 B (appendix B). The paper's ramp of the batch size over the
first 4 to 12 B tokens is not implemented. Not run: the project had no accelerator.
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
