"""Which cases of a promise `launch.sh test` runs; `launch.sh test all` runs each."""

import pytest


def mark_more(items, is_tier):
    """Mark as `more` the cases of a parametrised test that its marker `held_by` does not choose.

    `held_by("bert", "t5")` chooses the cases with one of these ids, or with it as a part;
    `held_by(2)` chooses the first two. `launch.sh test` runs them, `launch.sh test all` each case.
    """
    by_test = {}
    for item in items:
        if item.get_closest_marker("held_by") and hasattr(item, "callspec"):
            by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test, cases in by_test.items():
        names = cases[0].get_closest_marker("held_by").args
        if isinstance(names[0], int):
            further = cases[names[0] :]
        else:
            further = [
                case
                for case in cases
                if not {case.callspec.id, *case.callspec.id.split("-")} & {*names}
            ]
        if is_tier and len(further) == len(cases):
            raise pytest.UsageError(f"{test}: no case has one of the names of held_by{names}")
        for case in further:
            case.add_marker(pytest.mark.more)


def is_left_out(marks, markexpr):
    """Return whether an expression of `-m` such as "not slow and not more" leaves out tests with
    these markers.
    """
    parts = markexpr.split(" and ")
    return any(f"not {mark}" in parts for mark in marks)
