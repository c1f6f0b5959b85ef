"""Transformer-XL, standard (Dai et al. 2019).

151.1 M parameters; segments of 150 tokens with a memory of 150 (section 4.1).

    python -m pretrain prepare TEXT --vocabulary VOCABULARY --output text
    python -m pretrain train transformer_xl_base --workdir runs/transformer_xl data.store=text

The paper's vocabulary is WikiText-103's 267,735 words, sorted by frequency; for another one set
model.vocab and, below it, the cutoffs of model.clusters. Rows read across documents, as in the
paper; data.objective.separate_documents=true resets the memory at their ends. Settings follow the
released run_wt103_base.sh, with 64 rows (it has 60), which divide among 16 chips. Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.transformer_xl import TransformerXLConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=TransformerXLConfig(),
        data=Data(objective=CausalLm(length=150, order="lanes"), batch_size=64),
        optimizer=AdamW(
            learning_rate=2.5e-4,
            warmup_steps=0,
            decay="cosine",
            weight_decay=0.0,
            epsilon=1e-8,
            max_grad_norm=0.25,
        ),
        train=Train(steps=200_000),
    )
