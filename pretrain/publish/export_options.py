"""The options of an export, which `export` and `push` have."""

from __future__ import annotations

import re

from data.corpus.hub.address import check_repository
from pretrain.inference.random_head import HeadOptions, parameters_option, step_option
from pretrain.settings.verb_options import option


class ExportOptions(HeadOptions):
    """What is exported of a run, and how."""

    step: int | None = step_option()
    parameters: str | None = parameters_option()
    by_words: bool = option(
        "one export for each number of words in checkpoint.words that the run has read, chck_1M, "
        "chck_2M, ... as BabyLM's evaluation names them, and the newest checkpoint as main: "
        "folders in FOLDER, or branches of the repository",
        default=False,
    )
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
    base_model: str | None = option(
        "with --format peft: the repository of the model beside which the adapter is loaded "
        "(default: the one from which the run's model was imported)",
        default=None,
        metavar="USER/NAME",
    )
    license: str | None = option(
        "licence of the weights that the model card states, as the Hub writes it, such as "
        "apache-2.0 (default: none is stated)",
        default=None,
        metavar="ID",
    )

    def check(self) -> None:
        """Raise ValueError for an unknown format or dtype, or an option of another format."""
        self.check_choices("format", "dtype")
        if self.base_model is not None:
            if self.format != "peft":
                raise ValueError(f"--base-model {self.base_model}: only --format peft has a base")
            check_repository(self.base_model)
        if self.license is not None:
            if self.format == "jax":
                raise ValueError("--license: --format jax writes no model card of the Hub")
            if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,60}", self.license):
                raise ValueError(
                    f"--license {self.license!r:.80}: the Hub's licences have small letters, "
                    "digits, dots and hyphens, such as apache-2.0 or cc-by-4.0"
                )
        if self.by_words and self.step is not None:
            raise ValueError(f"--step {self.step}: --by-words chooses the steps itself")
        if self.by_words and self.format == "peft":
            raise ValueError("--format peft: --by-words exports whole models")
