"""Pretrain, fine-tune, evaluate, predict, load and export from a Python program.

    from pretrain import api

    api.prepare("texts.txt", output="runs/texts", vocab_size=4096)
    api.train("bert_tiny", "runs/bert", {"data.store": "runs/texts", "train.steps": 300})
    api.predict("runs/bert", ["Return the [MASK] of the string."])
    api.export("runs/bert", "runs/bert_hf")

The verbs of the command line share their code (docs/python.md). The functions raise what the verbs
print: ValueError and OSError for bad input, and the errors that each function lists. A message
names an option as the command line does: `--top` is the argument `top`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pretrain.host.library_messages import silence_libraries

if TYPE_CHECKING:
    from pretrain.api.evaluating import evaluate, evaluate_questions
    from pretrain.api.exporting import export, push
    from pretrain.api.finetuning import finetune, finetune_seeds
    from pretrain.api.importing import import_folder
    from pretrain.api.loading import load
    from pretrain.api.pictures import Picture, draw_attention, draw_curves, draw_filling
    from pretrain.api.predicting import Predictor, predict
    from pretrain.api.preparing import prepare
    from pretrain.api.scoring import score
    from pretrain.api.sweeping import SweepResult, sweep
    from pretrain.api.training import RunResult, train

silence_libraries()  # before TensorFlow and JAX are imported

# {file: its functions and classes}. A verb imports one of the files, in a fraction of a second.
FILES = {
    "evaluating": ("evaluate", "evaluate_questions"),
    "exporting": ("export", "push"),
    "finetuning": ("finetune", "finetune_seeds"),
    "importing": ("import_folder",),
    "loading": ("load",),
    "pictures": ("Picture", "draw_attention", "draw_curves", "draw_filling"),
    "predicting": ("Predictor", "predict"),
    "preparing": ("prepare",),
    "scoring": ("score",),
    "sweeping": ("SweepResult", "sweep"),
    "training": ("RunResult", "train"),
}
FILE_OF = {name: file for file, names in FILES.items() for name in names}

__all__ = [
    "Picture",
    "Predictor",
    "RunResult",
    "SweepResult",
    "draw_attention",
    "draw_curves",
    "draw_filling",
    "evaluate",
    "evaluate_questions",
    "export",
    "finetune",
    "finetune_seeds",
    "import_folder",
    "load",
    "predict",
    "prepare",
    "push",
    "score",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    """Return a function or class, whose file is imported at its first use."""
    if name not in FILE_OF:
        raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"{__name__}.{FILE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
