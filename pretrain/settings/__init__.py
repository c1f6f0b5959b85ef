"""The sections of a run other than its model and its data. No JAX, no TensorFlow.

The comment at the end of a field's line, or above it, is its meaning, which `describe --fields` and
docs/configuration.md print. It may begin with a unit in brackets.
"""

from pretrain.settings.optimizers import (
    Adafactor,
    AdamW,
    Lamb,
    Lion,
    Muon,
    Optimizer,
    StableAdamW,
)
from pretrain.settings.sections import (
    AttentionChoice,
    Checkpoint,
    Evaluate,
    Guard,
    Limits,
    Mesh,
    Metric,
    Phase,
    Train,
)

__all__ = [
    "Adafactor",
    "AdamW",
    "AttentionChoice",
    "Checkpoint",
    "Evaluate",
    "Guard",
    "Lamb",
    "Limits",
    "Lion",
    "Mesh",
    "Metric",
    "Muon",
    "Optimizer",
    "Phase",
    "StableAdamW",
    "Train",
]
