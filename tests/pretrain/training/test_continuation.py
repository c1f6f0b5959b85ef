"""A run that continues with another batch size, number of steps or warm-up: the rows that it reads,
and what is printed.
"""

import dataclasses
import json
import shlex
import shutil

import numpy as np
import pytest

from data.pipeline import Stream
from data.store.reader import Store
from pretrain.__main__ import main
from pretrain.config import AdamW, load, to_json
from pretrain.settings.overrides import ConfigError
from pretrain.training import continuation, startup
from pretrain.training.new_workdir import report_other_origin
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.workdir import Workdir


@pytest.fixture(scope="module")
def run(configs):
    return load(str(configs["bert"]))


def with_steps(run, steps, **optimizer):
    return dataclasses.replace(
        run,
        train=dataclasses.replace(run.train, steps=steps),
        optimizer=AdamW(**{"learning_rate": 1e-3, "warmup_steps": 2} | optimizer),
    )


@pytest.mark.fast
def test_a_moved_schedule_is_reported_with_both_rates(run):
    before, now = with_steps(run, 10), with_steps(run, 20)
    (line,) = continuation.describe_schedule(now, before, 8)
    # After the warm-up of 2 a straight line to 0: (10 - 8) / (10 - 2) and (20 - 8) / (20 - 2) of the
    # peak.
    assert "train.steps: 10 -> 20" in line and "of update 9 is 0.000667, not 0.00025" in line
    for one, other, start in (
        (now, now, 8),
        (now, None, 8),
        (now, before, 0),
        (with_steps(run, 20, decay_steps=10), with_steps(run, 10, decay_steps=10), 8),
        (with_steps(run, 20, decay="inverse_square_root"), with_steps(run, 10, decay="inverse_square_root"), 8),
    ):  # fmt: skip
        assert continuation.describe_schedule(one, other, start) == []


@pytest.mark.fast
@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_a_warmup_as_long_as_the_run_is_reported(run, decay):
    (line,) = continuation.describe_schedule(
        with_steps(run, 10, warmup_steps=10, decay=decay), None, 0
    )
    assert "optimizer.warmup_steps=10 is not shorter than the schedule of 10 steps" in line
    assert line.endswith("rises for 9 steps")
    assert not continuation.describe_schedule(with_steps(run, 10, warmup_steps=9), None, 0)


@pytest.mark.fast
def test_the_refusal_of_a_change_names_the_command_that_keeps_the_settings(run, tmp_path):
    """A run was begun with path=value arguments, and is resumed without them."""
    workdir = Workdir.open(tmp_path / "a run")
    workdir.path.mkdir()
    (workdir / "config.json").write_text(to_json(run))
    (workdir / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(ConfigError) as caught:
        continuation.check_workdir(with_steps(run, 10), workdir, allow_changes=False)
    file, folder = shlex.quote(str(workdir / "config.json")), shlex.quote(str(workdir))
    assert f"`train {file} --workdir {folder}` resumes it as it is" in str(caught.value)
    same = load(str(workdir / "config.json"))
    assert continuation.check_workdir(same, workdir, allow_changes=False) == run


@pytest.mark.fast
def test_a_run_goes_on_with_another_feed_and_one_of_before_has_none(run, tmp_path):
    """Both feeds give the same batches; `config.json` of 0.2 knows of none."""
    before = json.loads(to_json(run))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    other = dataclasses.replace(run, data=dataclasses.replace(run.data, feed="threads"))
    assert before["data"].pop("feed") == "auto"
    for feed in ({}, {"feed": "tfdata"}):
        saved = before | {"data": before["data"] | feed}
        (tmp_path / "config.json").write_text(json.dumps(saved))
        assert continuation.check_workdir(other, Workdir.open(tmp_path), allow_changes=False)


def test_a_start_that_trains_nothing_leaves_the_configuration(configs, tmp_path, capsys):
    """A shorter run than the one in the workdir is no run: the next start continues the longer."""
    workdir = tmp_path / "run"
    words = ["train", str(configs["bert"]), "--workdir", str(workdir), "evaluate.every=0"]
    assert main([*words, "train.stop_at_step=2"]) == 0
    before = (workdir / "config.json").read_text()
    assert main([*words, "train.steps=1"]) == 0
    assert "step 2 of 1 has already been reached" in capsys.readouterr().out
    assert (workdir / "config.json").read_text() == before


def test_a_start_that_trains_nothing_takes_a_run_to_other_devices(configs, tmp_path):
    """`evaluate` makes the mesh of config.json, and has no option for another one."""
    workdir = tmp_path / "run"
    words = ["train", str(configs["bert"]), "--workdir", str(workdir), "evaluate.every=0"]
    assert main([*words, "train.stop_at_step=2"]) == 0
    written = Workdir.open(workdir).run
    elsewhere = dataclasses.replace(written, mesh=dataclasses.replace(written.mesh, data=1 << 10))
    (workdir / "config.json").write_text(to_json(elsewhere))
    assert main([*words, "train.steps=1"]) == 0
    assert Workdir.open(workdir).run == written


def test_another_batch_size_continues_after_the_rows_that_were_read(configs, run, tmp_path, capsys):
    words = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), "evaluate.every=0"]
    assert main([*words, "train.stop_at_step=3"]) == 0
    capsys.readouterr()
    smaller = [*words, "train.stop_at_step=4", "data.batch_size=16"]
    assert main(smaller) == 2 and "data.batch_size: 8 -> 16" in capsys.readouterr().err
    assert main([*smaller, "--allow-changes"]) == 0
    captured = capsys.readouterr()
    line = "3 steps have read 24 rows: step 4 continues after them with 16 rows per step"
    assert line in captured.out + captured.err
    with Checkpoints(tmp_path / "run", read_only=True) as checkpoints:
        records = {step: checkpoints.load_record(step) for step in checkpoints.list_steps()}
    assert {step: record["rows"] for step, record in records.items()}[4] == 40
    assert records[4]["step"] == 4
    # A third start continues from there, in closed form, and prints it again.
    assert main([*words, "train.stop_at_step=6", "data.batch_size=16"]) == 0
    captured = capsys.readouterr()
    assert "4 steps have read 40 rows: step 5 continues after them" in captured.out + captured.err
    with Checkpoints(tmp_path / "run", read_only=True) as checkpoints:
        assert checkpoints.load_record(6)["rows"] == 72


def test_the_rows_of_the_step_are_those_that_come_next(configs, run, tmp_path, monkeypatch):
    """The rows of the second start, recorded where batches go to the devices."""
    from pretrain.mesh import device_feed

    seen, place = [], device_feed.make_global_arrays

    def watch_parts(parts, *rest):
        seen.append({key: value.copy() for key, value in parts[0].items()})
        return place(parts, *rest)

    words = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), "evaluate.every=0"]
    assert main([*words, "train.stop_at_step=1"]) == 0
    monkeypatch.setattr(device_feed, "make_global_arrays", watch_parts)
    assert main([*words, "train.stop_at_step=2", "data.batch_size=16", "--allow-changes"]) == 0
    single = Stream(
        Store.open(run.data.store),
        dataclasses.replace(run.data, batch_size=1),
        seed=run.train.seed,
    )
    expected = [single.build_batch(row) for row in range(8, 24)]
    for key, value in seen[0].items():
        np.testing.assert_array_equal(value, np.concatenate([row[key] for row in expected]))
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"]["batch_size"] == 16


def test_a_start_that_finished_no_step_leaves_a_workdir_for_any_configuration(
    configs, stores, tmp_path, capsys, monkeypatch
):
    """After memory is exhausted in the first step, batch size and vocabulary may be corrected."""
    from pretrain.training import loop

    write_workdir = loop.write_workdir

    def write_and_fail(*args):
        write_workdir(*args)
        raise MemoryError("RESOURCE_EXHAUSTED: out of memory")

    monkeypatch.setattr(loop, "write_workdir", write_and_fail)
    workdir = tmp_path / "run"
    rest = ["--workdir", str(workdir), "evaluate.every=0", "train.stop_at_step=1"]
    assert main(["train", str(configs["t5"]), *rest]) == 2
    assert "error: memory is exhausted (RESOURCE_EXHAUSTED: " in capsys.readouterr().err
    before = (workdir / "vocabulary" / "vocabulary.json").read_bytes()
    monkeypatch.undo()
    capsys.readouterr()
    assert main(["train", str(configs["bert"]), *rest, "data.batch_size=16"]) == 0
    assert "no step was finished; changed: " in capsys.readouterr().out
    assert json.loads((workdir / "config.json").read_text())["data"]["batch_size"] == 16
    assert (workdir / "vocabulary" / "vocabulary.json").read_bytes() != before
    # Now a step is complete, and the same change is refused.
    assert main(["train", str(configs["bert"]), *rest]) == 2
    assert "data.batch_size: 16 -> 8" in capsys.readouterr().err


def test_a_large_seed_is_refused_for_a_new_run_alone(run, tmp_path, monkeypatch):
    """JAX takes its lower 32 bits; a run that began with it needs all of them for its data."""
    seed = (1 << 32) + 5
    seeded = dataclasses.replace(run, train=dataclasses.replace(run.train, seed=seed))
    workdir = Workdir.open(tmp_path / "run")
    message = f"train.seed={seed}: parameters and dropout would be as with seed 5; choose"
    with pytest.raises(ConfigError, match=message):
        startup.open_data(seeded, workdir, False)
    workdir.path.mkdir()
    (workdir / "config.json").write_text(to_json(seeded))
    (workdir / "metrics.jsonl").write_text('{"step": 1}\n')
    workdir = Workdir.open(tmp_path / "run")
    assert startup.open_data(seeded, workdir, False).before == seeded


def test_a_workdir_that_began_with_another_model_says_so(tmp_path, capsys):
    (tmp_path / "origin.json").write_text('{"folder": "bert", "pretrained_step": 7}')
    for source, step in (("runs/bert", None), ("elsewhere/bert/", 7)):
        report_other_origin(Workdir.open(tmp_path), source, step)
    assert capsys.readouterr().err == ""
    report_other_origin(Workdir.open(tmp_path), "runs/albert")
    report_other_origin(Workdir.open(tmp_path), "runs/bert", 9)
    first, second = capsys.readouterr().err.splitlines()
    assert "it began with bert at step 7, not with albert." in first
    assert "it began with bert at step 7, not with bert at step 9." in second
    (tmp_path / "origin.json").write_text('{"repository": "a/b"}')
    report_other_origin(Workdir.open(tmp_path), "runs/albert")
    assert capsys.readouterr().err == ""


def edit_config(workdir, **changes):
    """Change fields of config.json by hand, {section: {field: value}}."""
    path = workdir / "config.json"
    settings = json.loads(path.read_text())
    for section, fields in changes.items():
        settings[section] |= fields
    path.write_text(json.dumps(settings))


def test_a_configuration_that_was_edited_by_hand_is_compared_with_the_record(
    configs, tmp_path, capsys
):
    workdir = tmp_path / "run"
    words = ["--workdir", str(workdir), "evaluate.every=0"]
    assert main(["train", str(configs["bert"]), *words, "train.stop_at_step=2"]) == 0
    sound = (workdir / "config.json").read_text()
    again = ["train", str(workdir / "config.json"), *words, "train.stop_at_step=3"]
    edit_config(workdir, train={"seed": 7})
    capsys.readouterr()
    assert main(again) == 2
    error = capsys.readouterr().err
    assert "checkpoint 2 was made by a run of another configuration: train.seed: 0 -> 7" in error
    assert main([*again, "--allow-changes"]) == 0
    assert "changed on continuing: train.seed: 0 -> 7" in capsys.readouterr().out
    (workdir / "config.json").write_text(sound)
    assert main(again) == 2  # the newest record has the accepted seed


@pytest.mark.more
def test_a_checkpoint_of_another_run_is_not_continued_and_is_named(configs, tmp_path, capsys):
    for name, *more in (("one",), ("other", "train.seed=5", "optimizer.learning_rate=0.01")):
        words = [str(configs["bert"]), "--workdir", str(tmp_path / name), "evaluate.every=0"]
        assert main(["train", *words, "train.stop_at_step=2", *more]) == 0
    step = tmp_path / "one" / "checkpoints" / "2"
    shutil.rmtree(step)
    shutil.copytree(tmp_path / "other" / "checkpoints" / "2", step)
    capsys.readouterr()
    words = [str(configs["bert"]), "--workdir", str(tmp_path / "one"), "evaluate.every=0"]
    assert main(["train", *words, "train.stop_at_step=3"]) == 2
    error = capsys.readouterr().err
    assert "train.seed: 5 -> 0" in error and "the checkpoint was copied from another run" in error
    assert main(["predict", "--workdir", str(tmp_path / "one"), "a [MASK]"]) == 0
    printed = capsys.readouterr()
    note = f"note: checkpoint 2 was not made with the settings in {tmp_path / 'one/config.json'}"
    assert note in printed.out + printed.err
