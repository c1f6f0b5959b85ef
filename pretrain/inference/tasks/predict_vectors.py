"""The vectors of texts by a fine-tuned embedder, and the similarity of pairs of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from data.examples.text_sets import PAIRS
from pretrain.inference.batching import name_places
from pretrain.inference.vectors.embedding import TextEmbedder, normalize_rows

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

SHOWN = 4  # components of a vector on the terminal


class VectorPredictor:
    """Predicts {"vector"} of a text, and {"score"}, the cosine, of a pair."""

    def __init__(self, trained: Trained, batch_size: int) -> None:
        self.embed = TextEmbedder(trained, batch_size=batch_size)

    def __call__(
        self, texts: Sequence[tuple[str, ...]], places: Sequence[str | None]
    ) -> list[dict[str, Any]]:
        """Return the result of each text or pair."""
        named = name_places(places)
        flat = [(text, place) for parts, place in zip(texts, named) for text in parts]
        vectors_ND = self.embed([text for text, _ in flat], [place for _, place in flat])
        rows, results = iter(vectors_ND), []
        for parts in texts:
            own_KD = [next(rows) for _ in parts]
            if len(parts) == 1:
                results.append({"vector": own_KD[0].tolist()})
            else:
                first_D, second_D = normalize_rows(np.stack(own_KD))
                results.append({"score": float(first_D @ second_D)})
        return results


def make_reader(trained: Trained) -> Callable[[dict[str, Any], str | None], tuple[str, ...]]:
    """Return a function (record, place) that returns the text or the pair of texts of a record."""
    columns = trained.run.data.objective.columns[:2]

    def read_record(record: dict[str, Any], place: str | None) -> tuple[str, ...]:
        for names in (columns, *PAIRS, ("text",)):
            if all(isinstance(record.get(name), str) for name in names):
                return tuple(record[name] for name in names)
        raise ValueError(
            f"{place or 'the command line'}: expected text, text and text2, or "
            f"{' and '.join(columns)}; this has {', '.join(map(repr, record))}"
        )

    return read_record


def format_vector(texts: Sequence[str], result: dict[str, Any]) -> str:
    """Return texts with the beginning of the vector, or the score, for the terminal."""
    if "score" in result:
        return "\n".join([*texts, f"    {result['score']:7.3f}"])
    vector = result["vector"]
    shown = " ".join(f"{component:.3f}" for component in vector[:SHOWN])
    return f"{texts[0]}\n    {shown} ... ({len(vector)} components)"
