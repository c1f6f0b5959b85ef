"""Mixtures of objectives: every batch holds rows of several objectives in given shares.

A batch is {part: {key: array}}; each part has rows of its own objective and length. Tay et al.
(2022, section 3.1) train one model on seven denoisers in this way; Charpentier and Samuel (2024,
section 3) train one on masked and causal rows.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from data import batch_spec
from data.objectives.objective import Objective, ObjectiveDefaults

PART_NAME = re.compile(r"[a-z][a-z0-9_]*")
RESERVED_NAMES = ("loss", "perplexity", "targets", "rows")  # metrics of the whole mixture
MAX_PARTS = 32  # each part has threads of its own that build its rows


@dataclass(frozen=True)
class MixedPart:
    """One objective of a mixture.

    Its metrics are called `NAME/...`, and its keys `data.objective.parts.NAME....`.
    """

    name: str  # Part's name in metrics and keys: small letters, digits and _.
    objective: Objective  # What the model learns from the part's rows.
    share: float = 1.0  # Share of each batch's rows, relative to the others'.
    loss_weight: float | None = None  # Factor of the part's loss; none: its share of the rows.


@dataclass(frozen=True)
class Mixed(ObjectiveDefaults):
    """Several objectives for one model, each with its share of every batch's rows."""

    name: ClassVar[str] = "mixed"
    unit: ClassVar[str] = "tokens"  # what the throughput counts
    parts: tuple[MixedPart, ...] = ()  # At least two parts with different names.

    def __post_init__(self) -> None:
        """Raise a ValueError unless the parts make a mixture."""
        if not all(isinstance(part, MixedPart) for part in self.parts):
            raise ValueError(f"the parts of a mixture are MixedParts, not {self.parts!r:.200}")
        names = [part.name for part in self.parts]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(
                "a mixture has at least two parts, with different names, here "
                f"{', '.join(names) or 'none'}: write them in a configuration file, "
                "as configs/ul2_mini.py does"
            )
        if len(names) > MAX_PARTS:
            raise ValueError(f"a mixture of {len(names)} parts: at most {MAX_PARTS}")
        for part in self.parts:
            if not PART_NAME.fullmatch(part.name) or part.name in RESERVED_NAMES:
                raise ValueError(
                    f"the part {part.name!r} of a mixture: a name has small letters, digits and _, "
                    f"begins with a letter, and is not one of {', '.join(RESERVED_NAMES)}"
                )
            if not 0 < part.share < float("inf"):
                raise ValueError(f"{part.name}: share={part.share}; it must be above 0")
            if part.loss_weight is not None and not 0 <= part.loss_weight < float("inf"):
                raise ValueError(f"{part.name}: loss_weight={part.loss_weight}; it is at least 0")
            if part.objective.reads_examples:
                raise ValueError(
                    f"{part.name} learns from labelled examples, and a mixture is of objectives "
                    "that need none; finetune takes several tasks"
                )
            if part.objective.order == "lanes":
                raise ValueError(
                    f"{part.name}: order=lanes; a mixture carries no state between steps, "
                    "so its rows are shuffled"
                )
        if not 0 < sum(self.compute_loss_weights().values()) < float("inf"):
            raise ValueError("the loss_weight of one part of a mixture at least is above 0")

    @property
    def description(self) -> str:
        """The description of the mixture in a model card."""
        shares = self.compute_shares()
        return "; ".join(
            f"{part.name} ({shares[part.name]:.3g} of the rows): "
            f"{describe_objective(part.objective)}"
            for part in self.parts
        )

    def compute_shares(self) -> dict[str, float]:
        """Return {part: its share of the rows}; the shares sum to 1."""
        whole = sum(part.share for part in self.parts)
        return {part.name: part.share / whole for part in self.parts}

    def compute_loss_weights(self) -> dict[str, float]:
        """Return {part: factor of its loss}."""
        shares = self.compute_shares()
        return {
            part.name: shares[part.name] if part.loss_weight is None else part.loss_weight
            for part in self.parts
        }

    def count_part_rows(self, batch_size: int) -> dict[str, int]:
        """Return {part: number of its rows in a batch}.

        Raises:
          ValueError: the shares do not give whole numbers.
        """
        exact = {name: share * batch_size for name, share in self.compute_shares().items()}
        num_rows = {name: round(number) for name, number in exact.items()}
        inexact = any(
            abs(exact[name] - num_rows[name]) > 1e-3 or not num_rows[name] for name in num_rows
        )
        if inexact or sum(num_rows.values()) != batch_size:
            spelled = ", ".join(f"{name} {number:g}" for name, number in exact.items())
            raise ValueError(
                f"data.batch_size={batch_size} gives the parts of the mixture {spelled} rows, "
                "which must be whole numbers: change data.batch_size, "
                "or the shares of data.objective.parts"
            )
        return num_rows


def describe_objective(objective: Objective | Mixed) -> str:
    """Return the description of an objective in a model card."""
    return objective.description.format(**vars(objective))


def split_objective(objective: Objective | Mixed) -> Mapping[str, Objective]:
    """Return {part: objective} of a mixture, {"": objective} of any other."""
    if isinstance(objective, Mixed):
        return {part.name: part.objective for part in objective.parts}
    return {"": objective}


def map_shapes(
    function: Callable[[tuple[int, ...], Any], Any], objective: Objective | Mixed, batch_size: int
) -> dict[str, Any]:
    """Return {key: function(shape, dtype)} of a batch; of a mixture, {part: {key: ...}}."""
    if isinstance(objective, Mixed):
        num_rows = objective.count_part_rows(batch_size)
        return {
            part.name: map_shapes(function, part.objective, num_rows[part.name])
            for part in objective.parts
        }
    shapes = batch_spec.compute_shapes(objective, batch_size)
    return {key: function(shape, dtype) for key, (dtype, shape) in shapes.items()}


def count_positions(objective: Objective | Mixed, batch_size: int) -> int:
    """Return the number of positions of a batch, padding included; an image is one."""
    if isinstance(objective, Mixed):
        num_rows = objective.count_part_rows(batch_size)
        return sum(count_positions(part.objective, num_rows[part.name]) for part in objective.parts)
    return batch_size * objective.count_positions()
