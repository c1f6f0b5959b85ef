"""GPT-3 175B (Brown et al. 2020, tables 2.1 and D.1).

174.6 B parameters, 3.1 M tokens a step, 300 B in total.

    python -m pretrain prepare TEXT --vocabulary GPT2 --output text
    python -m pretrain train gpt3_175b --workdir runs/gpt3_175b data.store=text

GPT2 is a folder with the released vocab.json and merges.txt. The learning rate has a warmup of 375
M tokens and decays to a tenth until 260 B (appendix B). The paper's ramp of the batch size over the
first 4 to 12 B tokens is not implemented. The vocabulary of 50,257 is padded to 50,304, so that it
divides among the devices of the axis `model`; an export keeps the 47 additional rows, which belong
to no token. The paper has 3.2 M tokens a step; 1,536 rows divide among up to 512 shards. Not run:
the project had no accelerator.
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
