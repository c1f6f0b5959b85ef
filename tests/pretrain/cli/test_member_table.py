"""The table of docs/adding_an_objective.md has what the base class of objectives declares."""

import inspect
import pathlib
import re

import pytest

from data.objectives.objective import Objective, ObjectiveDefaults
from pretrain.__main__ import main
from pretrain.cli.member_table import MARKER, format_members, list_members

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "adding_an_objective.md"
DECLARED = [
    name
    for kind in (Objective, ObjectiveDefaults)
    for name in {**kind.__annotations__, **vars(kind)}
    if not name.startswith("_")
]


def test_the_table_of_the_page_is_current():
    _, marker, text = PAGE.read_text().partition(MARKER)
    assert marker and text.strip() == format_members().strip(), (
        "run: python -m pretrain describe --members --page docs/adding_an_objective.md"
    )


def test_every_member_is_listed_once_with_its_meaning():
    members = {member.name: member for member in list_members(Objective)}
    assert len(DECLARED) > 30 and sorted(members) == sorted(set(DECLARED))
    assert [name for name, member in members.items() if not member.meaning] == []
    assert members["repeats"].default == "1" and members["joins_texts"].default == "false"
    assert members["make_rows"].shown == "make_rows(split, vocabulary)"


def test_members_without_a_default_are_required():
    required = {member.name for member in list_members(Objective) if member.is_required}
    assert required == {"name", "description"} | Objective.__abstractmethods__
    for name in Objective.__abstractmethods__:
        assert inspect.isfunction(getattr(Objective, name))


def test_a_subclass_has_the_members_it_declares_and_those_it_inherits():
    class Echo(Objective):
        rows = "documents"
        seen: int = 3  # how often a text is repeated

    members = {member.name: member for member in list_members(Echo)}
    assert members["seen"].meaning == "how often a text is repeated"
    assert members["rows"].default == "documents" and members["rows"].meaning
    assert members.keys() == {*DECLARED, "seen"}


def test_the_members_are_printed_or_written_to_a_page(capsys, tmp_path):
    assert main(["describe", "--members"]) == 0
    assert re.search(r"^  repeats \(default 1\)$", capsys.readouterr().out, re.MULTILINE)
    page = tmp_path / "page.md"
    page.write_text(f"by hand\n{MARKER}\nold")
    assert main(["describe", "--members", "--page", str(page)]) == 0
    assert page.read_text() == f"by hand\n{MARKER}\n\n{format_members()}"


@pytest.mark.parametrize("extra", ["bert_tiny", "--fields", "--list", "--json"])
def test_members_stand_alone(extra, capsys):
    assert main(["describe", "--members", extra]) == 2
    assert f"leave {extra} out" in capsys.readouterr().err
