"""What all benchmarks share is declared in harness.py alone."""

import pytest

from benchmarks.harness import CACHE, ROOT
from benchmarks.speed.plan_programs import FOLDER

pytestmark = pytest.mark.fast
SOURCES = {path.name: path.read_text() for path in (ROOT / "benchmarks").rglob("*.py")}
# A plan's hash is of this file as it is.
APART = {"harness.py", "plan_hashes.py"}


def test_the_root_is_declared_once():
    """Programs that are started by path need it before they can import."""
    found = {
        name
        for name, text in SOURCES.items()
        if "\nROOT = " in text and "sys.path.insert" not in text
    }
    assert found == APART


@pytest.mark.parametrize("words", ["def get_processor_name", "/proc/cpuinfo", "os.cpu_count()"])
def test_processors_and_cores_are_found_in_one_way(words):
    assert {name for name, text in SOURCES.items() if words in text} <= {"harness.py"}


def test_programs_of_plans_are_in_the_cache():
    assert FOLDER == CACHE / "plans" and "Path.home" not in SOURCES["plan_programs.py"]
