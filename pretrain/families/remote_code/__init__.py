"""Modelling files that exports carry, for families that Hugging Face transformers lacks.

NAME.py is copied as it is into each export of the family NAME, where `trust_remote_code=True` runs
it. It needs torch and transformers, and nothing of this project, which never imports it.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary


def name_code(family: str) -> str:
    """Return the name of the modelling file in an export."""
    return f"modeling_{family}.py"


def describe_code(
    family: str, more: Mapping[str, Any] | None = None, **classes: str
) -> Callable[[Any, "Vocabulary"], dict[str, Any]]:
    """Return a family's `HuggingFaceMap.settings`: its classes, and the id of ends or of padding.

    Args:
      more: further entries of config.json.
      classes: {name of an Auto class of transformers: the class in the family's file}.
    """
    code = name_code(family).removesuffix(".py")

    def describe_settings(config: Any, vocabulary: "Vocabulary") -> dict[str, Any]:
        ends = ("bos_token_id", "eos_token_id") if "AutoModelForCausalLM" in classes else ()
        return {
            "auto_map": {auto: f"{code}.{theirs}" for auto, theirs in classes.items()},
            **(more or {}),
            **(dict.fromkeys(ends, vocabulary.eos) or {"pad_token_id": vocabulary.pad}),
        }

    return describe_settings
