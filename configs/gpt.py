"""GPT (Radford et al. 2018, section 4.1).

116.5 M parameters, 100 epochs of BooksCorpus in 64 rows of 512 tokens.

    python -m pretrain prepare BOOKS --vocabulary VOCABULARY --output books
    python -m pretrain train gpt --workdir runs/gpt data.store=books

VOCABULARY is a folder with the released tokenizer.json. It has no end-of-text token, so books
follow each other without a separator. `train.steps` is 100 epochs of a billion tokens: adapt it to
the number of tokens that `prepare` prints. The authors' announcement: a month on 8 GPUs. Not run:
the project had no accelerator.
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
