"""Steps between the tensors of a Hugging Face folder and the tensors that a family's rules name.

A record lists them in `before_import` and `after_export`, and they run in that order. A step takes
(our configuration, {name: array}) and returns {name: array}; an import reads an array only when it
is accessed.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

Tensors: TypeAlias = Mapping[str, np.ndarray]
Step: TypeAlias = Callable[[Any, Tensors], Tensors]
# {name of a copy: name of the original}; or a function of the configuration that returns it
Copies: TypeAlias = Mapping[str, str] | Callable[[Any], Mapping[str, str]]


def run_steps(steps: tuple[Step, ...], config: Any, tensors: Tensors) -> Tensors:
    """Return the tensors after all steps."""
    for step in steps:
        tensors = step(config, tensors)
    return tensors


class RenamedTensors(Mapping[str, np.ndarray]):
    """A mapping of tensors under other names; a tensor is read only when it is accessed."""

    def __init__(self, tensors: Tensors, names: Mapping[str, str]) -> None:
        """Rename tensors; names: {new name: name in `tensors`}."""
        self._tensors, self._names = tensors, names

    def __getitem__(self, name: str) -> np.ndarray:
        return self._tensors[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


# ---- before an import ------------------------------------------------------------


def add_prefix(prefix: str, bare: tuple[str, ...] = ("",)) -> Step:
    """Add a prefix to the names of a bare encoder or decoder, which is saved without it.

    bare: how the names begin that get it.
    """

    def rename_bare(config: Any, tensors: Tensors) -> Tensors:
        if any(name.startswith(prefix) for name in tensors):
            return tensors
        return _rename(tensors, lambda name: prefix + name if name.startswith(bare) else name)

    return rename_bare


def rename(*parts: tuple[str, str]) -> Step:
    """Replace outdated names; parts: (part of an old name, part of the present name)."""

    def update_name(name: str) -> str:
        for old, new in parts:
            name = name.replace(old, new)
        return name

    return lambda config, tensors: _rename(tensors, update_name)


def _rename(tensors: Tensors, new_name_of: Callable[[str], str]) -> RenamedTensors:
    """Return the tensors, each named `new_name_of(name)`. Raises ValueError if two get one name."""
    names = {}
    for name in tensors:
        if (new := new_name_of(name)) in names:
            raise ValueError(f"{names[new]} and {name} are two tensors for one place, {new}")
        names[new] = name
    return RenamedTensors(tensors, names)


def tie(copies: Copies) -> Step:
    """Drop the copies of a weight that our model has once, such as the output of tied embeddings.

    A copy stands in for an original that is missing. Raises ValueError if the two differ.
    """
    return lambda config, tensors: merge_copies(tensors, _list_copies(copies, config))


def merge_copies(tensors: Tensors, copies: Mapping[str, str]) -> RenamedTensors:
    """Return the tensors without copies of a weight that the model has only once.

    A copy stands in for an original that is missing.

    Args:
      tensors: {name: array}.
      copies: {name of a copy: name of the original}.
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


def _list_copies(copies: Copies, config: Any) -> Mapping[str, str]:
    """Return {name of a copy: name of the original} for a configuration."""
    return copies(config) if callable(copies) else copies


def drop(*dropped: str) -> Step:
    """Drop tensors without reading them."""
    return lambda config, tensors: RenamedTensors(
        tensors, {name: name for name in tensors if name not in dropped}
    )


def drop_zeros(name: str, reason: str) -> Step:
    """Drop a tensor that is 0 in our model. Raises ValueError with the reason if it is not."""

    def check(config: Any, tensors: Tensors) -> Tensors:
        if name in set(tensors) and np.any(tensors[name]):
            raise ValueError(f"{name} is not 0: {reason}")
        return drop(name)(config, tensors)

    return check


def drop_constant(name: str, make: Callable[[Any], np.ndarray]) -> Step:
    """Drop a tensor that is no parameter. Raises ValueError unless it is `make(config)`."""

    def check(config: Any, tensors: Tensors) -> Tensors:
        if name not in set(tensors):
            return tensors
        expected, actual = make(config), np.asarray(tensors[name], np.float32)
        if actual.shape != expected.shape or not np.allclose(actual, expected, rtol=1e-2, atol=0):
            raise ValueError(
                f"{name} is {list(actual.shape)} from "
                f"{actual.flat[0] if actual.size else 'nothing'}; "
                f"{type(config).__name__} has the constant {list(expected.shape)} from "
                f"{expected.flat[0]:g} to {expected.flat[-1]:g}, and no other"
            )
        return drop(name)(config, tensors)

    return check


# ---- after an export -------------------------------------------------------------


def copy(copies: Copies) -> Step:
    """Write weights under a second name."""
    return lambda config, tensors: {
        **tensors,
        **{name: tensors[original] for name, original in _list_copies(copies, config).items()},
    }


def add(name: str, make: Callable[[Any], np.ndarray]) -> Step:
    """Write a tensor that is no parameter: `make(config)`."""
    return lambda config, tensors: {**tensors, name: make(config)}
