"""The pages of plans have one for every configuration that is for accelerators."""

import json
import pathlib

import pytest

from benchmarks.speed import plan_hashes, plans
from benchmarks.speed.plan_programs import find_file, read_program, write_program
from benchmarks.speed.plans import EXAMPLES, EXAMPLES_PAGE, PAGE, PLANS, SLICES_PAGE
from models.config.heads import HeadedConfig
from pretrain.config import load
from pretrain.plan.compile import CompiledProgram

CONFIGS = pathlib.Path(__file__).parents[3] / "configs"
FOR_A_CPU = (
    "_mnist",
    "_mnist_distilled",
    "_tiny",
    "_mini",
    "_mini_64",
    "_mini_modern",
    "_mini_fast",
)
FOR_A_CPU += ("_multi30k", "char_lstm", "words_and_pictures")
FOR_A_CPU += ("seq2seq_bahdanau", "seq2seq_luong", "seq2seq_plain")
PAPERS_TINY = {"vit_tiny"}  # ViT-Ti/16 on ImageNet; any other *_tiny is for a CPU


def read_rows(page):
    """Return {column: cell} of each row of a page's tables of plans."""
    rows, columns = [], []
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if line.startswith("| configuration |"):
            columns = cells
        elif not line.startswith("|"):
            columns = []
        elif columns and cells[0].startswith("`"):
            rows.append(dict(zip(columns, cells, strict=True)))
    return rows


@pytest.fixture(scope="module")
def rows():
    """Return the rows with all terms."""
    return read_rows(PAGE)


def test_the_pages_are_made_of_the_record(tmp_path, monkeypatch):
    """One page has all terms, one a short table for each slice, and the guide a few rows."""
    pages = {"PAGE": PAGE, "SLICES_PAGE": SLICES_PAGE, "EXAMPLES_PAGE": EXAMPLES_PAGE}
    for name in pages:
        (tmp_path / name).write_text(f"{plans.BEGIN}\n{plans.END}\n")
        monkeypatch.setattr(plans, name, tmp_path / name)
    plans.write_table(json.loads(plans.RECORD.read_text()))
    for name, committed in pages.items():
        assert (tmp_path / name).read_text().strip() in committed.read_text()
    assert len(read_rows(SLICES_PAGE)) == len(PLANS)
    assert "## v4-32 (`v4:2x2x4`, 16 chips)" in SLICES_PAGE.read_text()
    assert "| v4-32 (`v4:2x2x4`) | `bert_base` |" in EXAMPLES_PAGE.read_text()


def test_every_example_is_a_plan():
    assert set(EXAMPLES) <= set(PLANS)


def test_every_configuration_for_accelerators_is_planned(rows):
    names = {path.stem for path in CONFIGS.glob("[!_]*.py")}
    shipped = {name for name in names if not name.endswith(FOR_A_CPU)} | PAPERS_TINY
    # Encoders of words learn from labelled texts alone, in minutes on a CPU.
    shipped -= {name for name in shipped if isinstance(load(name).model, HeadedConfig)}
    assert shipped == {config for config, _, _ in PLANS}
    assert {plan.label for plan in PLANS} <= {row["configuration"] for row in rows}


def test_a_plan_is_on_the_page_once(rows):
    """A row of an earlier count is removed when the plan is made again."""
    places = [(row["configuration"], row["slice (chips)"]) for row in rows]
    assert len(places) == len(set(places)) == len(PLANS)


def test_no_plan_gathers_against_the_rules(rows):
    fitting = [row for row in rows if row["GiB a chip at the peak"] != "does not fit"]
    gathered = {row["configuration"]: row["gathered against the rules"] for row in fitting}
    assert gathered and set(gathered.values()) == {"0"}


def test_bert_large_keeps_a_bound_above_55_percent(rows):
    """The configuration has 256 rows of 512 tokens on 16 chips of v5p."""
    (mfu,) = [row["MFU at most"] for row in rows if "bert_large_512" in row["configuration"]]
    assert float(mfu.strip(" %")) > 55


def test_a_run_compiles_what_the_record_lacks_and_what_has_changed(monkeypatch, tmp_path):
    """A recorded plan counts while its program, the versions and the code that counts are the same."""
    programs, compiled = {}, []

    def compile_plan(plan, path):
        compiled.append(plan.config)
        path.touch()
        return {"date": "2026-11-25"}

    def run_it(*words):
        compiled.clear()
        monkeypatch.setattr("sys.argv", ["plans", *words])
        plans.main()
        return list(compiled)

    monkeypatch.setattr(plans, "RECORD", tmp_path / "run.json")
    monkeypatch.setattr(plans, "PLANS", [plans.Plan("a", "v4:2x2x1"), plans.Plan("b", "v4:2x2x1")])
    monkeypatch.setattr(plans, "FOLDER", tmp_path)
    monkeypatch.setattr(plans, "compile_plan", compile_plan)
    monkeypatch.setattr(plans, "hash_program", lambda config, *_: programs.get(config, "first"))
    for name in ("format_row", "write_table"):
        monkeypatch.setattr(plans, name, lambda *_: "")
    monkeypatch.setattr("pretrain.plan.topology.configure_environment", lambda: None)
    monkeypatch.setattr("jax.config.update", lambda *_: None)
    assert run_it() == ["a", "b"]
    assert run_it() == []
    programs["b"] = "second"
    assert run_it() == ["b"]
    monkeypatch.setattr(plans, "hash_counting", lambda: "other code")
    assert run_it() == ["a", "b"]
    programs["a"] = "third"
    assert run_it("--compiled") == []
    assert list(json.loads((tmp_path / "run.json").read_text())["plans"]) == [
        "b --topology v4:2x2x1"
    ]


def test_a_compiled_program_is_read_as_it_was_written(tmp_path):
    """Programs for slices of different chips may come from the same text."""
    program = CompiledProgram(1.5, {"peak": 3}, "HloModule m", warnings=("one",))
    versions = {"libtpu": "1"}
    path = find_file(tmp_path / "new", "abc", "v5e:4x4", versions)
    assert read_program(path) is None
    write_program(path, program)
    assert read_program(path) == program
    assert [other.name for other in path.parent.iterdir()] == [path.name]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=f"{path} is damaged .*: delete it"):
        read_program(path)
    others = [("abd", "v5e:4x4", "1"), ("abc", "v5p:4x4x1", "1"), ("abc", "v5e:4x4", "2")]
    paths = {find_file(path.parent, *one[:2], {"libtpu": one[2]}) for one in others}
    assert len(paths | {path}) == 4


def test_the_hash_of_the_counting_code_changes_with_it(monkeypatch):
    first = plan_hashes.hash_counting()
    assert plan_hashes.hash_counting() == first
    monkeypatch.setattr("pretrain.plan.estimate.compute_bounds", lambda: None)
    second = plan_hashes.hash_counting()
    monkeypatch.setattr(plan_hashes, "COUNTING", plan_hashes.COUNTING[1:])
    assert len({first, second, plan_hashes.hash_counting()}) == 3
