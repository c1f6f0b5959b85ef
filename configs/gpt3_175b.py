"""GPT-3 175B (Brown et al. 2020).

174.6 B parameters, 3.1 M tokens a step; the rest as in gpt3_125m. The paper has 3.2 M
tokens a step; 1,536 rows divide among up to 512 shards. The vocabulary is padded as in gpt3_6_7b.

    python -m pretrain train gpt3_175b --workdir runs/gpt3_175b data.store=text

Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt3 import Gpt3Config
from pretrain.config import AdamW, Mesh, Run, Train


def config() -> Run:
    return Run(
        model=Gpt3Config(vocab=50_304, width=12288, depth=96, num_heads=96, mlp=49152, remat=True),
        data=Data(objective=CausalLm(length=2048), batch_size=1536),
        optimizer=AdamW(
            learning_rate=0.6e-4,
            warmup_steps=119,
            end_lr_ratio=0.1,
            decay="cosine",
            decay_steps=82_652,
            weight_decay=0.1,
            beta2=0.95,
            epsilon=1e-8,
        ),
        train=Train(steps=95_367),
        mesh=Mesh(data=1, fsdp=-1),
    )
