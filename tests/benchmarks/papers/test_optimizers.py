"""The search for a peak of the learning rate, and the steps to a loss."""

import pytest

from benchmarks.papers.optimizers import MAX_DOUBLINGS, Score, find_steps, format_rows, search_rate

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("best", [0.25, 1.0, 4.0])
def test_the_best_rate_is_between_two_worse(best):
    tried = []

    def score(rate):
        tried.append(rate)
        return abs(rate - best) / best

    assert search_rate(1.0, score) == best
    assert {best / 2, best, best * 2} <= set(tried)
    assert len(tried) == len(set(tried)) <= 5


def test_a_search_that_only_improves_ends():
    assert search_rate(1.0, lambda rate: -rate) == 2.0**MAX_DOUBLINGS


def test_steps_are_read_off_the_line_between_two_runs():
    points = [(100, 5.0), (150, 4.0), (200, 3.0)]
    assert find_steps(points, 3.5) == 175
    assert find_steps(points, 4.0) == 150
    assert find_steps(points, 5.5) is None and find_steps(points, 2.9) is None


def test_a_table_has_shares_of_steps_and_of_time():
    scores = {
        "adamw": Score(1e-3, [4.0, 4.2], []),
        "muon": Score(2e-3, [3.9, 3.9], [(50, 4.5), (75, 4.1)]),
        "stableadamw": Score(1e-3, [4.5, 4.5], [(50, 4.9)]),
        "lion": Score(1e-4, [3.0, 3.0], [(50, 4.0)]),
    }
    rates = {"adamw": 4.0, "muon": 3.2, "stableadamw": 4.0, "lion": 5.0}
    cells = [line.split(" | ") for line in format_rows(scores, 100, rates, 4.1)[2:]]
    assert [line[4:] for line in cells] == [
        ["1", "1.00", "1 |"],
        ["0.75", "1.25", "0.94 |"],
        ["more than 1.00", "1.00", "more than 1.00 |"],
        ["at most 0.50", "0.80", "at most 0.40 |"],
    ]
