"""The packing benchmark compares one model with rows of one length, and its ratio is of real tokens
per second.
"""

import dataclasses

import pytest

from benchmarks.speed.packing import MODEL, WAYS, format_table, make_config


def test_the_two_differ_in_their_rows_alone():
    case = {"length": 64, "rows": 8, "store": "none", "model": MODEL}
    padded, packed = (make_config(case | {"way": way}) for way in WAYS)
    assert (padded.data.objective.rows, packed.data.objective.rows) == WAYS
    objective = dataclasses.replace(padded.data.objective, rows="packed")
    assert (
        dataclasses.replace(padded, data=dataclasses.replace(padded.data, objective=objective))
        == packed
    )


@pytest.mark.parametrize(("seconds", "ratio"), [(1.0, "4.00"), (2.0, "2.00")])
def test_the_ratio_is_of_real_tokens_a_second(seconds, ratio):
    ready = {"documents": {"epoch": 400, "real": 0.25}, "packed": {"epoch": 100, "real": 1.0}}
    found = {
        "documents": [{"seconds": 1.0, "tokens": 250}] * 3,
        "packed": [{"seconds": seconds, "tokens": 1000}] * 3,
    }
    *_, last = format_table(ready, found, steps=4)
    assert f"| 100.0% | {seconds * 250:,.0f} " in last and last.split("|")[-2].startswith(
        f" {ratio} "
    )
