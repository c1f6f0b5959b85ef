"""The minimal pairs of templates: balanced, different, reproducible, and scored by `score`."""

import collections
import re

import pytest

from benchmarks.papers.minimal_pairs import GROUPS, make_pairs, make_plural
from pretrain.inference.scoring.minimal_pairs import find_fields, make_pair


def test_pairs_differ_in_one_word_or_in_the_order_of_two():
    pairs = make_pairs(100)
    assert collections.Counter(pair["group"] for pair in pairs) == dict.fromkeys(GROUPS, 100)
    assert len({(pair["good"], pair["bad"]) for pair in pairs}) == len(pairs)
    assert not {pair["good"] for pair in pairs} & {pair["bad"] for pair in pairs}
    for pair in pairs:
        good, bad = pair["good"].split(), pair["bad"].split()
        changed = [i for i, words in enumerate(zip(good, bad, strict=True)) if len({*words}) > 1]
        if pair["group"] == "order of negation":
            assert len(changed) == 2 and sorted(good) == sorted(bad)
        else:
            assert len(changed) == 1
        fields = find_fields(pair, None, None)
        assert fields and make_pair(pair, "line 1", fields, None).group == pair["group"]


def test_no_word_alone_decides_a_group_of_agreement():
    """Each form is the good one about as often as the bad one, so its frequency is no help."""
    pairs = [pair for pair in make_pairs(200) if "agreement" in pair["group"]]
    for group in {pair["group"] for pair in pairs}:
        good = collections.Counter()
        for pair in pairs:
            if pair["group"] == group:
                words = [set(re.findall(r"\w+", pair[side])) for side in ("good", "bad")]
                good.update(word.endswith("s") for word in words[0] - words[1])
        assert 60 <= good[True] <= 140


def test_the_same_seed_has_the_same_pairs():
    assert make_pairs(20, seed=3) == make_pairs(20, seed=3) != make_pairs(20, seed=4)
    assert make_pairs(10, seed=3)[:10] == make_pairs(20, seed=3)[:10]
    with pytest.raises(ValueError, match="--each 2000: .* has about"):
        make_pairs(2_000)


def test_plurals():
    nouns = ("boy", "lady", "church", "gentleman", "wife", "house")
    assert [make_plural(noun) for noun in nouns] == [
        *("boys", "ladies", "churches", "gentlemen", "wives", "houses")
    ]
