"""docs/claims.md: each of our figures is on the results page that its row names."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "claims.md"
LINK = re.compile(r"\[([^\]]+)\]\((\.\./benchmarks/results/[\w./]+\.md)\)")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def test_our_figures_are_those_of_the_results():
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    checked = 0
    for _, paper, _, _, ours, shown, _ in rows:
        links = LINK.findall(ours)
        assert links and shown.strip(), f"{paper}: a figure, its page, and whether it shows"
        for text, target in links:
            measured = set(NUMBER.findall((PAGE.parent / target).read_text()))
            figures = [one for one in NUMBER.findall(text) if "." in one or "," in one]
            missing = [figure for figure in figures if figure not in measured]
            assert figures and not missing, f"{paper}: {target} lacks {missing or text}"
            checked += len(figures)
    assert checked > 40
