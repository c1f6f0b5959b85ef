"""Mode tokens: what a text begins with for a model that was trained on several denoisers (Tay et al. 2022, section 3.2)."""

from data.mixed import split_objective


def list_modes(objective, vocabulary) -> list[int]:
    """Return the ids of the mode tokens that an objective, or the parts of a mixture, put before their rows; the first part's first."""
    modes = [getattr(one, "mode", "") for one in split_objective(objective).values()]
    return [vocabulary.pieces.index(mode) for mode in dict.fromkeys(modes) if mode]


def add_mode(row, modes) -> list[int]:
    """Return the ids of a row behind the first mode token, unless the row begins with one itself, or there are none."""
    return row if not modes or (row and row[0] in modes) else [modes[0], *row]
