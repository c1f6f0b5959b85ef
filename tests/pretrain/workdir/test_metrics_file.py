"""metrics.jsonl has one row per step after any interruption, and TensorBoard has the same numbers."""

import importlib
import itertools
import json
import time
from unittest.mock import Mock

import pytest

from pretrain.workdir import environment_file, metrics_file, samples_file
from pretrain.workdir.event_file import frame_record
from pretrain.workdir.metrics_file import MetricsLog, ProgressLine, read_metrics


def make_row(step, **more):
    return {"step": step, "loss": 1.0 / step, "tokens_per_second": 10.0, **more}


def test_rows_read_back(tmp_path):
    log = MetricsLog(tmp_path, 0)
    for step in (1, 2, 3):
        log.write_row(make_row(step))
    log.close()
    assert read_metrics(tmp_path / "metrics.jsonl") == [make_row(1), make_row(2), make_row(3)]


def test_non_finite_values_are_null_in_json(tmp_path):
    log = MetricsLog(tmp_path, 0)
    log.write_row(make_row(1, gradient_norm=float("nan"), loss_scale=float("inf"), skipped=1.0))
    log.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text
    assert read_metrics(tmp_path / "metrics.jsonl") == [
        make_row(1, gradient_norm=None, loss_scale=None, skipped=1.0)
    ]


def test_a_restart_drops_what_is_done_again_and_a_line_cut_by_a_crash(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        "".join(json.dumps(make_row(step)) + "\n" for step in (1, 2, 3, 4)) + '{"step": 5, "lo'
    )
    log = MetricsLog(tmp_path, 2)
    log.write_row(make_row(3, heldout_loss=0.5))
    log.close()
    assert [one["step"] for one in read_metrics(path)] == [1, 2, 3]
    assert read_metrics(path)[-1]["heldout_loss"] == 0.5


def test_a_bucket_gets_all_rows_at_each_sync_and_none_is_formatted_twice(monkeypatch):
    """Object stores cannot append, and a run may have millions of rows."""
    event_files = "tensorboard.summary.writer.event_file_writer.EventFileWriter"
    monkeypatch.setattr(event_files, lambda folder: Mock())
    earlier, written, formatted = [make_row(1), make_row(2), make_row(3)], [], []
    monkeypatch.setattr(metrics_file, "mend_step_lines", lambda path: earlier)
    monkeypatch.setattr(metrics_file, "write_atomically", lambda path, text: written.append(text))
    log = MetricsLog("gs://nowhere/run", 2)
    log.write_row(make_row(3, loss=float("nan")))
    monkeypatch.setattr(
        json, "dumps", lambda value, dumps=json.dumps, **how: formatted.append(1) or dumps(value)
    )
    log.sync()
    log.write_row(make_row(4))
    log.close()
    steps = [[json.loads(line)["step"] for line in text.splitlines()] for text in written]
    assert steps == [[1, 2, 3], [1, 2, 3, 4]] and written[1].startswith(written[0])
    assert json.loads(written[1].splitlines()[2]) == make_row(3, loss=None)
    assert len(formatted) == 1  # of step 4


DAMAGE = (b"\0" * 40, b'{"step": 9', b"[1]", b'{"step": "2"}', b"\xff\xfe", b"", b"[" * 100_000)


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda line: repr(line[:12]))
@pytest.mark.parametrize("name", ["metrics.jsonl", "samples.jsonl", "environment.jsonl"])
def test_damaged_lines_are_dropped_counted_and_copied(tmp_path, capsys, name, damage):
    path = tmp_path / name
    lines = [json.dumps({**make_row(step), "samples": []}).encode() for step in (1, 2, 3)]
    raw = b"\n".join([lines[0], damage, lines[1], lines[2], damage]) + b"\n"
    path.write_bytes(raw)
    reader = {
        "metrics.jsonl": lambda: read_metrics(path),
        "samples.jsonl": lambda: samples_file.read_samples(path),
        "environment.jsonl": lambda: environment_file.read_starts(tmp_path),
    }[name]
    assert [row["step"] for row in reader()] == [1, 2, 3]
    assert f"{name}: 2 damaged lines are left out, 3 are read" in capsys.readouterr().err
    assert path.read_bytes() == raw
    if name == "metrics.jsonl":
        MetricsLog(tmp_path, 2).close()
    elif name == "samples.jsonl":
        samples_file.add_samples(path, {"step": 3, "samples": []})
    else:
        environment_file.mend_step_lines(path)
    assert f"{name}: 2 damaged lines are dropped, 3 stay" in capsys.readouterr().err
    assert (tmp_path / "damaged" / name).read_bytes() == raw
    if name != "environment.jsonl":
        assert len(reader()) == {"metrics.jsonl": 2, "samples.jsonl": 3}[name]
        assert not capsys.readouterr().err


def test_numbers_that_no_float_holds_are_read_as_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "loss": NaN, "a": 1e999, "b": -Infinity, "c": 1' + "0" * 400 + "}\n"
    )
    assert read_metrics(path) == [{"step": 1} | dict.fromkeys(("loss", "a", "b", "c"))]


def test_tensorboard_has_the_scalars(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    log = MetricsLog(tmp_path, 0)
    log.write_row(make_row(7))
    log.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    seen = {
        value.tag: (event.step, value.tensor.float_val[0])
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    }
    assert seen["loss"] == (7, pytest.approx(1 / 7))
    assert "step" not in seen


def test_records_are_those_of_tensorboards_own_writer(tmp_path):
    from tensorboard.summary.writer.record_writer import RecordWriter

    for data in (b"", b"\0", bytes(range(256)) * 9):
        with open(tmp_path / "record", "wb") as file:
            RecordWriter(file).write(data)
        assert frame_record(data) == (tmp_path / "record").read_bytes()


def test_each_event_is_in_the_file_at_once(tmp_path):
    """TensorBoard follows a run, and a killed one loses no event."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    log = MetricsLog(tmp_path, 0)
    (path,) = (tmp_path / "tensorboard").iterdir()
    for step in (1, 2):
        log.write_row(make_row(step))
        assert [event.step for event in EventFileLoader(str(path)).Load()][-1] == step
    log.close()


def test_tensorboard_forgets_repeated_steps(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.compat.proto.event_pb2 import SessionLog

    MetricsLog(tmp_path, 0).close()
    (first,) = (tmp_path / "tensorboard").iterdir()
    MetricsLog(tmp_path, 2).close()
    (second,) = set((tmp_path / "tensorboard").iterdir()) - {first}
    starts = [
        [
            event.step
            for event in EventFileLoader(str(path)).Load()
            if event.session_log.status == SessionLog.START
        ]
        for path in (first, second)
    ]
    assert starts == [[1], [3]]


@pytest.mark.parametrize("reader", ["event_accumulator", "plugin_event_accumulator"])
def test_tensorboard_has_each_step_once_after_a_restart(tmp_path, reader):
    module = importlib.import_module(f"tensorboard.backend.event_processing.{reader}")
    for start, steps in ((0, (1, 2, 3)), (2, (3, 4)), (3, (4, 5))):
        log = MetricsLog(tmp_path, start)
        for step in steps:
            log.write_row(make_row(step))
        log.close()
    seen = module.EventAccumulator(str(tmp_path / "tensorboard"))
    seen.Reload()
    events = seen.Scalars("loss") if hasattr(seen, "Scalars") else seen.Tensors("loss")
    assert [event.step for event in events] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("step_of_clock", [0, -1000])
def test_event_files_sort_in_the_order_of_the_starts(tmp_path, monkeypatch, step_of_clock):
    """TensorBoard reads them by name: many starts in one second, or hosts whose clock is late."""
    clock = itertools.count(1_800_000_000, step_of_clock)
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    for start in range(12):
        log = MetricsLog(tmp_path, start)
        log.write_row(make_row(start + 1))
        log.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = EventAccumulator(str(tmp_path / "tensorboard"))
    seen.Reload()
    assert [event.step for event in seen.Scalars("loss")] == list(range(1, 13))


def test_no_file_no_rows(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == []


class Terminal:
    def __init__(self, terminal):
        self.terminal, self.text = terminal, ""

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_has_loss_rate_speed_mfu_and_time_left(terminal):
    out = Terminal(terminal)
    progress = ProgressLine(0, 1000, flops_per_step=2e9, peak=1e10, out=out, seconds=0.0)
    progress.seconds = 0.0
    progress.show_row(make_row(499, learning_rate=1e-4, seconds=0.5))
    assert "left" not in out.text  # the first step holds the compilation
    progress.show_row(make_row(500, learning_rate=1e-4, seconds=0.5))
    progress.print_line("held out")
    progress.show_row(make_row(1000, learning_rate=0.0, seconds=0.5))
    progress.close()
    assert "step 500/1,000  loss 0.0020  rate 1.00e-04  10 tokens/s  MFU 40.0%  0:" in out.text
    assert ("\r" in out.text) == terminal
    assert "held out\n" in out.text and out.text.endswith("\n")


def test_progress_names_what_the_speed_counts():
    out = Terminal(False)
    progress = ProgressLine(0, 1, flops_per_step=1, peak=None, out=out, unit="images")
    progress.show_row(make_row(1, learning_rate=0.0, seconds=0.5))
    assert "10 images/s" in out.text and "token" not in out.text


def test_a_step_above_the_peak_has_no_mfu():
    """The peak was measured while something else ran on the machine."""
    out = Terminal(False)
    progress = ProgressLine(0, 2, flops_per_step=2e9, peak=1e9, out=out, seconds=0.0)
    for step, seconds in ((1, 2.0), (2, 1.8)):
        progress.show_row(make_row(step, learning_rate=0.0, seconds=seconds))
    first, second = out.text.splitlines()
    assert "MFU 100.0%" in first and "MFU unknown" in second and "%" not in second


def test_speed_and_time_left_are_of_the_last_minute(monkeypatch):
    """A slow first step and a slow start no longer count after a minute."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    out = Terminal(False)
    progress = ProgressLine(0, 200, flops_per_step=1, peak=None, out=out, seconds=0.0)
    for step in range(1, 151):
        seconds = 30.0 if step == 1 else 4.0 if step < 50 else 1.0
        now[0] += seconds
        row = make_row(step, learning_rate=0.0, seconds=seconds)
        progress.show_row(row | {"tokens_per_second": 100 / seconds})
    lines = out.text.splitlines()
    assert "left" not in lines[0] and lines[1].endswith("13:12 left")  # 198 steps of 4 s
    assert lines[-1].endswith("100 tokens/s  0:50 left")


@pytest.mark.parametrize("start", [0, 50])
def test_the_first_step_of_a_start_counts_for_no_speed(start):
    """It holds the compilation, and would outweigh all other steps of the first minute."""
    out = Terminal(False)
    progress = ProgressLine(start, 99, flops_per_step=2e9, peak=1e10, out=out, seconds=0.0)
    for step, seconds in ((start + 1, 25.0), (start + 2, 0.5), (start + 3, 0.5)):
        row = make_row(step, learning_rate=0.0, seconds=seconds)
        progress.show_row(row | {"tokens_per_second": 10_000 / seconds})
    first, second, third = out.text.splitlines()
    assert "  400 tokens/s  MFU 0.8%" in first  # nothing better is known
    assert "  20k tokens/s  MFU 40.0%  " in second and "  20k tokens/s  MFU 40.0%  " in third


def test_progress_is_quiet_between_two_looks(monkeypatch):
    """Every 15 seconds if the output is not a terminal, and always at the last step."""
    clock = iter((100.0, 101.0, 114.9, 115.0, 116.0, 117.0))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    out = Terminal(False)
    progress = ProgressLine(0, 5, flops_per_step=2e9, peak=None, out=out)
    for step in (1, 2, 3, 4, 5):
        progress.show_row(make_row(step, learning_rate=1e-4, seconds=0.5))
    lines = out.text.splitlines()
    assert [line.split("/")[0] for line in lines] == ["step 3", "step 5"]
    assert ["left" in line for line in lines] == [False, True]  # a window without a line before it


@pytest.mark.parametrize(
    ("elapsed", "left"), [(1.1, "0:03 left"), (30.5, "1:01 left"), (2000.0, "1:06:40 left")]
)
def test_the_time_left_is_never_reported_too_short(monkeypatch, elapsed, left):
    clock = iter((0.0, 0.0, elapsed))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    out = Terminal(False)
    progress = ProgressLine(10, 40, flops_per_step=1, peak=None, out=out, seconds=0.0)
    for step in (10, 20):  # 10 steps, 20 to do
        progress.show_row(make_row(step, learning_rate=0.0, seconds=0.5))
    assert out.text.endswith(left + "\n")
