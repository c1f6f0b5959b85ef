"""The result pages are made from the JSON results, newest run first."""

import json

import pytest

from benchmarks import results_pages
from benchmarks.results_pages import RESULTS, add_result, format_page, parse_result

SECTION = [
    "## 2026-11-20, one machine, 2 cores",
    "",
    "`python -m benchmarks.sleep`: seconds.",
    "",
    "| sleep | seconds |",
    "|---|---|",
    "| short | 1.0 |",
    "| none |  |",
]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_page_agrees_with_its_results(path):
    page = path.with_suffix(".md").read_text()
    results = json.loads(path.read_text())
    assert page == format_page(results)
    dates = [result["date"] for result in results["results"]]
    assert dates == sorted(dates)


# Single runs and claims, written by hand, and pages that have a record of their own.
WITHOUT_RESULTS = {
    "clusters", "downstream", "gpu_bits", "image_runs", "install", "ledger", "long_row_runs",
    "lstm_runs", "music", "plans", "plans_by_slice", "reliability", "speed_details",
    "unknown_tokens",
}  # fmt: skip


def test_every_page_has_its_results():
    pages = {path.stem for path in RESULTS.glob("*.md")}
    assert pages - WITHOUT_RESULTS == {path.stem for path in RESULTS.glob("*.json")}
    assert pages >= WITHOUT_RESULTS


def test_a_summary_has_the_newest_cells_of_each_case_and_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results_pages, "RESULTS", tmp_path)
    table = ["| model | ms | ratio |", "|---|---|---|"]
    for date, machine, row in (
        ("2026-11-20", "AMD, 2 cores, load 1", "| a | 9 (8 to 9) | 1.5 |"),
        ("2026-11-21", "AMD, 2 cores, load 3", "| a | 7 |  |"),
        ("2026-11-21", "Intel, 16 cores, load 3, NVIDIA H100", "| a | 1 | 1.2 |"),
    ):
        add_result("speed", [f"## {date}, {machine}", "", *table, row], "Speed")
    page = results_pages.read_page("speed")
    page["summary"] = {"case": ["model"], "columns": ["ms", "ratio"]}
    assert results_pages.summarise(page)["rows"] == [
        ["a", "7", "1.5", "AMD, 2 cores", "2026-11-21"],
        ["a", "1", "1.2", "Intel, 16 cores, NVIDIA H100", "2026-11-21"],
    ]
    text = format_page(page)
    assert text.index("## Newest of each case") < text.index("## History")
    assert text.count("<details>") == 3


def test_the_newest_result_comes_first_and_the_others_are_folded(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results_pages, "RESULTS", tmp_path)
    add_result("sleep", SECTION, "How long a sleep takes")
    newer = [SECTION[0].replace("20,", "21,"), *SECTION[1:-2], "| short | 0.5 |"]
    add_result("sleep", newer)
    assert "0.5" in capsys.readouterr().out
    text = (tmp_path / "sleep.md").read_text()
    assert text.startswith("# How long a sleep takes\n\n## 2026-11-21, one machine")
    recent, history = text.split("## History")
    assert "| short | 0.5 |" in recent and "| short | 1.0 |" not in recent
    assert "<details>\n<summary>2026-11-20, one machine, 2 cores</summary>" in history
    assert "\n".join(SECTION[4:]) in history
    assert not list(tmp_path.glob("*.partial"))


def test_a_table_is_preserved_cell_by_cell():
    result = parse_result(SECTION)
    assert result["environment"] == "one machine, 2 cores"
    assert result["blocks"] == [
        "`python -m benchmarks.sleep`: seconds.",
        {"columns": ["sleep", "seconds"], "rows": [["short", "1.0"], ["none", ""]]},
    ]


def test_a_result_without_a_date_is_refused():
    with pytest.raises(ValueError, match="begins with '## DATE, MACHINE"):
        parse_result(["# Sleep", "", "1.0"])


def list_cases(result):
    """Return {(first column of a table, first cell of a row)} of a result."""
    tables = [block for block in result["blocks"] if not isinstance(block, str)]
    return {(table["columns"][0], row[0]) for table in tables for row in table["rows"]}


@pytest.mark.parametrize(
    "path", sorted(results_pages.RESULTS.glob("*.json")), ids=lambda one: one.stem
)
def test_a_page_opens_with_the_newest_of_each_case(path):
    """Either the newest run has all cases that were run again, or a summary has them."""
    page = results_pages.read_page(path.stem)
    *older, newest = page["results"]
    runs = [list_cases(one) for one in older]
    repeated = {case for i, cases in enumerate(runs) for case in cases & set().union(*runs[:i])}
    if repeated - list_cases(newest):
        assert "summary" in page
    if "summary" in page:
        assert results_pages.summarise(page)["rows"]
    assert path.with_suffix(".md").read_text() == format_page(page)
