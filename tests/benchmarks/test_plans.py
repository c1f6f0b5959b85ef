"""docs/pods.md has a plan for every configuration that is for accelerators."""

import pathlib

import pytest

from benchmarks.plans import BEGIN, END, PAGE, PLANS

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
FOR_A_CPU = ("_tiny", "_mini", "_mini_64", "_multi30k")


@pytest.fixture(scope="module")
def rows():
    """Return the cells of each row of the page's table."""
    page = PAGE.read_text()
    table = page[page.index(BEGIN) : page.index(END)].splitlines()
    return [
        [cell.strip() for cell in row.split("|")[1:-1]] for row in table if row.startswith("| `")
    ]


def test_every_configuration_for_accelerators_is_planned(rows):
    shipped = {path.stem for path in CONFIGS.glob("[!_]*.py") if not path.stem.endswith(FOR_A_CPU)}
    assert shipped == {config for config, _, _ in PLANS}
    assert {
        config for config in shipped if not any(row[0].startswith(f"`{config}") for row in rows)
    } == set()


def test_no_plan_gathers_against_the_rules(rows):
    fitting = [row for row in rows if "does not fit" not in row[3]]
    assert fitting and [row[0] for row in fitting if row[-2] != "0"] == []


def test_bert_large_keeps_a_bound_above_55_percent(rows):
    """The configuration has 256 rows of 512 tokens on 16 chips of v5p."""
    (mfu,) = [row[7] for row in rows if "bert_large_512" in row[0]]
    assert float(mfu.strip(" %")) > 55
