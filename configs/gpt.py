"""GPT (Radford et al. 2018, section 4.1).

116.5 M parameters; 64 rows of 512 tokens a step, 100 epochs of BooksCorpus.

    python -m pretrain prepare BOOKS --vocabulary VOCABULARY --output books
    python -m pretrain train gpt --workdir runs/gpt data.store=books

VOCABULARY holds the released tokenizer.json, which has no end-of-text token, so books follow each
other without a separator. `train.steps` assumes a billion tokens an epoch: adapt it to what
`prepare` prints. Cost: a month on 8 GPUs (the authors' announcement). Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt import GptConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=GptConfig(),
        data=Data(objective=CausalLm(length=512, end_of_text=False), batch_size=64),
        optimizer=AdamW(
            learning_rate=2.5e-4,
            warmup_steps=2_000,
            decay="cosine",
            weight_decay=0.01,
            epsilon=1e-8,
        ),
        train=Train(steps=3_000_000),
    )
