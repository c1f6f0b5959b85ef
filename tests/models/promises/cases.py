"""A case is a tiny model of a family, with random parameters and a batch of its paper's objective:
rows of 12, 7 and 4 tokens.
"""

import dataclasses
import functools
import inspect
from typing import Any

import jax
import numpy as np
import pytest

from models import build
from models.config.base import ImageConfig
from models.layers.layer_layout import flatten_params
from pretrain.families import FAMILIES, find_family

SIZES = {"B": 3, "L": 12, "T": 6, "P": 3, "C": 6}
LENGTHS = np.array([12, 7, 4])
MASKED_POSITIONS = np.array([[1, 5, 11], [0, 2, 6], [1, 2, 3]], np.int32)
DEEPER = {"gpt3": {"depth": 4}}  # their layers are scanned in pairs
VARIANTS = {
    "t5_v1_1": ("t5", {"gated": True, "tied": False}),
    # one softmax, and biases that all layers share
    "transformer_xl_characters": ("transformer_xl", {"clusters": None, "untie_r": False}),
    "linformer_unshared": ("linformer", {"sharing": "none"}),
    "lstm_lm_tied": ("lstm_lm", {"tied": True}),
    "music_transformer_absolute": ("music_transformer", {"relative": False}),
    # layers of both patterns in turn; all positions are connected, as of merged heads
    "sparse_transformer_strided": ("sparse_transformer", {"pattern": "strided", "merged": False}),
}
# Encoders that are trained with a head alone have tests of their own, tests/models/test_words.py,
# and models of images tests/models/test_vit.py and test_deit.py.
CASES = {
    name: (name, DEEPER.get(name, {}))
    for name, family in FAMILIES.items()
    if family.objectives and not issubclass(family.config, ImageConfig)
} | VARIANTS

# One family of each kind: an encoder, a decoder, both, a recurrent network.
HOLDERS = ("bert", "gpt2", "t5_v1_1", "lstm_lm")


def make_batch(model, objective) -> dict[str, np.ndarray]:
    """Return the arguments of `model` in a batch of `objective`: random ids of a vocabulary of 50,
    and 0 as padding.
    """
    named = inspect.signature(type(model).__call__).parameters
    fields = {key: field for key, field in objective.describe_batch().items() if key in named}
    has_padding = any(key.endswith("attention_mask") for key in fields)
    mask = np.arange(12) < (LENGTHS[:, None] if has_padding else 12)
    rng, batch = np.random.default_rng(0), {}
    for key, field in fields.items():
        shape = tuple(SIZES[letter] for letter in field.dims)
        if key == "masked_positions":
            batch[key] = MASKED_POSITIONS
        elif key == "permutation_ranks":  # the first predicted position is the last in the order
            batch[key] = np.zeros(shape, np.int32)
            np.put_along_axis(batch[key], MASKED_POSITIONS, [[3, 1, 2]], axis=1)
        elif key.endswith("segment_ids"):
            continue  # packed rows are tested in tests/models/layers/test_packing.py
        elif key.endswith("attention_mask"):
            batch[key] = mask
        elif field.dtype == "float32":  # a weight, or a uniform number for sampling
            batch[key] = np.full(shape, 0.5, np.float32)
        else:
            ids = rng.integers(2, 50, shape, np.int32)
            is_token = mask[..., None] if field.dims == "BLC" else mask
            batch[key] = np.where(is_token, ids, np.int32(0)) if "L" in field.dims else ids
    if "token_type_ids" in named:
        batch["token_type_ids"] = (mask & (np.arange(12) >= 3)).astype(np.int32)
    return batch


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A tiny model of a family, its parameters, and a batch as the model's arguments."""

    name: str
    config: Any
    model: Any
    params: Any
    batch: dict[str, np.ndarray]

    @property
    def ids(self) -> str:
        """Return the key of the ids with padding or, in a decoder, of the ids that are read from
        the left.
        """
        return next(key for key in self.batch if key.endswith("token_ids"))

    @property
    def mask(self) -> np.ndarray | None:
        """Return where there are tokens, bool [B, L]; None if no row has padding."""
        return next((a for key, a in self.batch.items() if key.endswith("attention_mask")), None)

    @property
    def depths(self) -> dict[str, int]:
        """Return {path of a stack of layers: its depth}."""
        stacks = (
            (path.partition("/layers/"), leaf) for path, leaf in flatten_params(self.params).items()
        )
        return {stack: len(leaf) for (stack, is_stacked, _), leaf in stacks if is_stacked}

    @property
    def has_encoder(self) -> bool:
        return self.mask is not None

    def replace(self, **settings):
        """Return the module with other settings."""
        return build(dataclasses.replace(self.config, **settings))

    @functools.cached_property
    def run(self):
        """Return a compiled function (batch): the model's outputs, a list of arrays."""
        apply = functools.partial(self.model.apply, {"params": self.params})
        return jax.jit(lambda batch: jax.tree.leaves(apply(**batch)))

    @functools.cached_property
    def encode(self):
        """Return a compiled function (ids, mask): the encoder's states [B, L, D]."""
        apply = functools.partial(self.model.apply, {"params": self.params}, method="encode")
        return jax.jit(lambda ids, mask: jax.tree.leaves(apply(ids, mask))[0])


@functools.cache
def make_case(name, make, tiny):
    config = dataclasses.replace(tiny, **CASES[name][1])
    model, params = make(config)
    return Case(name, config, model, params, make_batch(model, find_family(config).objectives[0]()))


def has_encoder(name) -> bool:
    """Return whether the objective of a case has rows with padding, which an encoder reads."""
    spec = FAMILIES[CASES[name][0]].objectives[0]().describe_batch()
    return "encoder_attention_mask" in spec or "masked_positions" in spec


def has_decoder(name) -> bool:
    spec = FAMILIES[CASES[name][0]].objectives[0]().describe_batch()
    return not has_encoder(name) or ("labels" in spec and "T" in spec["labels"].dims)


def has_field(name, field) -> bool:
    return field in {one.name for one in dataclasses.fields(FAMILIES[CASES[name][0]].config)}


def has_relative_positions(name) -> bool:
    """Return whether no parameter depends on the length of a row."""
    return "length" in FAMILIES[CASES[name][0]].config.not_in_tensors


def for_cases(*, of=lambda name: True):
    """Parametrise a test over the cases for which `of` is true; `launch.sh test` runs HOLDERS."""
    names = [name for name in CASES if of(name)]
    parametrize = pytest.mark.parametrize("case", names, indirect=True)
    return lambda test: pytest.mark.held_by(*HOLDERS)(parametrize(test))
