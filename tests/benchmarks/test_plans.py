"""Every configuration that is for accelerators has a plan in docs/pods.md."""

import pathlib

from benchmarks.plans import BEGIN, END, PAGE, PLANS

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
FOR_A_CPU = ("_tiny", "_mini", "_mini_64", "_multi30k")


def test_every_configuration_for_accelerators_is_planned():
    shipped = {path.stem for path in CONFIGS.glob("[!_]*.py") if not path.stem.endswith(FOR_A_CPU)}
    assert shipped == {config for config, _, _ in PLANS}
    page = PAGE.read_text()
    rows = page[page.index(BEGIN) : page.index(END)]
    assert {config for config in shipped if f"| `{config}" not in rows} == set()


def test_no_plan_gathers_against_the_rules():
    """BERT-large at 256 rows of 512 keeps a bound above 55 % on 16 chips of v5p."""
    page = PAGE.read_text()
    rows = [row.split("|") for row in page[page.index(BEGIN) : page.index(END)].splitlines() if row.startswith("| `")]
    fitting = [row for row in rows if "does not fit" not in row[4]]
    assert fitting and all(row[-3].strip() == "0" for row in fitting)
    (mfu,) = [row[8] for row in rows if "bert_large_512" in row[1]]
    assert float(mfu.strip(" %")) > 55
