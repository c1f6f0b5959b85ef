"""Token stores of fine-tuning examples: each document is an example with its targets.

`finetune` writes one by `write_labelled`, `write_tagged`, `write_questions` or `write_sources`.
Each adds entries to the manifest:

    labels     names of the classes or tags, [] for scores and vectors
    label_width  components of each label that is a vector
    questions  {split: number of questions}
    text       how pairs of texts were written: `Text2Text.describe_pairs`
    digest     fingerprint of the examples, which `finetune` computes before it writes them
    silent     {split: number of tagged words that are missing because the vocabulary has no token
               for them}
"""

from __future__ import annotations

import json
from typing import Any

from data.source import RowSet
from data.store.manifest import EXAMPLE_ENTRIES
from data.store.reader import Store


class ExampleStore(Store):
    """A token store of fine-tuning examples."""

    @classmethod
    def open_generation(cls, given: Any, manifest: dict[str, Any]) -> ExampleStore:
        """Open the generation that a manifest names; raise a ValueError if it has no examples."""
        if not EXAMPLE_ENTRIES & manifest.keys():
            raise ValueError(
                f"{given}: its documents have no labels; "
                "`finetune` makes a store of labelled examples"
            )
        return super().open_generation(given, manifest)

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """Names of the classes or tags; () for scores, None for questions and pairs of texts."""
        names = self.manifest.get("labels")
        return None if names is None else tuple(names)

    @property
    def examples_digest(self) -> str | None:
        """Fingerprint of the examples; None if another program than `finetune` wrote them."""
        return self.manifest.get("digest")

    @property
    def num_skipped_words(self) -> int:
        """The number of tagged words that have no token in the vocabulary."""
        return sum(self.manifest.get("silent", {}).values())

    def open_rows(self, split: str, objective: Any) -> RowSet:
        """Return the rows of a split.

        Raises:
          ValueError: the objective cannot learn from these examples.
        """
        self.check_objective(objective)
        return super().open_rows(split, objective)

    def check_objective(self, objective: Any) -> None:
        """Raise a ValueError if these pairs of texts were written with other settings."""
        if objective.describe_pairs() is None:
            return
        written, expected = (
            json.dumps(pairs, sort_keys=True)
            for pairs in (self.manifest.get("text"), objective.describe_pairs())
        )
        if written != expected:
            raise ValueError(
                f"{self.path} has pairs that were written as {written}, "
                f"data.objective of the run says {expected}: name the store of the run"
            )
