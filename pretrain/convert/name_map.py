"""Applies a family's rules (pretrain/families/rules.py): our parameters to their tensors, and their tensors to our parameters."""

import dataclasses
import fnmatch
import re
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from models.layers.layer_layout import flatten, match_layout, unflatten, unstack_layers
from pretrain.families.rules import Join, Layout, Split, blank, split_index

FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class ImportReport:
    """What an import did not find (it stays as the model was initialised) and what it found no use for; their names."""

    missing: tuple[str, ...]
    unused: tuple[str, ...]


class Match(NamedTuple):
    """A rule for one layer: our unstacked paths, their names, and the layout that leads from one to the other."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    layout: Layout | Join | Split

    def __str__(self):
        return f"{', '.join(self.ours)} <-> {', '.join(self.theirs)}"


def expand(rules, depths) -> list[Match]:
    """Return the matches of the rules for stacks of the given depths, e.g. {"bert/encoder": 12}.

    Raises ValueError that names a path or a name that two rules give, a numbered layer of theirs
    that no rule gives, and a rule that is not one.
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
    _check_every_layer_is_there(rules, theirs)
    return matches


def _expand_rule(rule, depths):
    """Return the matches of one rule: one, or one a layer."""
    ours, theirs, layout = rule
    paths, names = ((side,) if isinstance(side, str) else tuple(side) for side in (ours, theirs))
    rule = Match(paths, names, layout)
    if (len(paths) > 1 and not isinstance(layout, Join)) or (
        len(names) > 1 and not isinstance(layout, Split)
    ):
        raise ValueError(f"{rule}: several paths need a Join, several names a Split")
    if isinstance(layout, Split) and layout.num_parts != len(names):
        raise ValueError(f"{rule}: {len(names)} names for a Split into {layout.num_parts}")
    stacks = {path.partition("/layers/")[0] for path in paths if "/layers/" in path}
    parts = [split_index(name) for name in names]
    if not stacks and all(index is None for _, index, _ in parts):
        return [rule]
    if len(stacks) != 1 or not all("/layers/" in path for path in paths):
        raise ValueError(f"{rule}: a name with an index needs paths with `layers`, of one stack")
    numbered = [(before, index, after) for before, index, after in parts if index is not None]
    if len(numbered) < len(parts):
        raise ValueError(f"{rule}: a path with `layers` needs {{i}} in every name")
    (stack,) = stacks
    if stack not in depths:
        raise ValueError(f"{rule}: no depth of the stack {stack}; given are {some(depths)}")
    return [
        Match(
            tuple(path.replace("/layers/", f"/layer_{i}/", 1) for path in paths),
            tuple(f"{before}{index(i)}{after}" for before, index, after in numbered),
            layout,
        )
        for i in range(depths[stack])
    ]


def _check_every_layer_is_there(rules, names):
    """Raise ValueError where the rules leave out a number between 0 and the last of a stack of theirs."""
    templates = [
        name for _, theirs, _ in rules for name in ([theirs] if isinstance(theirs, str) else theirs)
    ]
    for start in {before for before, index, _ in map(split_index, templates) if index is not None}:
        found = (re.match(rf"{re.escape(start)}(\d+)", name) for name in names)
        numbers = {int(number[1]) for number in found if number}
        if lost := set(range(max(numbers, default=0))) - numbers:
            raise ValueError(f"no rule for their {some(f'{start}{number}' for number in lost)}")


# ---- our side: nested, stacked or not -> one flat leaf a layer -------------------


def flatten_layers(params, depths):
    """Return {path: NumPy leaf} of parameters with unstacked layers, whichever layout they have.

    Raises ValueError where an axis of layers is not as long as its stack is deep.
    """
    arrays = jax.tree.map(np.asarray, params)  # at once, not layer by layer, from a device
    for path, leaf in flatten(arrays).items():
        stack, is_stacked, _ = path.partition("/layers/")
        if is_stacked and leaf.shape[0] != depths.get(stack):
            raise ValueError(
                f"{path} has {leaf.shape[0]} layers; the configuration says {depths.get(stack)}"
            )
    return flatten(unstack_layers(arrays))


# ---- across ----------------------------------------------------------------------


def export(params, rules, depths):
    """{their name: float32 array} of all our parameters. Raises ValueError that names what only one side knows."""
    matches, leaves = expand(rules, depths), flatten_layers(params, depths)
    paths = {path for match in matches for path in match.ours}
    if leaves.keys() != paths:
        raise ValueError(
            "the parameters are not those of the configuration: "
            f"{some(paths - leaves.keys())} missing, {some(leaves.keys() - paths)} without a rule"
        )
    tensors = {}
    for match in matches:
        exported = _export(match, [leaves[path].astype(np.float32) for path in match.ours])
        tensors |= zip(match.theirs, map(np.ascontiguousarray, exported), strict=True)
    return tensors


def _export(match, leaves):
    try:
        return match.layout.export(leaves)
    except ValueError as error:
        raise ValueError(f"{match}: {error}") from error


def fill(tensors, rules, depths, init_params, *, heads, body, known=()):
    """(our parameters as float32 arrays, ImportReport) from {their name: array}; the mapping may load when it is read.

    heads: beginnings of the names that may be missing, all with one beginning together; there `init_params` stay.
    body: beginnings of the names that must have a place, unless a pattern in `known` has them; others are reported as unused.
    Raises ValueError that names the tensors that are missing, have no place, or have the wrong shape or type.
    """
    matches, leaves = expand(rules, depths), flatten_layers(init_params, depths)
    if odd := leaves.keys() ^ {path for match in matches for path in match.ours}:
        raise ValueError(f"the initial parameters are not those of the configuration: {some(odd)}")
    names = {name for match in matches for name in match.theirs}
    there = set(tensors)  # `in` a mapping may load a tensor
    missing, unused = names - there, there - names
    absent = tuple(
        head for head in heads if all(name in missing for name in names if name.startswith(head))
    )
    if lost := {name for name in missing if not name.startswith(absent)}:
        raise ValueError(f"missing {some(lost)}, which the model cannot do without")
    if homeless := {
        name
        for name in unused
        if name.startswith(body)
        and not any(fnmatch.fnmatchcase(name, pattern) for pattern in known)
    }:
        raise ValueError(
            f"no place in the model for {some(homeless)}; does config.json belong to these weights?"
        )
    for match in matches:
        own = [leaves[path] for path in match.ours]
        if missing.isdisjoint(match.theirs):
            filled = _fill(match, tensors, [leaf.shape for leaf in own])
        elif missing.issuperset(match.theirs):
            filled = [leaf.astype(np.float32) for leaf in own]
        else:
            lost = missing.intersection(match.theirs)
            raise ValueError(f"missing {some(lost)}, without which there is no {match.ours[0]}")
        leaves |= zip(match.ours, filled, strict=True)
    report = ImportReport(tuple(sorted(missing)), tuple(sorted(unused)))
    return match_layout(unflatten(leaves), init_params), report


def _fill(match, tensors, shapes):
    """Return our leaves of a match, of these shapes, of their tensors. Raises ValueError as `fill` does."""
    expected = [tensor.shape for tensor in _export(match, [blank(shape) for shape in shapes])]
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
    return match.layout.fill(read, shapes)


# ---- their side: names change over the years -------------------------------------


class Renamed(Mapping):
    """A mapping of tensors under other names: {name: its name in `tensors`}. Reads one only when it is asked for."""

    def __init__(self, tensors, names):
        self._tensors, self._names = tensors, names

    def __getitem__(self, name):
        return self._tensors[self._names[name]]

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)


def rename(tensors, modern):
    """`tensors` with each name replaced by `modern(name)`. Raises ValueError where two become one."""
    names = {}
    for name in tensors:
        if (new := modern(name)) in names:
            raise ValueError(f"{names[new]} and {name} are two tensors for one place, {new}")
        names[new] = name
    return Renamed(tensors, names)


def merge_copies(tensors, copies):
    """`tensors` without the names in `copies` {copy: original}, which are one weight in the model; either name will do.

    Raises ValueError where both are there and differ.
    """
    names = {name: name for name in tensors}
    for copy, original in copies.items():
        if copy not in names:
            continue
        source = names.pop(copy)
        if original not in names:
            names[original] = source
        elif not np.array_equal(tensors[source], tensors[names[original]]):
            raise ValueError(
                f"{copy} differs from {original}, but in this model they are one and the same weight"
            )
    return Renamed(tensors, names)


def some(names, most=5):
    """Names for a message: the first few in order, and how many more there are."""
    names = sorted(names)
    return (", ".join(names[:most]) or "nothing") + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )
