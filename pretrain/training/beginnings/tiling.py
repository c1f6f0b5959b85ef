"""A larger model that begins with the weights of a smaller one, tiled.

ModernBERT-large begins so (Warner et al. 2024, section 2.2): along each axis the smaller weight
stands in the middle and is repeated on both sides, and the layers are stretched over the larger
depth (Rae et al. 2021, appendix G.3.3). Queries, keys, values and both halves of a gated layer are
parameters of their own here, so that each is tiled by itself.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from models.layers.layer_layout import match_layout, unflatten_params
from pretrain.convert.name_map import expand_rules, flatten_layers
from pretrain.families import FAMILIES
from pretrain.families.family_record import Family
from pretrain.settings.overrides import ConfigError

# Sizes that may grow.
GROWING = ("width", "depth", "num_heads", "mlp")


class ParameterPlace(NamedTuple):
    """Where a parameter is: the number of its layer, None outside of them, and its part in it."""

    layer: int | None
    part: str


def check_tiling(family: Family, ours: Any, theirs: Any) -> None:
    """Raise ConfigError unless the weights of one model can be tiled to another.

    Args:
      family: the record of the larger model.
      ours: the configuration of the larger model.
      theirs: the configuration of the smaller model.
    """
    if family.same_to_tile is None:
        able = [kind.config.__name__ for kind in FAMILIES.values() if kind.same_to_tile is not None]
        raise ConfigError(
            f"--tile: a {type(ours).__name__} cannot begin with tiled weights; a "
            f"{' or a '.join(able)} can"
        )
    for name in GROWING:
        small, large = getattr(theirs, name), getattr(ours, name)
        if large < small:
            raise ConfigError(
                f"--tile: model.{name}={large} is smaller than the {small} of the given model; "
                "tiling only enlarges"
            )
    for name in family.same_to_tile:
        given, own = getattr(theirs, name), getattr(ours, name)
        if own != given:
            raise ConfigError(
                f"--tile: model.{name}={own}, and {given} in the given model; set "
                f"model.{name}={given}"
            )
    head_widths = [config.width // config.num_heads for config in (theirs, ours)]
    if head_widths[0] != head_widths[1]:
        raise ConfigError(
            f"--tile: heads are {head_widths[1]} wide, and {head_widths[0]} in the given model; "
            f"set model.width to model.num_heads x {head_widths[0]}"
        )
    if (ours.num_heads - theirs.num_heads) % 2:
        raise ConfigError(
            f"--tile: {ours.num_heads} heads around {theirs.num_heads} in the middle leave half a "
            f"head on each side; set model.num_heads to {ours.num_heads - 1} or "
            f"{ours.num_heads + 1}, and model.width to {head_widths[0]} for each"
        )


def tile_params(family: Family, ours: Any, theirs: Any, params: Any, initial: Any) -> Any:
    """Return the parameters of a larger model, tiled from a smaller one.

    Layer i of n begins with layer round(i m / n) of the smaller model's m. A norm that the smaller
    model's layer lacks stays as it is initialized.

    Args:
      family: the record of the larger model.
      ours: the configuration of the larger model.
      theirs: the configuration of the smaller model, with the same paths of parameters.
      params: the parameters of the smaller model.
      initial: the initial parameters of the larger model.
    """
    hf_map = family.require_hugging_face()
    small = flatten_layers(params, hf_map.find_depths(theirs))
    by_place = {place: small[path] for path, place in find_places(family, theirs).items()}
    tiled = flatten_layers(initial, hf_map.find_depths(ours))
    for path, (layer, part) in find_places(family, ours).items():
        if layer is not None:
            layer = min(round(layer * theirs.depth / ours.depth), theirs.depth - 1)
        if (given := by_place.get(ParameterPlace(layer, part))) is not None:
            tiled[path] = tile(given, tiled[path].shape)
    return match_layout(unflatten_params(tiled), initial)


def find_places(family: Family, config: Any) -> dict[str, ParameterPlace]:
    """Return {our unstacked path: its place}; their names of tensors number the layers."""
    hf_map = family.require_hugging_face()
    places = {}
    for match in expand_rules(hf_map.make_rules(config), hf_map.find_depths(config)):
        name = ", ".join(match.theirs)
        number = re.search(r"\.layers\.(\d+)\.", name)
        part = re.sub(r"\d+", "N", name)
        for i, path in enumerate(match.ours):
            places[path] = ParameterPlace(int(number[1]) if number else None, f"{part} {i}")
    return places


def tile(leaf: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return an array of a larger shape, in which the leaf stands in the middle and repeats."""
    for axis, (small, large) in enumerate(zip(leaf.shape, shape, strict=True)):
        leaf = leaf.take((np.arange(large) - (large - small) // 2) % small, axis=axis)
    return leaf
