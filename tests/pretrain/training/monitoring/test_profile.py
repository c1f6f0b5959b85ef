"""`train --profile FIRST:LAST` writes a trace of whole steps, and disturbs nothing."""

import gzip
import json

import jax
import pytest

from pretrain.__main__ import main
from pretrain.config import load
from pretrain.settings.overrides import ConfigError
from pretrain.training.loop import train
from pretrain.training.monitoring import profile
from pretrain.training.monitoring.operations import (
    OTHER,
    format_operations,
    read_trace,
)
from pretrain.training.monitoring.options import Monitoring, StepRange, parse_step_range
from pretrain.workdir.metrics_file import read_metrics
from tests.fingerprints import read_fingerprints

SHORT = ["train.stop_at_step=5", "evaluate.every=0", "checkpoint.every=2"]


@pytest.fixture(scope="module")
def plain(configs, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("plain") / "run"
    assert main(["train", str(configs["bert"]), "--workdir", str(workdir), *SHORT]) == 0
    return workdir


@pytest.fixture(scope="module")
def traced(configs, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("traced") / "run"
    command = ["train", str(configs["bert"]), "--workdir", str(workdir), "--profile", "3:4"]
    assert main([*command, *SHORT]) == 0
    return workdir


def find_trace(workdir, ending):
    (path,) = (workdir / "profile" / "steps-3-4" / "plugins" / "profile").rglob(f"*{ending}")
    return path


def test_a_traced_run_ends_with_the_same_bits(plain, traced):
    assert read_fingerprints(traced, 5) == read_fingerprints(plain, 5)
    rows, expected = (
        [(row["step"], row["loss"]) for row in read_metrics(workdir / "metrics.jsonl")]
        for workdir in (traced, plain)
    )
    assert rows == expected


def test_perfetto_s_file_holds_the_traced_steps_and_no_other(traced):
    with gzip.open(find_trace(traced, "perfetto_trace.json.gz")) as file:
        events = json.load(file)["traceEvents"]
    assert {"ph", "pid"} <= set.intersection(*(set(event) for event in events if event))
    calls = [
        event
        for event in events
        if event.get("ph") == "X" and event["name"].startswith("PjitFunction(step)")
    ]
    assert len(calls) in (2, 4)  # Two steps; JAX may trace each call twice.


def test_the_step_s_operations_are_named_and_their_shares_sum_to_one(traced):
    page = (traced / "profile" / "steps-3-4" / "operations.md").read_text()
    table = page.partition("| kind | ms a step | share |\n|")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]
    assert {"layers: products, forwards", "optimizer, clipping"} <= {kind for kind, *_ in rows}
    assert sum(float(share.rstrip("%")) for *_, share in rows) == pytest.approx(100, abs=0.5)
    assert all(float(milliseconds) >= 0 for _, milliseconds, _ in rows)
    times = read_trace(find_trace(traced, ".xplane.pb").parent)
    assert sum(times.values()) > 0


@pytest.mark.more
def test_the_step_is_not_compiled_again_for_its_names(configs, tmp_path, caplog):
    run = load(str(configs["bert"]), [*SHORT, "optimizer.learning_rate=0.0123"])
    with jax.log_compiles(), caplog.at_level("WARNING"):
        train(run, tmp_path / "run", monitoring=Monitoring(profile=StepRange(3, 4)))
    compiled = [
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith("Finished XLA compilation of jit(step)")
    ]
    assert len(compiled) == 1
    assert (tmp_path / "run" / "profile" / "steps-3-4" / "operations.md").is_file()


@pytest.mark.more
def test_a_run_that_is_resumed_within_the_range_traces_the_rest(configs, tmp_path, capsys):
    command = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), *SHORT]
    assert main([*command, "train.stop_at_step=4"]) == 0
    assert main([*command, "--profile", "3:5"]) == 0
    assert "traced 1 steps of --profile 3:5" in capsys.readouterr().err
    assert (tmp_path / "run" / "profile" / "steps-3-5" / "operations.md").is_file()
    assert main([*command, "train.stop_at_step=6", "--profile", "2:3"]) == 0
    assert "--profile 2:3: none of these steps was run; no trace" in capsys.readouterr().err


@pytest.mark.more
def test_a_profiler_that_fails_does_not_stop_the_run(configs, tmp_path, capsys, monkeypatch, plain):
    def fail(*args, **options):
        raise RuntimeError("no tracer here\nand more")

    for name in ("start_trace", "stop_trace"):
        workdir = tmp_path / name
        with monkeypatch.context() as patch:
            patch.setattr(profile.jax.profiler, name, fail)
            command = ["train", str(configs["bert"]), "--workdir", str(workdir), *SHORT]
            assert main([*command, "--profile", "3:4"]) == 0
        if name == "stop_trace":
            jax.profiler.stop_trace()
        error = capsys.readouterr().err
        assert "--profile 3:4 failed, the run continues without it: no tracer here\n" in error
        assert read_fingerprints(workdir, 5) == read_fingerprints(plain, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("105:100", "the first step is after the last; expected FIRST:LAST, such as 100:105"),
        ("100", "expected two steps FIRST:LAST, such as 100:105"),
        ("a:b", "expected two steps FIRST:LAST"),
        ("-1:3", "expected two steps FIRST:LAST"),
        ("1:2:3", "expected two steps FIRST:LAST"),
        ("1.5:3", "expected two steps FIRST:LAST"),
        ("\u0661:3", "expected two steps FIRST:LAST"),
        ("0:3", "the first step of a run is 1"),
        ("100:121", "the run ends after step 120; name steps up to it"),
    ],
)
def test_a_bad_range_is_an_error(text, message):
    with pytest.raises(ConfigError) as error:
        parse_step_range(text, 120)
    assert str(error.value).startswith(f"--profile {text}: ") and message in str(error.value)


def test_a_bad_range_is_refused_before_anything_is_written(configs, tmp_path, capsys):
    command = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), *SHORT]
    assert main([*command, "--profile=5:6"]) == 2
    assert "--profile 5:6: the run ends after step 5" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_range_may_be_one_step_and_the_last_one():
    assert parse_step_range("120:120", 120) == StepRange(120, 120)


def test_the_page_says_where_events_have_no_names():
    page = format_operations(
        {"ThunkExecutor::Execute": 1.0}, {"fusion.1": "jit(step)/add"}, 2, "3:4"
    )
    assert "XLA does not name its events here" in page and "| kind" not in page


def test_a_table_counts_each_operation_once_and_names_what_has_no_line():
    names = {
        "fusion.1": "jit(step)/jvp(Bert)/norm/add",
        "fusion.2": "",
        "while.3": "jit(step)/jvp(Bert)/while",
    }
    times = {"fusion.1": 0.006, "fusion.2": 0.002, "while.3": 0.008, "other_program": 9.0}
    page = format_operations(times, names, 2, "3:4")
    assert "| norms | 3.000 | 75.0% |" in page and f"| {OTHER} | 1.000 | 25.0% |" in page
    assert "25.0% of the time is of operations that XLA made without naming" in page
    assert "while.3" not in page and "other_program" not in page


def test_a_bar_in_a_name_does_not_end_a_cell():
    page = format_operations({"fusion.1": 1.0}, {"fusion.1": "jit(step)/a|b"}, 1, "1:1")
    assert "a&#124;b" in page
