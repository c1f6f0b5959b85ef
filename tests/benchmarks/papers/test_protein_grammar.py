"""The exact losses of benchmarks.papers.protein_families against sums over all proteins, the closed
form against samples, and the figures of benchmarks.papers.protein_grammar.
"""

import itertools

import numpy as np
import pytest

from benchmarks.papers import protein_families, protein_grammar
from benchmarks.papers.protein_families import Grammar, MadeUpProtein

pytestmark = pytest.mark.fast
THREE = np.array([0.5, 0.3, 0.2])


def make_small(linker=0):
    """Return two families of domains of four residues, of three letters, with a motif of one."""
    return Grammar(
        *(THREE, np.array([1, 2, 0]), 0.8),
        *(np.array([[0], [2]]), np.array([0.9]), [0, 3]),
        *([[(1, 3)], [(0, 2)]], 4, linker),
    )


def list_proteins(grammar, size):
    """Return {letters: probability} of all proteins of `size` residues, site by site."""
    joint, motif = grammar.joint_AA, grammar.motif_KMA
    found = {}
    cases = [
        (k, start)
        for k in range(2)
        for start in range(grammar.linker + 1)
        if 0 <= size - grammar.domain - start <= grammar.linker
    ]
    for letters in itertools.product(range(3), repeat=size):
        total = 0.0
        for k, start in cases:
            ((first, second),) = grammar.pairs[k]
            planted = start + grammar.motif_starts[k]
            p = joint[letters[start + first], letters[start + second]]
            p *= motif[k, 0, letters[planted]]
            for place in {*range(size)} - {start + first, start + second, planted}:
                p *= THREE[letters[place]]
            total += p / len(cases)
        found[letters] = total
    return found


@pytest.mark.parametrize(("linker", "size"), [(0, 4), (1, 5)])
def test_letters_are_predicted_as_by_a_sum_over_all_proteins(linker, size):
    """For every protein and every set of masks."""
    grammar = make_small(linker)
    proteins = list_proteins(grammar, size)
    letters_SN, p_S = np.array(list(proteins)), np.array(list(proteins.values()))
    assert abs(p_S.sum() - 1) < 1e-12
    for letters_N, masked in itertools.product(
        letters_SN[::17], itertools.product((False, True), repeat=size)
    ):
        p_agrees_S = p_S * (np.array(masked) | (letters_SN == letters_N)).all(1)
        expected = [np.bincount(place_S, p_agrees_S, 3) for place_S in letters_SN.T]
        expected /= p_agrees_S.sum()
        found = protein_families.predict_letters(grammar, letters_N, np.array(masked))
        hidden = np.array(masked)
        np.testing.assert_allclose(found[hidden], expected[hidden], atol=1e-12)


def test_the_expected_loss_is_the_mean_over_all_proteins_and_masks():
    """Of one family, whose places are known; two of four residues are masked."""
    two = make_small()
    one = Grammar(
        *(THREE, np.array([1, 2, 0]), 0.8, two.motifs_KM[:1], two.conserved_M),
        *(two.motif_starts[:1], two.pairs[:1], 4, 0),
    )
    proteins = list_proteins(two, 4)
    loss, total = 0.0, 0.0
    for letters in proteins:
        p = one.joint_AA[letters[1], letters[3]] * one.motif_KMA[0, 0, letters[0]]
        p *= THREE[letters[2]]
        for hidden in itertools.combinations(range(4), 2):
            masked = np.isin(np.arange(4), hidden)
            losses = protein_families.compute_bayes_losses(one, np.array(letters), masked)
            loss, total = loss + p * losses.mean() / 6, total + p / 6
    assert abs(total - 1) < 1e-12
    assert abs(loss - protein_families.compute_expected_loss(one, [(4, 2)])) < 1e-12


def test_samples_have_the_expected_loss_and_hidden_families_cost_something():
    """Within four standard errors; who knows family and linkers as well loses no more."""
    grammar, rng = protein_families.make_grammar(), np.random.default_rng(5)
    known, unknown, sizes = [], [], []
    for protein in protein_families.sample_proteins(grammar, 150, 6):
        size = len(protein.letters_N)
        number = round(0.85 * size)  # so many masks that the family may not be recognised
        masked = np.isin(np.arange(size), rng.permutation(size)[:number])
        sizes.append((size, number))
        arguments = grammar, protein.letters_N, masked
        where = protein.family, protein.start
        known.append(protein_families.compute_bayes_losses(*arguments, where).sum())
        unknown.append(protein_families.compute_bayes_losses(*arguments).sum())
    targets = sum(number for _, number in sizes)
    expected = protein_families.compute_expected_loss(grammar, sizes)
    error = np.std(known) * len(sizes) ** 0.5 / targets
    assert error < 0.03 and abs(sum(known) / targets - expected) < 4 * error
    assert 0.01 < (sum(unknown) - sum(known)) / targets < 0.5


def test_proteins_obey_the_grammar():
    grammar = protein_families.make_grammar()
    proteins = protein_families.sample_proteins(grammar, 400, 7)
    matched, letters = [], []
    for protein in proteins:
        pairs = protein_families.list_contacts(grammar, protein)
        sites = protein_families.name_sites(grammar, protein)
        kinds = [sites.count(kind) for kind in protein_grammar.KINDS]
        assert kinds == [4, 4, 18, len(protein.text) - 26] and 36 <= len(protein.text) <= 44
        assert min(b - a for a, b in pairs) >= protein_families.LEAST_DISTANCE
        start = protein.start + grammar.motif_starts[protein.family]
        motif = protein.letters_N[start : start + 8] == grammar.motifs_KM[protein.family]
        assert motif[grammar.conserved_M == 1].all()
        matched.append(motif[grammar.conserved_M < 1].mean())
        letters += [(protein.letters_N[a], protein.letters_N[b]) for a, b in pairs]
    counts = np.zeros((20, 20))
    np.add.at(counts, tuple(np.array(letters).T), 1)
    assert abs(counts / len(letters) - grammar.joint_AA).max() < 0.02
    top = counts.max(1).sum() / len(letters)  # 0.95, and the partners that the background draws
    assert 0.93 < top < 0.98 and 0.75 < np.mean(matched) < 0.86


def test_mutations_of_key_sites_are_impossible_and_the_rank_statistic_counts_pairs():
    grammar = protein_families.make_grammar()
    protein = protein_families.sample_proteins(grammar, 1, 8)[0]
    assert isinstance(protein, MadeUpProtein)
    odds_NA = protein_grammar.compute_exact_log_odds(grammar, protein)
    sites = np.array(protein_families.name_sites(grammar, protein))
    own = np.arange(20) == protein.letters_N[:, None]
    assert (odds_NA[own] == 0).all()
    others = odds_NA[~own].reshape(-1, 19)
    assert np.isneginf(others[sites == protein_families.KEY]).all()
    paired = others[sites == protein_families.PAIRED].mean()
    assert paired < -2 < others[sites == protein_families.BACKGROUND].mean() < 2
    harmful, fine = np.array([-np.inf, -3.0, -1.0]), np.array([-1.0, 0.5, -2.0, 1.0])
    pairs = [(a < b) + (a == b) / 2 for a in harmful for b in fine]
    assert protein_grammar.compute_auc(harmful, fine) == pytest.approx(np.mean(pairs))
