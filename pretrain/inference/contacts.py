"""Contacts of residues, read from the attention of an ESM-2 (Rao et al. 2021, section 3).

    p_ij = sigmoid(b + sum_f w_f A_f,ij)

A_f is the attention of head f, symmetrized, less what its rows and columns explain (the average
product correction). The pair touches with the probability p_ij. A few proteins of known structure
give w and b, by maximum likelihood with an L1 penalty; they are parameters of the model.

F heads of all layers   L residues   M pairs   N layers   H heads
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh

from pretrain.inference.attention_maps import compute_attention_maps
from pretrain.inference.text_records import Record
from pretrain.workdir.trained import Trained

SEPARATION = 6  # residues between two of a pair; closer ones touch in any protein
STRENGTH = 0.15  # of the data against the L1 penalty, as in the authors' code
TEXTS_AT_ONCE = 8


class Protein(NamedTuple):
    """A sequence.

    Attributes:
      place: where it was given, for errors.
      contacts: pairs of places from 0, the smaller first; None: they are not known.
    """

    place: str
    text: str
    contacts: frozenset[tuple[int, int]] | None = None


class ContactPair(NamedTuple):
    """Two residues, by their places from 0, and the probability that they touch."""

    first: int
    second: int
    probability: float


def check_head(trained: Trained) -> None:
    """Raise ValueError for a model without a head of contacts."""
    if "contact_weights" not in trained.params:
        raise ValueError(
            f"a {type(trained.run.model).__name__} has no head of contacts; an ESM-2 has one. "
            "`attention` draws the attention of other models"
        )


def read_protein(place: str, record: Record) -> Protein:
    """Return the sequence of a record, and its `contacts` if it has them: pairs of places from 1.

    Raises:
      ValueError: `contacts` is not a list of pairs of different letters of the text.
    """
    text, given = record["text"], record.get("contacts")
    if given is None:
        return Protein(place, text)
    size = len(text)
    if not isinstance(given, list) or not all(_is_pair(pair, size) for pair in given):
        raise ValueError(
            f"{place}: `contacts` is a list of pairs of different places, from 1 to the text's "
            f"{size:,} letters, such as [[3, 17], [5, 12]]"
        )
    return Protein(place, text, frozenset((min(pair) - 1, max(pair) - 1) for pair in given))


def _is_pair(pair: Any, size: int) -> bool:
    """Return whether a value is two different places from 1 to `size`."""
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(place) is int and 1 <= place <= size for place in pair)
        and pair[0] != pair[1]
    )


# ---- attention ---------------------------------------------------------------


def correct_average_products(weights_FLL: np.ndarray) -> np.ndarray:
    """Return symmetrized weights less the product of their row's and column's sums over the total.

    Dunn et al. 2008, applied to attention.
    """
    both_FLL = weights_FLL + weights_FLL.swapaxes(-1, -2)
    rows_FL1 = both_FLL.sum(-1, keepdims=True)
    return both_FLL - rows_FL1 * rows_FL1.swapaxes(-1, -2) / rows_FL1.sum(-2, keepdims=True)


def compute_features(
    trained: Trained, mesh: Mesh, proteins: Sequence[Protein]
) -> Iterator[np.ndarray]:
    """Yield the corrected attention of each protein, float32 [F, L, L], without <cls> and <eos>.

    Raises:
      ValueError: a sequence is longer than the model, or a residue is not one token.
    """
    for begin in range(0, len(proteins), TEXTS_AT_ONCE):
        group = proteins[begin : begin + TEXTS_AT_ONCE]
        texts = [(protein.place, protein.text, None) for protein in group]
        for protein, (panel,) in zip(group, compute_attention_maps(trained, mesh, texts)):
            weights_NHLL = panel.weights_NHLM[:, :, 1:-1, 1:-1]
            size = weights_NHLL.shape[-1]
            if size != len(protein.text):
                raise ValueError(
                    f"{protein.place}: {len(protein.text):,} characters are {size:,} tokens; give "
                    "a sequence of single letters of the alphabet, without blanks"
                )
            yield correct_average_products(weights_NHLL.reshape(-1, size, size))


# ---- the head ----------------------------------------------------------------


def predict_contacts(params: Any, features_FLL: np.ndarray) -> np.ndarray:
    """Return the probabilities of contacts [L, L]; params: of the model."""
    weights_F, bias = np.asarray(params["contact_weights"]), np.asarray(params["contact_bias"])
    scores_LL = np.tensordot(weights_F, features_FLL, 1) + bias
    return (1 + np.tanh(scores_LL / 2)) / 2


def list_pairs(probabilities_LL: np.ndarray, separation: int = SEPARATION) -> list[ContactPair]:
    """Return the pairs of residues at least so far apart in the sequence, most probable first."""
    first_M, second_M = np.triu_indices(len(probabilities_LL), separation)
    found_M = probabilities_LL[first_M, second_M]
    order_M = np.argsort(-found_M, kind="stable")
    return [
        ContactPair(*pair)
        for pair in zip(first_M[order_M].tolist(), second_M[order_M].tolist(), found_M[order_M])
    ]


def compute_precision(pairs: Sequence[ContactPair], protein: Protein) -> float:
    """Return the share of contacts among the L most probable pairs of a protein of L residues."""
    assert protein.contacts is not None
    top = pairs[: len(protein.text)]
    return sum((pair.first, pair.second) in protein.contacts for pair in top) / max(len(top), 1)


def fit_contacts(
    features: Sequence[np.ndarray], proteins: Sequence[Protein], separation: int = SEPARATION
) -> dict[str, np.ndarray]:
    """Return the contact_weights [F] and the contact_bias [1] of proteins of known contacts.

    They minimise sum |w| + 0.15 times the sum of the cross entropies of all pairs at least
    `separation` apart.

    Args:
      features: of `compute_features`.

    Raises:
      ValueError: no such pair touches, or all of them do.
    """
    rows, targets = [], []
    for features_FLL, protein in zip(features, proteins, strict=True):
        first_M, second_M = np.triu_indices(features_FLL.shape[-1], separation)
        rows.append(features_FLL[:, first_M, second_M].T)
        known = protein.contacts or frozenset()
        targets.append([pair in known for pair in zip(first_M.tolist(), second_M.tolist())])
    x_MF, y_M = np.concatenate(rows).astype(np.float64), np.concatenate(targets)
    if not 0 < y_M.sum() < len(y_M):
        state = "no pair touches" if not y_M.any() else "all pairs touch"
        raise ValueError(
            f"{state} that is {separation} or more places apart, so nothing can be learned from "
            "these proteins"
        )
    weights_F, bias = minimize_penalized_loss(x_MF, y_M, STRENGTH)
    return {
        "contact_weights": weights_F.astype(np.float32),
        "contact_bias": np.array([bias], np.float32),
    }


def minimize_penalized_loss(
    x_MF: np.ndarray, y_M: np.ndarray, strength: float
) -> tuple[np.ndarray, float]:
    """Return the weights and the bias of a logistic model with an L1 penalty of the weights.

    w is the difference of two vectors that are not negative, so the objective is smooth.
    """
    from scipy.optimize import minimize

    sign_M, num_features = np.where(y_M, 1.0, -1.0), x_MF.shape[1]

    def compute_loss(packed: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective and its gradient at (positive parts, negative parts, bias)."""
        up_F, down_F = packed[:num_features], packed[num_features:-1]
        margin_M = sign_M * (x_MF @ (up_F - down_F) + packed[-1])
        loss = strength * np.logaddexp(0, -margin_M).sum() + up_F.sum() + down_F.sum()
        slope_M = -strength * sign_M * (1 - np.tanh(margin_M / 2)) / 2
        slope_F = x_MF.T @ slope_M
        return loss, np.concatenate([slope_F + 1, 1 - slope_F, [slope_M.sum()]])

    bounds = [(0, None)] * (2 * num_features) + [(None, None)]
    settings = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-12, "gtol": 1e-7}
    begin = np.zeros(2 * num_features + 1)
    found = minimize(
        compute_loss, begin, jac=True, method="L-BFGS-B", bounds=bounds, options=settings
    )
    if not found.success:
        raise ValueError(f"the head did not converge on {len(y_M):,} pairs: {found.message}")
    return found.x[:num_features] - found.x[num_features:-1], float(found.x[-1])
