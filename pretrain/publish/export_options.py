"""The options of an export, which `export` and `push` have."""

from __future__ import annotations

from pretrain.inference.random_head import HeadOptions, parameters_option, step_option
from pretrain.settings.verb_options import option


class ExportOptions(HeadOptions):
    """What is exported of a run, and how."""

    step: int | None = step_option()
    parameters: str | None = parameters_option()
    overwrite: bool = option("replace an earlier export in FOLDER", default=False)
    allow_nonfinite: bool = option(
        "export weights that contain NaN or infinite values (default: an error)", default=False
    )
    dtype: str = option(
        "dtype of the exported weights; training keeps them in float32, the 16-bit dtypes "
        "round them to 8 or 11 significant bits (default: %(default)s)",
        default="float32",
        choices=("float32", "bfloat16", "float16"),
    )
    format: str = option(
        "transformers: safetensors, config.json and tokenizer files; jax: an Orbax "
        "checkpoint, the model's code with a loader, and a jax.export program; peft: LoRA's "
        "factors and the head alone, in float32 (default: %(default)s)",
        default="transformers",
        choices=("transformers", "jax", "peft"),
    )

    def check(self) -> None:
        """Raise ValueError for an unknown format or dtype."""
        self.check_choices("format", "dtype")
