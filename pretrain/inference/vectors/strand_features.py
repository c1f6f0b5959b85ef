"""Features of DNA by both strands: the mean of the vectors of a text and its reverse complement.

N texts   D width
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jax.sharding import Mesh

from pretrain.inference.hidden_states import Features, extract_features
from pretrain.inference.scoring.both_strands import FLAG, require_complements
from pretrain.workdir.trained import Trained

VECTOR_POOLINGS = ("cls", "mean", "mean_all")  # one vector a text


def check_pooling(pooling: str) -> None:
    """Raise ValueError unless a pooling gives one vector a text."""
    if pooling not in VECTOR_POOLINGS:
        raise ValueError(
            f"{FLAG} with --pooling {pooling}: the two strands have their words and tokens in "
            f"other orders; take {', '.join(VECTOR_POOLINGS)}"
        )


def extract_strand_features(
    trained: Trained,
    mesh: Mesh,
    texts: Sequence[tuple[str, str]],
    layers: Iterable[str] = ("last",),
    pooling: str = "mean",
    batch_size: int = 32,
) -> Features:
    """Return the features of texts, each the mean of both strands' vectors.

    Raises:
      ValueError: as `extract_features`; the vocabulary or a text has no complement, or the pooling
        gives several vectors a text.
    """
    check_pooling(pooling)
    complement, num = require_complements(trained), len(texts)
    reversed_ = [(place, complement.reverse_text(text, place)) for place, text in texts]
    both = extract_features(trained, mesh, [*texts, *reversed_], layers, pooling, batch_size)
    halves = {name: (array[:num], array[num:]) for name, array in both.arrays.items()}
    cut = halves["cut"][0] | halves["cut"][1]
    vectors = {name: (own + other) / 2 for name, (own, other) in halves.items() if own.ndim == 2}
    arrays = vectors | {"line": halves["line"][0], "cut": cut}
    return Features(arrays, num, int(cut.sum()), both.num_empty)
