"""The reliability board: its rows name tests that exist, and its page shows what was recorded."""

import xml.etree.ElementTree

import pytest

from benchmarks.reliability import board
from benchmarks.reliability.board_rows import ROWS

pytestmark = pytest.mark.fast


def test_each_row_names_tests_that_exist():
    root = board.ROOT
    for _, _, tests in ROWS.values():
        for name in tests:
            file, _, test = name.partition("::")
            assert (root / file).is_file(), file
            assert f"def {test}(" in (root / file).read_text() or not test, name


def test_the_committed_page_is_made_from_the_recorded_results():
    results, page = board.read_results(), board.BOARD.read_text()
    assert set(results) == set(ROWS)
    for number, result in results.items():
        assert (
            board.format_line(number, result, board.read_results(board.FIRST_RESULTS).get(number))
            in page.splitlines()
        )


def test_figures_are_sums_and_those_named_most_are_maxima():
    case = (
        '<testcase><properties><property name="most seconds" value="{}"/>'
        '<property name="refused" value="{}"/></properties></testcase>'
    )
    cases = [
        xml.etree.ElementTree.fromstring(case.format(*values))
        for values in (("0.5", "3"), ("0.7", "2"), ("0.1", "1"))
    ]
    _, figures = board.summarize_cases(cases, 4.0)
    assert figures == "most seconds: 0.7; refused: 6; 3 of 3 tests in 4 s"
