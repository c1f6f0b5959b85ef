"""TensorFlow, which Cloze uses where it is installed (extra `tfdata`) and never needs to train."""

import sys
from typing import Any

from data.members import has_module

REMEDY = "install Cloze with its extra `tfdata` (in a checkout: pip install -e '.[tfdata]')"
if sys.version_info >= (3, 14):  # where the extra is empty
    REMEDY = f"take a Python below 3.14, which TensorFlow has wheels for, and {REMEDY}"


def import_tensorflow(use: str = "tf.data") -> Any:
    """Return TensorFlow without access to the accelerators, which input workers must not use.

    Args:
      use: what needs TensorFlow, as an error message names it.

    Raises:
      ValueError: TensorFlow is not installed, or cannot be imported.
    """
    check_tensorflow(use)
    try:
        import tensorflow as tf
    except ImportError as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"{use} needs TensorFlow, which is installed but fails to import ({reason}): "
            f"{REMEDY}, or train with data.feed=threads"
        ) from error
    for kind in ("GPU", "TPU"):
        if tf.config.get_visible_devices(kind):
            tf.config.set_visible_devices([], kind)
    return tf


def check_tensorflow(use: str, module: str = "tensorflow") -> None:
    """Raise ValueError with the command that installs TensorFlow, or a module of it, if missing."""
    if not has_module(module):
        name = {"tensorflow": "TensorFlow", "tensorflow_datasets": "TensorFlow Datasets"}[module]
        raise ValueError(f"{use} needs {name}, which is not installed: {REMEDY}")
