"""Several objectives in one run: every batch holds rows of each of them, in stated shares.

A batch is {part: {key: array}}, where each part has rows of its own objective, of their own length. Tay et al. (2022, section 3.1)
train one model on seven denoisers so; Charpentier and Samuel (2024, section 3) one on masked and causal rows.
"""

import functools
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from data import batch_spec
from data.objectives import OBJECTIVES
from data.objectives.base import Objective

if TYPE_CHECKING:
    AnyObjective = Objective
else:
    AnyObjective = functools.reduce(operator.or_, OBJECTIVES.values())

PART_NAME = re.compile(r"[a-z][a-z0-9_]*")
RESERVED = ("loss", "perplexity", "targets", "rows")  # names of scores of the whole
MOST_PARTS = 32  # each has threads of its own that build its rows


@dataclass(frozen=True)
class MixedPart:
    """One objective of several. Its metrics are called `NAME/...`, and its keys `data.objective.parts.NAME....`."""

    name: str  # Of the part, in metrics and keys: small letters, digits and _.
    objective: AnyObjective  # What is learned of the part's rows.
    share: float = 1.0  # Of the rows of each batch, in proportion to the shares of the others.
    # What the part's loss is multiplied by before the losses are added; none: its share of the rows, all shares making 1.
    loss_weight: float | None = None


@dataclass(frozen=True)
class Mixed:
    """Several objectives for one model, each with its share of every batch's rows."""

    name: ClassVar[str] = "mixed"
    parts: tuple[MixedPart, ...] = ()  # At least two, with different names.

    def __post_init__(self):
        if not all(isinstance(part, MixedPart) for part in self.parts):
            raise ValueError(f"the parts of a mixture are MixedParts, not {self.parts!r:.200}")
        names = [part.name for part in self.parts]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(
                f"a mixture has at least two parts, with different names, here {', '.join(names) or 'none'}: "
                "write them in a configuration file, as configs/ul2_mini.py does"
            )
        if len(names) > MOST_PARTS:
            raise ValueError(f"a mixture of {len(names)} parts: at most {MOST_PARTS}")
        for part in self.parts:
            if not PART_NAME.fullmatch(part.name) or part.name in RESERVED:
                raise ValueError(
                    f"the part {part.name!r} of a mixture: a name has small letters, digits and _, begins with a letter, and is none of "
                    f"{', '.join(RESERVED)}"
                )
            if not 0 < part.share < float("inf"):
                raise ValueError(f"{part.name}: share={part.share}; it must be above 0")
            if part.loss_weight is not None and not 0 <= part.loss_weight < float("inf"):
                raise ValueError(f"{part.name}: loss_weight={part.loss_weight}; it is at least 0")
            if hasattr(part.objective, "columns"):
                raise ValueError(
                    f"{part.name} learns from labelled examples, and a mixture is of objectives that need none; finetune takes "
                    "several tasks"
                )
            if getattr(part.objective, "order", "shuffled") == "lanes":
                raise ValueError(
                    f"{part.name}: order=lanes; a mixture keeps no state between steps, so its rows are shuffled"
                )
        if not 0 < sum(self.loss_weights().values()) < float("inf"):
            raise ValueError("the loss_weight of one part of a mixture at least is above 0")

    @property
    def description(self):
        """What a model card says of it."""
        shares = self.shares()
        return "; ".join(
            f"{part.name} ({shares[part.name]:.3g} of the rows): {describe_objective(part.objective)}"
            for part in self.parts
        )

    def shares(self) -> dict[str, float]:
        """Return {part: its share of the rows}; they make 1."""
        whole = sum(part.share for part in self.parts)
        return {part.name: part.share / whole for part in self.parts}

    def loss_weights(self) -> dict[str, float]:
        """Return {part: what its loss is multiplied by}."""
        shares = self.shares()
        return {
            part.name: shares[part.name] if part.loss_weight is None else part.loss_weight
            for part in self.parts
        }

    def rows(self, batch_size) -> dict[str, int]:
        """Return {part: its rows of a batch}. Raises ValueError where the shares do not make whole numbers."""
        exact = {name: share * batch_size for name, share in self.shares().items()}
        rows = {name: round(number) for name, number in exact.items()}
        inexact = any(abs(exact[name] - rows[name]) > 1e-3 or not rows[name] for name in rows)
        if inexact or sum(rows.values()) != batch_size:
            spelled = ", ".join(f"{name} {number:g}" for name, number in exact.items())
            raise ValueError(
                f"data.batch_size={batch_size} gives the parts of the mixture {spelled} rows, which must be whole numbers: "
                "change data.batch_size, or the shares of data.objective.parts"
            )
        return rows


def describe_objective(objective) -> str:
    """Return what a model card says of an objective."""
    return objective.description.format(**vars(objective))


def split_objective(objective) -> Mapping[str, Objective]:
    """Return {part: objective} of a mixture, {"": objective} of any other."""
    if isinstance(objective, Mixed):
        return {part.name: part.objective for part in objective.parts}
    return {"": objective}


def map_shapes(function, objective, batch_size):
    """Return {key: function(shape, dtype)} of a batch, of a mixture {part: {key: ...}}."""
    if isinstance(objective, Mixed):
        rows = objective.rows(batch_size)
        return {
            part.name: map_shapes(function, part.objective, rows[part.name])
            for part in objective.parts
        }
    shapes = batch_spec.shapes(objective, batch_size)
    return {key: function(shape, dtype) for key, (dtype, shape) in shapes.items()}


def count_positions(objective, batch_size) -> int:
    """Return the number of positions of a batch's rows, read and written, padding included."""
    if isinstance(objective, Mixed):
        rows = objective.rows(batch_size)
        return sum(count_positions(part.objective, rows[part.name]) for part in objective.parts)
    dims = objective.dims()
    return batch_size * (dims["L"] + dims.get("T", 0))
