"""The models of benchmarks/papers/ladder.py and how they are pretrained."""

import pathlib
from typing import NamedTuple

VOCAB = 8_192
STEP_TOKENS, LENGTH = 1_024, 32  # tokens of a step and of a row


class Rung(NamedTuple):
    """A model of the table.

    Attributes:
      name: in the table.
      config: configuration that the overrides change.
      reads: what a token's state has read when it is pretrained.
      overrides: of the configuration.
      store: "store", of pieces, or "words".
      tuning: overrides of its fine-tuning.
    """

    name: str
    config: str
    reads: str
    overrides: tuple[str, ...] = ()
    store: str = "store"
    tuning: tuple[str, ...] = ()


SIZES = ("model.width=256", "model.depth=4", "model.num_heads=4", "model.mlp=1024")
RUNGS = {
    "lstm": Rung(
        "LSTM",
        "lstm_lm",
        "all before it",
        (
            *("model.width=256", "model.depth=2", "model.dropout=0.0", "model.forget_bias=1.0"),
            *("model.tied=true", "data.objective.order=lanes", "optimizer.max_grad_norm=5.0"),
            "data.objective.end_of_text=false",
            "data.objective.zero_state_rate=0.1",
        ),
    ),
    "elmo": Rung(
        "ELMo",
        "elmo_tiny",
        "all before it, and all after it",
        (
            *("model.width=128", "model.cells=512", "model.characters=16"),
            *("model.character_width=16", "data.objective.characters=16"),
            "optimizer.max_grad_norm=5.0",
        ),
        "words",
        ("model.encoder.frozen=false",),
    ),
    "gpt": Rung(
        "GPT-2",
        "gpt_tiny",
        "its row before it",
        (*SIZES, "model.length=128", "data.objective.end_of_text=false"),
    ),
    "bert": Rung(
        "BERT",
        "bert_mini",
        "its row",
        # A BERT of this size learns no order from longer rows.
        (
            *SIZES,
            *("data.objective.length=16", "data.batch_size=64"),
            *("data.objective.max_predictions=5", "data.objective.rows=windows"),
        ),
    ),
}


def list_overrides(rung: Rung, folder: pathlib.Path, steps: int) -> list[str]:
    """Return all overrides of a model's configuration for pretraining."""
    return [
        f"model.vocab={VOCAB}",
        f"data.objective.length={LENGTH}",
        f"data.batch_size={STEP_TOKENS // LENGTH}",
        f"data.store={folder / rung.store}",
        "optimizer.learning_rate=1e-3",
        "optimizer.warmup_steps=100",
        "optimizer.decay=linear",
        "optimizer.end_lr_ratio=0",
        "train.compute_dtype=float32",
        "train.stop_at_step=0",
        f"train.steps={steps}",
        f"evaluate.every={steps}",
        f"checkpoint.every={steps}",
        *rung.overrides,
    ]
