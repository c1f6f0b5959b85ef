"""The members of a sweep are every combination of the listed values, with names of their own."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.settings.grid import list_members, read_choices, shorten_paths
from pretrain.settings.overrides import ConfigError
from pretrain.settings.sweep_options import list_choices

LISTED = {
    "optimizer.learning_rate": ["1e-4", "3e-4"],
    "train.seed": ["0", "1", "2"],
    "train.steps": ["9"],
}
ARGUMENTS = [f"{path}={','.join(values)}" for path, values in LISTED.items()]


def test_members_are_all_combinations_named_by_what_varies():
    members = list_members(ARGUMENTS)
    assert list(members) == [
        f"learning_rate={rate},seed={seed}" for rate in ("1e-4", "3e-4") for seed in "012"
    ]
    assert members["learning_rate=3e-4,seed=1"] == [
        "optimizer.learning_rate=3e-4",
        "train.seed=1",
        "train.steps=9",
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("(1,2),(3,4)", ["1,2", "3,4"]),
        ("[(1,2),(3,)]", ["(1,2),(3,)"]),
        ("(1,2)", ["1,2"]),
        ("(1),(2)", ["1", "2"]),
        ("()", ["()"]),
        ("a, b", ["a", "b"]),
        ("", [""]),
        (")a,b(", [")a", "b("]),
    ],
)
def test_a_value_with_commas_is_put_in_brackets(text, values):
    assert read_choices([f"data.a={text}"]) == {"data.a": values}


@given(st.integers(1, 6), st.integers(0, 9))
def test_a_draw_has_so_many_different_combinations_of_the_whole(number, seed):
    everything, drawn = list_members(ARGUMENTS), list_members(ARGUMENTS, number, seed)
    assert len(drawn) == number
    assert drawn.items() <= everything.items()
    assert drawn == list_members(ARGUMENTS, number, seed)


def test_draws_of_other_seeds_differ_and_reach_all_combinations():
    draws = [next(iter(list_members(ARGUMENTS, 1, seed))) for seed in range(100)]
    assert set(draws) == set(list_members(ARGUMENTS))


def test_a_path_is_shortened_as_far_as_it_is_its_own():
    paths = ["data.objective.rate", "optimizer.rate", "train.seed", "seed"]
    assert [*shorten_paths(paths).values()] == [
        "objective.rate",
        "optimizer.rate",
        "train.seed",
        "seed",
    ]


def test_names_are_short_folders_that_differ():
    values = ["/a/b", "/a:b", "../..", "x" * 200, "x" * 201, "é"]
    members = list_members([f"data.store={','.join(values)}"])
    assert len(members) == len(values)
    for name, overrides in members.items():
        assert "/" not in name and not name.startswith(".") and len(name.encode()) < 120
        assert overrides[0].partition("=")[2] in values


@pytest.mark.parametrize(
    ("arguments", "number", "message"),
    [
        (["train.steps=9"], None, "needs a field with several values"),
        ([], None, "needs a field with several values"),
        (["a=1,2", "a=3,4"], None, "a is given twice"),
        (["a=1,2,1"], None, "1 is listed twice"),
        (["a=1,2"], 3, "--random 3: the sweep has 2 combinations"),
        (["a=1,2"], 0, "--random 0"),
        ([f"a={','.join(map(str, range(40)))}", f"b={','.join(map(str, range(40)))}"], None, "1,600 members"),
        (["a"], None, "not of the form path=value"),
    ],
)  # fmt: skip
def test_a_wrong_sweep_is_refused(arguments, number, message):
    with pytest.raises(ConfigError, match=message):
        list_members(arguments, number)


def test_python_lists_are_the_values_and_tuples_one_value():
    given = {"a.rate": [1e-4, 3e-4], "b.sizes": [(1, 2), (3, 4)], "c.names": ("x", "y"), "d": 3}
    assert read_choices(list_choices(given)) == {
        "a.rate": ["0.0001", "0.0003"],
        "b.sizes": ["1, 2", "3, 4"],
        "c.names": ["'x', 'y'"],
        "d": ["3"],
    }


def test_the_number_of_members_is_the_product():
    assert len(list_members(ARGUMENTS)) == math.prod(map(len, LISTED.values()))
