"""A tiny ELECTRA: 2 layers of width 128.

A smoke test; corpus and vocabulary as in bert_tiny. The generator is as wide as the discriminator,
because the discriminator's loss has 50 times its weight: a narrow generator predicts token
frequencies for long.

    python -m pretrain prepare builtin --output runs/builtin --vocab-size 4096
    python -m pretrain train electra_tiny --workdir runs/electra_tiny
"""

from data.config import Data
from data.objectives.replaced_token import ReplacedToken
from models.config.electra import ElectraConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=ElectraConfig(
            vocab=4096,
            length=128,
            embedding=128,
            width=128,
            depth=2,
            num_heads=2,
            mlp=512,
            dropout=0.0,
            attention_dropout=0.0,
            generator_width=128,
            generator_num_heads=2,
            generator_mlp=512,
        ),
        data=Data(
            store="runs/builtin",
            objective=ReplacedToken(length=16, max_predictions=5, mask_rate=0.3, rows="windows"),
            batch_size=128,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=100),
        train=Train(steps=3000, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
