"""Scores of DNA by both strands: the mean over a text and its reverse complement.

A text and its reverse complement are one molecule, so they get one score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data.rows.complement import Complement, find_complements
from pretrain.inference.scoring.mutations import read_mutation, score_mutations
from pretrain.inference.scoring.text_scoring import Text, TextScore, TextScorer
from pretrain.workdir.trained import Trained

FLAG = "--both-strands"


class BothStrandScorer(TextScorer):
    """A scorer that reads each text and its reverse complement."""

    def __init__(self, trained: Trained, *args: Any, **options: Any) -> None:
        """Build the model, with the arguments of `TextScorer`.

        Raises:
          ValueError: as `TextScorer`; or the vocabulary has no complements.
        """
        self.complement = require_complements(trained)
        super().__init__(trained, *args, **options)

    def __call__(self, texts: Sequence[Text]) -> list[TextScore]:
        """Return the score of each text, with the log probability of its reverse complement.

        Raises ValueError, which begins with the place: as `TextScorer`; or a letter of the text has
        no complement.
        """
        both = super().__call__([*texts, *map(self.reverse_text, texts)])
        own, other = both[: len(texts)], both[len(texts) :]
        return [
            score._replace(other_strand=reverse.total)
            for score, reverse in zip(own, other, strict=True)
        ]

    def reverse_text(self, text: Text) -> Text:
        """Return the reverse complement of a text; its span covers the same letters."""
        size, span = len(text.text), text.span
        return Text(
            text.place,
            self.complement.reverse_text(text.text, text.place),
            None if span is None else (size - span[1], size - span[0]),
        )

    def score_mutations(self, text: Text, names: Sequence[str], marginals: str) -> list[float]:
        """Return the mean log-odds of mutations on both strands, see `score_mutations`."""
        own = score_mutations(self, text, names, marginals)
        reverse = self.reverse_text(text)
        reversed_names = [self.reverse_mutation(name, text.text) for name in names]
        other = score_mutations(self, reverse, reversed_names, marginals)
        return [(one + two) / 2 for one, two in zip(own, other, strict=True)]

    def reverse_mutation(self, name: str, text: str) -> str:
        """Return a mutation as it is written for the other strand: A1G of ACC is T3C of GGT."""
        mutation, letters = read_mutation(name, text), self.complement.letters
        return ":".join(
            f"{letters[text[place]]}{len(text) - place}{letters[letter]}"
            for place, letter in zip(mutation.places, mutation.letters, strict=True)
        )


def require_complements(trained: Trained) -> Complement:
    """Return the complements of a model's vocabulary; raise ValueError if it has none."""
    try:
        return find_complements(trained.vocabulary)
    except ValueError as error:
        raise ValueError(f"{FLAG}: {error}") from error
