"""Tables of names that nothing imports until a run needs them: each name leads to its member."""

import inspect

import pytest

from data.members import FolderMembers, import_member
from data.objectives import OBJECTIVES
from data.store.kinds import KINDS, find_store_class
from data.store.reader import Store


@pytest.mark.parametrize("name", OBJECTIVES)
def test_inspection_has_the_functions_that_an_objective_names(name):
    objective = OBJECTIVES[name]
    for member, *last in (
        (objective.checks, "batches", "token_id"),
        (objective.rendering, "inspected", "i"),
    ):
        if member:
            names = list(inspect.signature(import_member(f"data.inspection.{member}")).parameters)
            assert names[:3] == ["stream", *last]


def test_every_kind_of_store_is_found():
    for entry, member in KINDS.items():
        kind = find_store_class({entry: None})
        assert kind is import_member(member) and issubclass(kind, Store)
    assert find_store_class({"sources": []}) is Store


def test_a_name_that_leads_nowhere_is_an_error():
    with pytest.raises(AttributeError):
        import_member("data.inspection.rendering:render_nothing")
    with pytest.raises(ModuleNotFoundError):
        import_member("data.inspection.nothing:render_tokens")


def test_a_look_up_imports_one_file(tmp_path):
    for name in ("one_member", "other", "helper"):
        (tmp_path / f"{name}.py").write_text("")
    loaded = []

    def load(file):
        loaded.append(file)
        return None if file == "helper" else file.title().replace("_", "") + "Config"

    members = FolderMembers([str(tmp_path)], load, lambda name: name, suffix="Config")
    assert members["OneMemberConfig"] == "OneMemberConfig" and loaded == ["one_member"]
    assert members.find("onememberconfig") == "OneMemberConfig" and "absent" not in members
    assert members.get("onememberconfig") is None and members.get("helper") is None
    assert "other" not in loaded and [*members] == ["OneMemberConfig", "OtherConfig"]
    assert len(members) == 2
