"""The dataclasses of a run that are neither a model nor its data. Importing them imports neither JAX nor TensorFlow.

The comment behind a field, or on the lines above it, is its meaning: `describe --fields` and docs/configuration.md print it. It may
begin with a unit in brackets.
"""

from pretrain.schema.optimizers import Adafactor, AdamW, Lamb, Optimizer
from pretrain.schema.sections import (
    Checkpoint,
    Evaluate,
    Guard,
    Limits,
    Mesh,
    Metric,
    Train,
)

__all__ = [
    "Adafactor",
    "AdamW",
    "Checkpoint",
    "Evaluate",
    "Guard",
    "Lamb",
    "Limits",
    "Mesh",
    "Metric",
    "Optimizer",
    "Train",
]
