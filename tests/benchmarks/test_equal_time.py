"""Models that are pretrained for equal time: their rates, and steps in proportion to them."""

import json

import pytest

from benchmarks import equal_time
from benchmarks.equal_time import EqualTime

pytestmark = pytest.mark.fast


def list_words(name, steps):
    return [name, f"train.steps={steps}"]


@pytest.mark.parametrize("rows", [[], [(3.0, 10, 5.0)], [(3.0, 10, 5.0), (3.0, 20, 5.0)]])
def test_a_speed_that_cannot_be_measured_asks_for_more_time(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(equal_time, "take_turns", lambda *_: {"elmo": rows})
    with pytest.raises(RuntimeError, match="elmo did not .* give --measure above 2"):
        EqualTime(tmp_path, list_words, "bert").measure_rates(["elmo"], 2.0)


def test_steps_follow_rates_and_a_reference_stays(tmp_path, monkeypatch):
    asked = []

    def measure_rates(self, names, seconds):
        asked.append(names)
        return {"bert": 2.0 / len(asked), "ettin": 1.0, "elmo": 3.0}

    monkeypatch.setattr(EqualTime, "measure_rates", measure_rates)
    trainings = EqualTime(tmp_path, list_words, "bert")
    assert trainings.find_steps(["ettin"], 10, 60) == {"bert": 1200, "ettin": 600}
    # a machine that is half as fast now trains the new model for as long as the reference
    assert trainings.find_steps(["elmo"], 10, 60) == {"bert": 1200, "ettin": 600, "elmo": 3600}
    assert asked == [["bert", "ettin"], ["bert", "elmo"]]
    assert json.loads((tmp_path / "steps.json").read_text())["elmo"] == 3600
