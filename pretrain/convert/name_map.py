"""Applies a family's rules (pretrain/families/rules.py): our parameters to their tensors, and their tensors to our parameters."""

import dataclasses
import fnmatch
import re
from collections.abc import Mapping

import jax
import numpy as np

from models.layers.layer_layout import flatten, match_layout, unflatten, unstack_layers
from pretrain.families.rules import Part

FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class ImportReport:
    """What an import did not find (it stays as the model was initialised) and what it found no use for; their names."""

    missing: tuple[str, ...]
    unused: tuple[str, ...]


def expand(rules, depths):
    """Return {our unstacked path: (their name or `Part`, layout)} for stacks of the given depths, e.g. {"bert/encoder": 12}.

    Raises ValueError for a path or a name that two rules give.
    """
    expanded, names = {}, {}
    for path, name, layout in rules:
        stack, layers, rest = path.partition("/layers/")
        for i in range(depths[stack]) if layers else (None,):
            ours, theirs = (
                (f"{stack}/layer_{i}/{rest}", number(name, i)) if layers else (path, name)
            )
            if ours in expanded:
                raise ValueError(f"two rules for our {ours}: {expanded[ours][0]} and {theirs}")
            if theirs in names:
                raise ValueError(f"two rules for their {theirs}: {names[theirs]} and {ours}")
            expanded[ours], names[theirs] = (theirs, layout), ours
    return expanded


def number(name, i):
    """Return a name or `Part` of theirs in layer i of ours: `{i}` stands for i, `{2i+1}` for 2 i + 1."""
    if isinstance(name, Part):
        return name._replace(name=number(name.name, i))
    return re.sub(
        r"\{(\d*)i(?:\+(\d+))?\}",
        lambda match: str(int(match[1] or 1) * i + int(match[2] or 0)),
        name,
    )


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
    expanded, leaves = expand(rules, depths), flatten_layers(params, depths)
    if leaves.keys() != expanded.keys():
        raise ValueError(
            "the parameters are not those of the configuration: "
            f"{some(expanded.keys() - leaves.keys())} missing, {some(leaves.keys() - expanded.keys())} without a rule"
        )
    return join_parts(
        {
            theirs: np.ascontiguousarray(layout.theirs(leaves[ours].astype(np.float32)))
            for ours, (theirs, layout) in expanded.items()
        }
    )


def join_parts(tensors):
    """Return {their name: array} with the parts of each tensor put together, in the place of the first one."""
    whole = {}
    for name, tensor in tensors.items():
        if not isinstance(name, Part):
            whole[name] = tensor
        elif name.name not in whole:
            parts = [tensors[name._replace(index=index)] for index in range(name.count)]
            whole[name.name] = np.concatenate(parts, axis=name.axis)
    return whole


class Split(Mapping):
    """A mapping of tensors in which each one that `parts` name is several, read when one of them is asked for."""

    def __init__(self, tensors, parts):
        self._tensors, split = tensors, {part.name: [] for part in parts}
        for part in parts:
            split[part.name].append(part)
        self._names = [part for name in tensors for part in split.get(name, [name])]

    def __getitem__(self, name):
        if not isinstance(name, Part):
            return self._tensors[name]
        whole = self._tensors[name.name]
        if whole.shape[name.axis] % name.count:
            raise ValueError(
                f"{name.name} has shape {[*whole.shape]}, which does not divide into {name.count} parts"
            )
        return np.split(whole, name.count, axis=name.axis)[name.index]

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)


def fill(tensors, rules, depths, init_params, *, heads, body, known=()):
    """(our parameters as float32 arrays, ImportReport) from {their name: array}; the mapping may load when it is read.

    heads: beginnings of the names that may be missing, all with one beginning together; there `init_params` stay.
    body: beginnings of the names that must have a place, unless a pattern in `known` has them; others are reported as unused.
    Raises ValueError that names the tensors that are missing, have no place, or have the wrong shape or type.
    """
    expanded, leaves = expand(rules, depths), flatten_layers(init_params, depths)
    if leaves.keys() != expanded.keys():
        odd = some(leaves.keys() ^ expanded.keys())
        raise ValueError(f"the initial parameters are not those of the configuration: {odd}")
    places = [theirs for theirs, _ in expanded.values()]
    tensors = Split(tensors, [place for place in places if isinstance(place, Part)])
    missing = {whole_name(place) for place in {*places} - {*tensors}}
    unused = {whole_name(place) for place in {*tensors} - {*places}}
    names = {whole_name(place) for place in places}
    absent = tuple(
        head for head in heads if all(name in missing for name in names if name.startswith(head))
    )
    if lost := {name for name in missing if not name.startswith(absent)}:
        raise ValueError(f"missing {some(lost)}, which the model cannot do without")
    if homeless := {
        name
        for name in unused
        if name.startswith(body) and not any(fnmatch.fnmatchcase(name, known_) for known_ in known)
    }:
        raise ValueError(
            f"no place in the model for {some(homeless)}; does config.json belong to these weights?"
        )
    for ours, (theirs, layout) in expanded.items():
        if whole_name(theirs) in missing:
            leaves[ours] = leaves[ours].astype(np.float32)
        else:
            leaves[ours] = _ours(tensors[theirs], theirs, layout, leaves[ours].shape)
    report = ImportReport(tuple(sorted(missing)), tuple(sorted(unused)))
    return match_layout(unflatten(leaves), init_params), report


def whole_name(place):
    """Return the name of the tensor that a name or a `Part` of theirs stands for."""
    return place.name if isinstance(place, Part) else place


def _ours(tensor, theirs, layout, shape):
    expected, found = [*layout.theirs(np.broadcast_to(np.float32(0), shape)).shape], [*tensor.shape]
    if found != expected:
        if isinstance(theirs, Part):
            for sizes in (found, expected):
                sizes[theirs.axis] *= theirs.count
        raise ValueError(f"{whole_name(theirs)} has shape {found}; config.json makes it {expected}")
    if tensor.dtype.name not in FLOATS:
        raise ValueError(
            f"{whole_name(theirs)} is {tensor.dtype.name}; expected one of {', '.join(FLOATS)}"
        )
    return layout.ours(np.asarray(tensor).astype(np.float32), shape)


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
