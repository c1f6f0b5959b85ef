"""Mappings of tensors under other names; the names in transformers change over the years."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np


class RenamedTensors(Mapping[str, np.ndarray]):
    """A mapping of tensors under other names; a tensor is read only when it is accessed."""

    def __init__(self, tensors: Mapping[str, np.ndarray], names: Mapping[str, str]) -> None:
        """Rename tensors; names: {new name: name in `tensors`}."""
        self._tensors, self._names = tensors, names

    def __getitem__(self, name: str) -> np.ndarray:
        return self._tensors[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def rename_tensors(
    tensors: Mapping[str, np.ndarray], new_name_of: Callable[[str], str]
) -> RenamedTensors:
    """Return the tensors, each named `new_name_of(name)`. Raises ValueError if two get one name."""
    names = {}
    for name in tensors:
        if (new := new_name_of(name)) in names:
            raise ValueError(f"{names[new]} and {name} are two tensors for one place, {new}")
        names[new] = name
    return RenamedTensors(tensors, names)


def merge_copies(tensors: Mapping[str, np.ndarray], copies: Mapping[str, str]) -> RenamedTensors:
    """Return the tensors without copies of a weight that the model has only once.

    A copy stands in for an original that is missing.

    Args:
      tensors: {name: array}.
      copies: {name of a copy: name of the original}.

    Raises:
      ValueError: a copy differs from its original.
    """
    names = {name: name for name in tensors}
    for copy, original in copies.items():
        if copy not in names:
            continue
        source = names.pop(copy)
        if original not in names:
            names[original] = source
        elif not np.array_equal(tensors[source], tensors[names[original]], equal_nan=True):
            raise ValueError(
                f"{copy} differs from {original}, but in this model they are one and the same "
                "weight"
            )
    return RenamedTensors(tensors, names)
