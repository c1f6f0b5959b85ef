"""Application of a family's rules (pretrain/families/rules.py) to parameters and tensors.

Our parameters are exported to their tensors, and their tensors fill our parameters.
"""

import dataclasses
import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from models.layers.layer_layout import (
    flatten_params,
    match_layout,
    unflatten_params,
    unstack_layers,
)
from pretrain.families.rules import JoinLayout, Layout, SplitLayout, make_placeholder, split_index

Rules = Iterable[Any]  # of (our path or paths, their name or names, layout)
Depths = Mapping[str, int]  # {path of a stack of layers: its depth}
FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class ImportReport:
    """The names of tensors that an import did not find, and of those that it did not use.

    Parameters without a tensor stay as the model was initialized.
    """

    missing: tuple[str, ...]
    unused: tuple[str, ...]


class Match(NamedTuple):
    """A rule for one layer: our unstacked paths, their names, and the conversion between them."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    layout: Layout | JoinLayout | SplitLayout

    def __str__(self) -> str:
        return f"{', '.join(self.ours)} <-> {', '.join(self.theirs)}"


def expand_rules(rules: Rules, depths: Depths) -> list[Match]:
    """Return the matches of the rules for stacks of the given depths, e.g. {"bert/encoder": 12}.

    Raises ValueError, which names a path or a name of two rules, a numbered layer of theirs without
    a rule, or a malformed rule.
    """
    matches = [match for rule in rules for match in _expand_rule(rule, depths)]
    ours, theirs = {}, {}
    for match in matches:
        for path in match.ours:
            if path in ours:
                raise ValueError(
                    f"two rules for our {path}: {ours[path]} and {', '.join(match.theirs)}"
                )
            ours[path] = ", ".join(match.theirs)
        for name in match.theirs:
            if name in theirs:
                raise ValueError(
                    f"two rules for their {name}: {theirs[name]} and {', '.join(match.ours)}"
                )
            theirs[name] = ", ".join(match.ours)
    _check_layer_numbers(rules, theirs)
    return matches


def _expand_rule(rule: tuple[Any, Any, Any], depths: Depths) -> list[Match]:
    """Return the matches of one rule: one, or one for each layer."""
    ours, theirs, layout = rule
    paths, names = ((side,) if isinstance(side, str) else tuple(side) for side in (ours, theirs))
    match = Match(paths, names, layout)
    if (len(paths) > 1 and not isinstance(layout, JoinLayout)) or (
        len(names) > 1 and not isinstance(layout, SplitLayout)
    ):
        raise ValueError(f"{match}: several paths need a Join, several names a Split")
    if isinstance(layout, SplitLayout) and layout.num_parts != len(names):
        raise ValueError(f"{match}: {len(names)} names for a Split into {layout.num_parts}")
    stacks = {path.partition("/layers/")[0] for path in paths if "/layers/" in path}
    indices = [split_index(name) for name in names]
    if not stacks and all(index is None for _, index, _ in indices):
        return [match]
    if len(stacks) != 1 or not all("/layers/" in path for path in paths):
        raise ValueError(f"{match}: a name with an index needs paths with `layers`, of one stack")
    numbered = [(before, index, after) for before, index, after in indices if index is not None]
    if len(numbered) < len(indices):
        raise ValueError(f"{match}: a path with `layers` needs {{i}} in every name")
    (stack,) = stacks
    if stack not in depths:
        raise ValueError(
            f"{match}: no depth of the stack {stack}; given are {format_names(depths)}"
        )
    return [
        Match(
            tuple(path.replace("/layers/", f"/layer_{i}/", 1) for path in paths),
            tuple(f"{before}{index(i)}{after}" for before, index, after in numbered),
            layout,
        )
        for i in range(depths[stack])
    ]


def _check_layer_numbers(rules: Rules, names: Iterable[str]) -> None:
    """Raise ValueError if no rule has a number below the last one of a stack of theirs."""
    templates = [
        name for _, theirs, _ in rules for name in ([theirs] if isinstance(theirs, str) else theirs)
    ]
    for start in {before for before, index, _ in map(split_index, templates) if index is not None}:
        found = (re.match(rf"{re.escape(start)}(\d+)", name) for name in names)
        numbers = {int(number[1]) for number in found if number}
        if lost := set(range(max(numbers, default=0))) - numbers:
            raise ValueError(
                f"no rule for their {format_names(f'{start}{number}' for number in lost)}"
            )


def flatten_layers(params: dict[str, Any], depths: Depths) -> dict[str, np.ndarray]:
    """Return {path: NumPy leaf} of parameters with unstacked layers, in whichever layout they are.

    Raises ValueError if the length of an axis of layers is not the depth of its stack.
    """
    arrays = jax.tree.map(np.asarray, params)  # one transfer from a device, not one for each layer
    for path, leaf in flatten_params(arrays).items():
        stack, is_stacked, _ = path.partition("/layers/")
        if is_stacked and leaf.shape[0] != depths.get(stack):
            raise ValueError(
                f"{path} has {leaf.shape[0]} layers; the configuration says {depths.get(stack)}"
            )
    return flatten_params(unstack_layers(arrays))


def export_tensors(params: dict[str, Any], rules: Rules, depths: Depths) -> dict[str, np.ndarray]:
    """Return {their name: float32 array} of all our parameters.

    Raises ValueError, which names a parameter without a rule or a rule without a parameter.
    """
    matches, leaves = expand_rules(rules, depths), flatten_layers(params, depths)
    check_paths(leaves.keys(), matches)
    tensors = {}
    for match in matches:
        exported = _export_match(match, [leaves[path].astype(np.float32) for path in match.ours])
        tensors |= zip(match.theirs, map(np.ascontiguousarray, exported), strict=True)
    return tensors


def check_paths(paths: Iterable[str], matches: Sequence[Match]) -> None:
    """Raise ValueError, which names an unstacked path without a rule or a rule without a path."""
    found, known = set(paths), {path for match in matches for path in match.ours}
    if found != known:
        raise ValueError(
            "the parameters do not fit the configuration: "
            f"{format_names(known - found)} missing, {format_names(found - known)} without a rule"
        )


def unstack_paths(paths: Iterable[str], depths: Depths) -> Iterator[str]:
    """Yield the paths of parameters with unstacked layers, as `flatten_layers` has them."""
    for path in paths:
        stack, is_stacked, rest = path.partition("/layers/")
        if is_stacked:
            yield from (f"{stack}/layer_{i}/{rest}" for i in range(depths[stack]))
        else:
            yield path


def _export_match(match: Match, leaves: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Return the tensors of the leaves of a match. Raises ValueError, which names the match."""
    try:
        return match.layout.export_tensors(leaves)
    except ValueError as error:
        raise ValueError(f"{match}: {error}") from error


def fill_params(
    tensors: Mapping[str, np.ndarray],
    rules: Rules,
    depths: Depths,
    init_params: dict[str, Any],
    *,
    head_prefixes: tuple[str, ...],
    body_prefixes: tuple[str, ...],
    ignored_patterns: tuple[str, ...] = (),
) -> tuple[dict[str, Any], ImportReport]:
    """Return our parameters as float32 arrays, and a report.

    Args:
      tensors: {their name: array}; the mapping may load an array when it is read.
      init_params: the initial parameters, which stay where a head is missing.
      head_prefixes: prefixes of names that may be missing; all names of a prefix, or none.
      body_prefixes: prefixes of names that must have a place in the model; others are reported as
        unused.
      ignored_patterns: patterns (fnmatch) of names with these prefixes that need no place.

    Raises:
      ValueError: names the tensors that are missing, have no place, or have the wrong shape or
        dtype.
    """
    matches, leaves = expand_rules(rules, depths), flatten_layers(init_params, depths)
    if odd := leaves.keys() ^ {path for match in matches for path in match.ours}:
        raise ValueError(
            f"the initial parameters do not fit the configuration: {format_names(odd)}"
        )
    names = {name for match in matches for name in match.theirs}
    present = set(tensors)  # `in` a mapping may load a tensor
    missing, unused = names - present, present - names
    _check_names(names, missing, unused, head_prefixes, body_prefixes, ignored_patterns)
    for match in matches:
        own = [leaves[path] for path in match.ours]
        if missing.isdisjoint(match.theirs):
            filled = _fill_match(match, tensors, [leaf.shape for leaf in own])
        elif missing.issuperset(match.theirs):
            filled = [leaf.astype(np.float32) for leaf in own]
        else:
            required = missing.intersection(match.theirs)
            raise ValueError(
                f"missing {format_names(required)}, without which there is no {match.ours[0]}"
            )
        leaves |= zip(match.ours, filled, strict=True)
    report = ImportReport(tuple(sorted(missing)), tuple(sorted(unused)))
    return match_layout(unflatten_params(leaves), init_params), report


def _check_names(
    names: set[str],
    missing: set[str],
    unused: set[str],
    head_prefixes: tuple[str, ...],
    body_prefixes: tuple[str, ...],
    ignored_patterns: tuple[str, ...],
) -> None:
    """Raise ValueError if a required tensor is missing, or one of the body has no place.

    Args:
      names: the names that the rules have.
      unused: the names of other tensors.
      head_prefixes, body_prefixes, ignored_patterns: see `fill_params`.
    """
    absent = tuple(
        head
        for head in head_prefixes
        if all(name in missing for name in names if name.startswith(head))
    )
    if required := {name for name in missing if not name.startswith(absent)}:
        raise ValueError(f"missing {format_names(required)}, which the model cannot do without")
    unexpected = {
        name
        for name in unused
        if name.startswith(body_prefixes)
        and not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored_patterns)
    }
    if unexpected:
        raise ValueError(
            f"no place in the model for {format_names(unexpected)}; does config.json belong to "
            "these weights?"
        )


def _fill_match(
    match: Match, tensors: Mapping[str, np.ndarray], shapes: Sequence[tuple[int, ...]]
) -> Sequence[np.ndarray]:
    """Return the leaves of a match, of these shapes. Raises as `fill_params`."""
    expected = [
        tensor.shape
        for tensor in _export_match(match, [make_placeholder(shape) for shape in shapes])
    ]
    read = []
    for name, shape in zip(match.theirs, expected, strict=True):
        tensor = tensors[name]
        if tensor.shape != shape:
            raise ValueError(
                f"{name} has shape {list(tensor.shape)}; config.json makes it {list(shape)}"
            )
        if tensor.dtype.name not in FLOATS:
            raise ValueError(f"{name} is {tensor.dtype.name}; expected one of {', '.join(FLOATS)}")
        read.append(np.asarray(tensor).astype(np.float32))
    return match.layout.fill_params(read, shapes)


def format_names(names: Iterable[str], most: int = 5) -> str:
    """Return names for a message: the first few in order, and the number of the others."""
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "nothing") + more
