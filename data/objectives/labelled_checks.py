"""A check of the settings that objectives on labelled texts share."""

from typing import Any

from data.objectives.setting_checks import check_special_tokens
from data.vocabulary.base import Vocabulary


def check_labelled(objective: Any, vocabulary: Vocabulary) -> None:
    """Raise a ValueError unless rows of labelled texts are possible with this vocabulary."""
    if objective.separators not in (1, 2):
        raise ValueError(
            f"{objective.name}: separators={objective.separators}; "
            "there are one or two [SEP] between two texts"
        )
    if objective.length < 6:
        raise ValueError(
            f"{objective.name}: length={objective.length}; "
            "a row holds [CLS] A [SEP] B [SEP], so at least 6 tokens"
        )
    if objective.cls_position != "none":
        check_special_tokens(objective.name, vocabulary, "cls", "sep", "pad")
