"""GPT-3 6.7B (Brown et al. 2020).

6.66 B parameters, 2 M tokens a step; the rest as in gpt3_125m. The vocabulary of 50,257
is padded to 50,304 so that it divides among the devices of the axis `model`; exports keep the 47
extra rows.

    python -m pretrain train gpt3_6_7b --workdir runs/gpt3_6_7b data.store=text

Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt3 import Gpt3Config
from pretrain.config import AdamW, Mesh, Run, Train


def config() -> Run:
    return Run(
        model=Gpt3Config(vocab=50_304, width=4096, depth=32, num_heads=32, mlp=16384, remat=True),
        data=Data(objective=CausalLm(length=2048), batch_size=1024),
        optimizer=AdamW(
            learning_rate=1.2e-4,
            warmup_steps=179,
            end_lr_ratio=0.1,
            decay="cosine",
            decay_steps=123_978,
            weight_decay=0.1,
            beta2=0.95,
            epsilon=1e-8,
        ),
        train=Train(steps=143_051),
        mesh=Mesh(data=1, fsdp=-1),
    )
