"""Pretrain, fine-tune, evaluate, predict, load and export from a Python program.

    from pretrain import api

    api.prepare("texts.txt", output="runs/texts", vocab_size=4096)
    api.train("bert_tiny", "runs/bert", {"data.store": "runs/texts", "train.steps": 300})
    api.predict("runs/bert", ["Return the [MASK] of the string."])
    api.export("runs/bert", "runs/bert_hf")

The verbs of the command line call these functions (docs/python.md). They raise what the verbs
print: ValueError and OSError for bad input, and the errors that each function lists. A message
names an option as the command line does: `--top` is the argument `top`.
"""

from pretrain.library_messages import silence_libraries

silence_libraries()  # before TensorFlow and JAX are imported

from pretrain.api.evaluating import evaluate, evaluate_questions  # noqa: E402
from pretrain.api.exporting import export, push  # noqa: E402
from pretrain.api.finetuning import finetune, finetune_seeds  # noqa: E402
from pretrain.api.importing import import_folder  # noqa: E402
from pretrain.api.loading import load  # noqa: E402
from pretrain.api.pictures import Picture, draw_attention, draw_curves  # noqa: E402
from pretrain.api.predicting import Predictor, predict  # noqa: E402
from pretrain.api.preparing import prepare  # noqa: E402
from pretrain.api.training import RunResult, train  # noqa: E402

__all__ = [
    "Picture",
    "Predictor",
    "RunResult",
    "draw_attention",
    "draw_curves",
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
    "train",
]
