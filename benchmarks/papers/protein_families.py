"""A grammar of made-up proteins, and the exact probabilities of their masked residues.

A protein is a domain between two linkers. The domain is of one of K families, each with places of
its own for a motif and for pairs that may be far apart:

- The motif is a short word; each letter is conserved with a probability, 1 at the key sites.
- The second letter of a pair is the partner of the first with the probability `fidelity`.
- All other letters are drawn from the background, one by one.

Family and length of the linkers are hidden. `predict_letters` sums over both by Bayes' rule, so no
model that reads the visible letters can have a lower expected loss.

A letters of the alphabet   D places of a domain   H hypotheses: a family and a linker
K families   M places of a motif   N residues of a protein   P pairs of a domain
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
# Kinds of sites.
BACKGROUND, CONSERVED, KEY, PAIRED = "background", "conserved", "key", "paired"
LEAST_DISTANCE = 6  # residues between the two of a pair


class Grammar:
    """Families of proteins.

    Attributes:
      background_A: probability of each letter where nothing is planted.
      joint_AA: probability of a pair's first and second letter.
      motifs_KM: the letters of each family's motif, by their number.
      conserved_M: probability of the motif's letter; else it is drawn from the background.
      motif_starts: place of each family's motif in the domain.
      pairs: the pairs of each family, by their places in the domain, the smaller first.
      domain: D.
      linker: the most residues on each side of the domain; all numbers up to it are as probable.
    """

    def __init__(
        self,
        background_A: np.ndarray,
        partner_A: np.ndarray,
        fidelity: float,
        motifs_KM: np.ndarray,
        conserved_M: np.ndarray,
        motif_starts: Sequence[int],
        pairs: Sequence[Sequence[tuple[int, int]]],
        domain: int,
        linker: int,
    ) -> None:
        """Make a grammar; `partner_A`: the partner of each letter."""
        self.background_A, self.motifs_KM, self.conserved_M = background_A, motifs_KM, conserved_M
        second_AA = fidelity * np.eye(len(partner_A))[partner_A] + (1 - fidelity) * background_A
        self.joint_AA = background_A[:, None] * second_AA
        self.motif_starts, self.pairs = motif_starts, pairs
        self.domain, self.linker = domain, linker

    @functools.cached_property
    def motif_KMA(self) -> np.ndarray:
        """The probability of each letter at each place of a motif."""
        spread_MA = (1 - self.conserved_M)[:, None] * self.background_A
        letters_KMA = np.eye(len(self.background_A))[self.motifs_KM]
        return self.conserved_M[:, None] * letters_KMA + spread_MA


class MadeUpProtein(NamedTuple):
    """A protein: the numbers of its letters, its family, and the residues before its domain."""

    letters_N: np.ndarray
    family: int
    start: int

    @property
    def text(self) -> str:
        """The letters."""
        return "".join(LETTERS[letter] for letter in self.letters_N)


class Hypotheses(NamedTuple):
    """What each family and linker says of the sites of a protein of N residues.

    Attributes:
      families: family of each hypothesis.
      starts: residues before the domain.
      site_HNA: probability of each letter at each site, whatever the others are.
      partner_HN: place of the other letter of a pair; a site without one has its own.
      second_HN: whether the site is the second of a pair.
    """

    families: np.ndarray
    starts: np.ndarray
    site_HNA: np.ndarray
    partner_HN: np.ndarray
    second_HN: np.ndarray


def make_grammar(seed: int = 0, families: int = 3, pairs: int = 9) -> Grammar:
    """Return families of domains of 36 residues, each with a motif of 8 and a ladder of pairs.

    The pairs are the rungs of two parallel strands, whose distance is another in each family.
    """
    rng = np.random.default_rng(seed)
    background_A = rng.dirichlet(np.full(len(LETTERS), 5.0))
    partner_A, order_A = np.empty(len(LETTERS), int), rng.permutation(len(LETTERS)).reshape(-1, 2)
    partner_A[order_A] = order_A[:, ::-1]
    conserved_M = np.array([1.0, 0.8, 1.0, 0.8, 0.8, 1.0, 0.8, 1.0])
    motifs_KM = rng.integers(len(LETTERS), size=(families, len(conserved_M)))
    sizes, domain = np.array([len(conserved_M), pairs, pairs]), 36
    places: dict[int, tuple[int, int]] = {}  # distance: first places of the motif and of a strand
    while len(places) < families:
        order, starts = rng.permutation(3), np.empty(3, int)
        loops = rng.multinomial(domain - sizes.sum(), np.full(4, 1 / 4))
        starts[order] = np.cumsum(loops[:3]) + np.cumsum(sizes[order]) - sizes[order]
        motif, *strands = starts.tolist()
        if (distance := max(strands) - min(strands)) >= LEAST_DISTANCE:
            places.setdefault(distance, (motif, min(strands)))
    found = [
        [(first + place, first + place + distance) for place in range(pairs)]
        for distance, (_, first) in places.items()
    ]
    motif_starts = [motif for motif, _ in places.values()]
    return Grammar(
        background_A, partner_A, 0.95, motifs_KM, conserved_M, motif_starts, found, domain, 4
    )


def sample_proteins(grammar: Grammar, count: int, seed: int) -> list[MadeUpProtein]:
    """Return proteins of the grammar."""
    rng, num_letters = np.random.default_rng(seed), len(grammar.background_A)
    found = []
    for _ in range(count):
        family = int(rng.integers(len(grammar.pairs)))
        start, end = rng.integers(grammar.linker + 1, size=2).tolist()
        size = start + grammar.domain + end
        letters_N = rng.choice(num_letters, size, p=grammar.background_A)
        motif_start = start + grammar.motif_starts[family]
        for place, site_A in enumerate(grammar.motif_KMA[family]):
            letters_N[motif_start + place] = rng.choice(num_letters, p=site_A)
        for first, second in grammar.pairs[family]:
            pair = rng.choice(num_letters**2, p=grammar.joint_AA.ravel())
            letters_N[start + first], letters_N[start + second] = divmod(pair, num_letters)
        found.append(MadeUpProtein(letters_N, family, start))
    return found


def list_contacts(grammar: Grammar, protein: MadeUpProtein) -> list[tuple[int, int]]:
    """Return the pairs of a protein by their places, from 0."""
    pairs = grammar.pairs[protein.family]
    return [(protein.start + first, protein.start + second) for first, second in pairs]


def name_sites(grammar: Grammar, protein: MadeUpProtein) -> list[str]:
    """Return the kind of each site of a protein."""
    kinds = [BACKGROUND] * len(protein.letters_N)
    start = protein.start + grammar.motif_starts[protein.family]
    for place, conserved in enumerate(grammar.conserved_M):
        kinds[start + place] = KEY if conserved == 1 else CONSERVED
    for pair in list_contacts(grammar, protein):
        for place in pair:
            kinds[place] = PAIRED
    return kinds


# ---- what the visible letters say ---------------------------------------------


@functools.cache
def list_hypotheses(grammar: Grammar, size: int) -> Hypotheses:
    """Return the families and linkers that a protein of `size` residues may have."""
    low, high = (
        max(0, size - grammar.domain - grammar.linker),
        min(grammar.linker, size - grammar.domain),
    )
    cases = [(k, start) for k in range(len(grammar.pairs)) for start in range(low, high + 1)]
    site_HNA = np.tile(grammar.background_A, (len(cases), size, 1))
    partner_HN = np.tile(np.arange(size), (len(cases), 1))
    second_HN = np.zeros((len(cases), size), bool)
    for h, (k, start) in enumerate(cases):
        motif_start = start + grammar.motif_starts[k]
        site_HNA[h, motif_start : motif_start + grammar.motifs_KM.shape[1]] = grammar.motif_KMA[k]
        for first, second in grammar.pairs[k]:
            i, j = start + first, start + second
            partner_HN[h, i], partner_HN[h, j], second_HN[h, j] = j, i, True
            site_HNA[h, j] = grammar.joint_AA.sum(0)
    families, first_residues = np.array(cases).T
    return Hypotheses(families, first_residues, site_HNA, partner_HN, second_HN)


def predict_letters(
    grammar: Grammar, letters_N: np.ndarray, masked_N: np.ndarray, known: tuple[int, int] = (-1, -1)
) -> np.ndarray:
    """Return the exact probabilities [N, A] of each site's letter, given the visible letters.

    They mean something at masked sites alone.

    Args:
      letters_N: numbers of the letters; at masked sites they are not read.
      masked_N: bool.
      known: the family and the residues before the domain, where these are known as well.
    """
    cases, place_N = list_hypotheses(grammar, len(letters_N)), np.arange(len(letters_N))
    if known[0] >= 0:
        is_known_H = (cases.families == known[0]) & (cases.starts == known[1])
        cases = Hypotheses(*(part[is_known_H] for part in cases))
    joint_AA, partner_HN, second_HN = grammar.joint_AA, cases.partner_HN, cases.second_HN
    other_HN = letters_N[partner_HN]
    # A site whose partner is visible.
    sees_HN = (partner_HN != place_N) & ~masked_N[partner_HN]
    first_AA = joint_AA / joint_AA.sum(0)  # of the first letter, given the second
    second_AA = joint_AA / joint_AA.sum(1, keepdims=True)  # of the second, given the first
    given_HNA = np.where(second_HN[..., None], second_AA[other_HN], first_AA.T[other_HN])
    site_HNA = np.where(sees_HN[..., None], given_HNA, cases.site_HNA)
    # The first letter of a pair by itself, the second given the first.
    chain_HNA = np.where((sees_HN & second_HN)[..., None], given_HNA, cases.site_HNA)
    with np.errstate(divide="ignore"):
        seen_HN = np.log(np.take_along_axis(chain_HNA, letters_N[None, :, None], 2)[..., 0])
    score_H = np.where(masked_N, 0, seen_HN).sum(1)
    weight_H = np.exp(score_H - score_H.max())
    return np.tensordot(weight_H / weight_H.sum(), site_HNA, 1)


def compute_bayes_losses(
    grammar: Grammar, letters_N: np.ndarray, masked_N: np.ndarray, known: tuple[int, int] = (-1, -1)
) -> np.ndarray:
    """Return -log p of each masked letter under the exact posterior, in nats."""
    probabilities_NA = predict_letters(grammar, letters_N, masked_N, known)
    return -np.log(probabilities_NA[masked_N, letters_N[masked_N]])


# ---- the expected loss --------------------------------------------------------


def compute_entropy(probabilities: np.ndarray) -> float:
    """Return the entropy of a distribution, in nats."""
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum())


def compute_expected_loss(grammar: Grammar, sizes: Iterable[tuple[int, int]]) -> float:
    """Return the expected loss of a masked residue in nats where family and linkers are known.

    A lower bound of the loss, in closed form: the partner of a masked residue is masked as well
    with the probability (n - 1) / (N - 1) if n of N residues are masked, whichever they are.

    Args:
      sizes: (N, n) of each protein.
    """
    joint_AA = grammar.joint_AA
    first, second = (compute_entropy(joint_AA.sum(axis)) for axis in (1, 0))
    together = compute_entropy(joint_AA)
    alone = first + second
    given = (together - second) + (together - first)
    motifs = np.mean([sum(map(compute_entropy, motif_MA)) for motif_MA in grammar.motif_KMA])
    num_pairs, background = len(grammar.pairs[0]), compute_entropy(grammar.background_A)
    num_planted = 2 * num_pairs + len(grammar.conserved_M)
    loss, count = 0.0, 0
    for size, masked in sizes:
        both = (masked - 1) / max(size - 1, 1)
        pairs = num_pairs * (both * alone + (1 - both) * given)
        loss += masked / size * (pairs + motifs + (size - num_planted) * background)
        count += masked
    return float(loss / count)
