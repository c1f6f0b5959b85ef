"""GPT-3 13B (Brown et al. 2020).

12.85 B parameters, 2 M tokens a step; the rest as in gpt3_125m. Table 2.1 has a width of
5,140, which is not 40 heads of 128; 5,120 gives table D.1's 12.85 B. The vocabulary is padded as in
gpt3_6_7b.

    python -m pretrain train gpt3_13b --workdir runs/gpt3_13b data.store=text

Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt3 import Gpt3Config
from pretrain.config import AdamW, Mesh, Run, Train


def config() -> Run:
    return Run(
        model=Gpt3Config(vocab=50_304, width=5120, depth=40, num_heads=40, mlp=20480, remat=True),
        data=Data(objective=CausalLm(length=2048), batch_size=1024),
        optimizer=AdamW(
            learning_rate=1e-4,
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
