"""Both programs get the same batch, which the batch spec allows. Workers answer in turns, and their
end is reported.
"""

import re
import sys

import numpy as np
import pytest

from benchmarks.harness import Worker, interleave_workers, measure_peak_memory, reset_peak_memory
from benchmarks.speed import step
from benchmarks.speed.step import DEVICES, TOLERANCE, WAYS, check_losses, format_times, make_batch
from benchmarks.speed.step_cloze import make_config
from data import batch_spec
from pretrain.convert.read_write import find_converter

ECHO = """
from benchmarks.harness import answer_messages

def serve():
    seen = []
    def step(steps):
        seen.append(steps)
        print("a library's chatter")
        if steps > 9:
            raise SystemExit(3)
        return {"seen": seen}
    return {"ready": {"loss": 1.0}, "step": step}

answer_messages(serve)
"""


@pytest.mark.parametrize(
    ("device", "name"), [(device, name) for device, (cases, _) in DEVICES.items() for name in cases]
)
@pytest.mark.parametrize("length", [128, 512])
def test_the_batch_conforms_to_the_batch_spec(device, name, length):
    family, words, *rows = DEVICES[device][0][name]
    batch = make_batch(family, length, rows[length == 512])
    case = {
        "family": family,
        "model": words,
        "length": length,
        "rows": rows[length == 512],
        "compute": "float32",
    }
    run = make_config(case, {key: value.shape for key, value in batch.items()})
    batch_spec.check_batch(batch, run.data.objective, run.data.batch_size)
    if family == "t5":  # otherwise transformers applies dropout
        vocabulary = type("Vocabulary", (), {"pad": 0, "eos": 1})
        assert (
            find_converter(run.model).to_hf_config(run.model, vocabulary)["dropout_rate"]
            == run.model.dropout
            == 0
        )
    if family == "bert":
        assert (np.diff(batch["masked_positions"]) > 0).all()


def test_workers_take_turns():
    with Worker([sys.executable, "-c", ECHO]) as one, Worker([sys.executable, "-c", ECHO]) as other:
        assert one.read_answer() == other.read_answer() == {"loss": 1.0}
        found = interleave_workers({"one": one, "other": other}, 2, steps=4)
        assert found == {name: [{"seen": [4]}, {"seen": [4, 4]}] for name in ("one", "other")}
        with pytest.raises(RuntimeError, match="ended with status 3"):
            one.ask_worker(steps=10)


def test_memory_of_the_startup_does_not_count_for_the_steps():
    block = np.ones(64 << 20, np.uint8)
    held = measure_peak_memory()
    del block
    assert reset_peak_memory() > held - 1
    assert measure_peak_memory() < held - 32


@pytest.mark.parametrize("compute", TOLERANCE)
def test_losses_that_differ_are_not_of_the_same_work(compute):
    near = 10.4 * (1 + TOLERANCE[compute] / 2)
    losses = {"cloze": 10.4, "tuned": near, "compiled": 10.4}
    check_losses("bert_mini", compute, losses, TOLERANCE[compute])
    for far in (
        10.4 * (1 + 2 * TOLERANCE[compute]),
        10.4 * (1 - 2 * TOLERANCE[compute]),
        float("nan"),
    ):
        losses = {"cloze": 10.4, "compiled": near, "tuned": far}
        with pytest.raises(
            RuntimeError,
            match=f"bert_mini, {compute}: the first loss is 10.4 in Cloze and {re.escape(str(far))} in tuned",
        ):
            check_losses("bert_mini", compute, losses, TOLERANCE[compute])


FACTS = {
    "ready": {
        name: {"compile": 3.0, "flops": 4e9, "hardware": [], "versions": ["JAX 1"]}
        | {"positions": 400, "unit": "tokens"}
        for name in ("cloze", "tuned")
    },
    "ms": {"cloze": np.array([100.0, 80.0, 160.0]), "tuned": np.array([110.0, 120.0, 80.0])},
    "peak": {"cloze": 10.0, "tuned": 20.0},
    "steps": {"cloze": 5.0, "tuned": 20.0},
    "rate": 100.0,
}


def test_cells_have_median_minimum_and_maximum_and_ratios_are_per_round():
    cells = format_times(FACTS, ["tuned"])
    assert (cells["Cloze, ms"], cells["tuned, ms"]) == ("100 (80 to 160)", "110 (80 to 120)")
    assert cells["tuned / Cloze"] == "1.10 (0.50 to 1.50)"
    assert cells["Cloze, a second"] == "4,000 tokens"  # 400 in 100 ms
    assert cells["tuned, a second"] == "3,636 tokens"
    assert cells["of matmul"] == "50%"  # 4 GFLOP in 80 ms, of 100 GFLOP/s


def test_the_rate_is_the_best_of_all_rounds(monkeypatch, tmp_path):
    echo = ECHO.replace('{"loss": 1.0}', '{"loss": 1.0, "rate": 50.0, "memory": 1.0}').replace(
        '{"seen": seen}',
        '{"seconds": 0.1, "memory": 1.0, "rate": [0, 70.0, 90.0, 60.0][len(seen) - 1]}',
    )
    monkeypatch.setattr(
        step, "Worker", lambda words, environment: Worker([sys.executable, "-c", echo])
    )
    args = type("Args", (), {"device": "cpu", "ways": [], "rounds": 3, "steps": 1})
    assert step.measure_case("bert_mini", "float32", 128, args, tmp_path / "case")["rate"] == 90.0


def test_a_case_that_fails_leaves_the_rows_before_it(monkeypatch):
    written, asked = [], []

    def measure_case(name, compute, *_):
        asked.append((name, compute))
        if len(asked) == 3:
            raise RuntimeError("not the same work")
        return FACTS

    monkeypatch.setattr(step, "measure_case", measure_case)
    monkeypatch.setattr(step, "add_result", lambda page, lines: written.append((page, lines)))
    monkeypatch.setattr(sys, "argv", ["step.py", "--ways", "tuned", "--cases", "bert_mini,gpt2"])
    monkeypatch.setattr(step, "find_peers_python", lambda: sys.executable)
    with pytest.raises(RuntimeError, match="not the same work"):
        step.main()
    [(page, lines)] = written
    assert page == "step" and [line.split(" | ")[:2] for line in lines[-2:]] == [
        ["| bert_mini", "float32"],
        ["| bert_mini", "bfloat16"],
    ]
    assert (
        "It failed after 2 of 4 rows." in lines[2]
        and "--ways tuned --cases bert_mini,gpt2`" in lines[2]
    )


def test_both_sides_have_the_same_variants():
    theirs = re.search(
        r"^WAYS = (\(.*\))$",
        (step.ROOT / "benchmarks" / "speed" / "step_torch.py").read_text(),
        re.MULTILINE,
    )[1]
    assert list(WAYS) == re.findall(r'"(\w+)"', theirs)
