"""What rows of labelled texts need."""

from data.objectives.masking import needs


def check_labelled(objective, vocabulary):
    """Raise a ValueError unless rows of labelled examples can be made with these settings and this vocabulary."""
    if objective.separators not in (1, 2):
        raise ValueError(
            f"{objective.name}: separators={objective.separators}; between two texts stand one or two [SEP]"
        )
    if objective.length < 6:
        raise ValueError(
            f"{objective.name}: length={objective.length}; a row holds [CLS] A [SEP] B [SEP], so 6 at least"
        )
    needs(objective.name, vocabulary, "cls", "sep", "pad")
