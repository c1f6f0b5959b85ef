"""Fine-tuning examples as a source: a token store whose documents are examples, with what is to be predicted next to them.

`finetune` writes one by `write_labelled`, `write_tagged`, `write_questions` or `write_sources`; each adds entries to the manifest:

    labels     the names of classes or of tags, [] of scores
    questions  {split: number of questions}
    text       how pairs of texts were written: `Text2Text.describe_pairs`
    digest     a fingerprint of the examples, as `finetune` computes it before it writes
    silent     {split: number of tagged words that have no token in the vocabulary and are therefore missing}
"""

from __future__ import annotations

import json
from typing import Any

from data.corpus.paths import as_path
from data.source import Rows
from data.store.reader import Store, read_manifest
from data.store.writer import EXAMPLE_ENTRIES


class ExampleStore(Store):
    """A token store of fine-tuning examples."""

    @classmethod
    def open_generation(cls, given: Any, manifest: dict[str, Any]) -> ExampleStore:
        """Open the generation that a manifest names. Raises ValueError where it has no examples."""
        if not EXAMPLE_ENTRIES & manifest.keys():
            raise ValueError(
                f"{given}: its documents have no labels; `finetune` makes a store of labelled examples"
            )
        return super().open_generation(given, manifest)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes or tags, () of scores; None of questions and of pairs of texts."""
        names = self.manifest.get("labels")
        return None if names is None else tuple(names)

    @property
    def digest(self) -> str | None:
        """The fingerprint of the examples that `finetune` wrote; None where another program wrote them."""
        return self.manifest.get("digest")

    @property
    def num_skipped_words(self) -> int:
        """The number of tagged words that have no token in the vocabulary."""
        return sum(self.manifest.get("silent", {}).values())

    def rows(self, split: str, objective: Any) -> Rows:
        """Return the rows of a split. Raises ValueError where the objective cannot learn from these examples."""
        self.check_objective(objective)
        return super().rows(split, objective)

    def check_objective(self, objective: Any) -> None:
        """Raise ValueError where an objective writes pairs of texts otherwise than these were written."""
        if not hasattr(objective, "describe_pairs"):
            return
        written, expected = (
            json.dumps(pairs, sort_keys=True)
            for pairs in (self.manifest.get("text"), objective.describe_pairs())
        )
        if written != expected:
            raise ValueError(
                f"{self.path} has pairs that were written as {written}, data.objective of the run says "
                f"{expected}: name the store of the run"
            )


def open_source(path: Any) -> Store:
    """Open the token store in a folder, as an `ExampleStore` where its documents are examples. Raises as `Store.open`."""
    has_examples = EXAMPLE_ENTRIES & read_manifest(as_path(path)).keys()
    return (ExampleStore if has_examples else Store).open(path)
