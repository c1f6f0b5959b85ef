"""Row 1, on the board only (the suite kills BERT and T5 twice each,
tests/pretrain/training/test_loop.py): a killed run ends with the same bits.
"""

import random
import signal

import pytest

from pretrain.workdir import metrics_file
from tests.fingerprints import read_fingerprints

TIMED = ("seconds", "tokens_per_second", "wait", "device")


def read_losses(workdir):
    """Return each row's step and all its values that are not times."""
    return [
        {key: value for key, value in row.items() if not any(word in key for word in TIMED)}
        for row in metrics_file.read_metrics(workdir / "metrics.jsonl")
    ]


@pytest.fixture(scope="module", params=["bert", "t5", "gpt"])
def undisturbed(whole, request, configured, command, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    done = command("train", configured(request.param)[0], "--workdir", workdir)
    assert done.returncode == 0, done.stderr
    return request.param, workdir


def draw_moments(name):
    """Kill the run five times, at steps that depend on the model's name only."""
    rng = random.Random(f"killed {name}")
    return {
        "compile": "compile",
        "step": f"step:{rng.randint(2, 11)}",
        "evaluate": "evaluate:6",
        "saved": f"saved:{rng.choice((4, 8))}",
        "last": "last:12",
    }


@pytest.mark.held_by(2)
@pytest.mark.parametrize("moment", ["compile", "step", "evaluate", "saved", "last"])
def test_a_killed_run_ends_with_the_same_bits(
    undisturbed, configured, command, tmp_path, record_property, moment
):
    name, expected = undisturbed
    words = ("train", configured(name)[0], "--workdir", tmp_path / "run")
    assert command(*words, fault=f"kill:{draw_moments(name)[moment]}").returncode == -signal.SIGKILL
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert read_losses(tmp_path / "run") == read_losses(expected)
    assert [row["step"] for row in read_losses(tmp_path / "run")] == list(range(1, 13))
    assert read_fingerprints(tmp_path / "run", 12) == read_fingerprints(expected, 12)
    record_property("killed and ended with the same bits", 1)
