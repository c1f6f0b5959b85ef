"""Retention of checkpoints: any policy, any history of saves, damage, pins and restarts, against a
second formulation of the policy.
"""

import dataclasses
import math
import pathlib
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pretrain.config import Checkpoint, Evaluate, load
from pretrain.training import loop, phase_programs
from pretrain.workdir import metrics_file, retention
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.errors import NotRestored
from pretrain.workdir.read_params import restore_params
from pretrain.workdir.retention import NAME, Retention


class Pinned:
    """Replaces the file."""

    def __init__(self):
        self.steps = set()

    def exists(self):
        return bool(self.steps)

    def read_text(self):
        return "\n".join(map(str, sorted(self.steps))) + "\n"


RULES = some.builds(
    Checkpoint,
    keep=some.integers(1, 4),
    keep_every=some.sampled_from([0, 0, 3, 10]),
    best=some.sampled_from(["", "loss"]),
)
EVENTS = some.one_of(
    some.tuples(
        some.just("save"),
        some.integers(1, 5),
        some.none() | some.sampled_from([0.5, 1.0, 1.5, 2.0, math.nan, math.inf]),
    ),
    some.tuples(some.just("pin"), some.integers(-5, 3)),  # counted from the newest
    some.tuples(some.just("unpin"), some.integers(-5, 3)),
    some.tuples(some.just("damage"), some.integers(1, 3)),
    some.tuples(some.just("restart")),
)


def list_reasons(step, there, rule, pinned, losses):
    """Return why a checkpoint must stay, each reason by itself."""
    if sum(other > step for other in there) < rule.keep:
        yield "among the newest"
    if rule.keep_every and step % rule.keep_every == 0:
        yield "a multiple"
    if step in pinned:
        yield "pinned"
    mine = losses.get(step)
    if rule.best and mine is not None and math.isfinite(mine):
        others = [
            (losses[other], other)
            for other in there
            if losses.get(other) is not None and math.isfinite(losses[other])
        ]
        if not any(loss < mine or (loss == mine and other > step) for loss, other in others):
            yield "the best"


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(rule=RULES, events=some.lists(EVENTS, min_size=5, max_size=40))
def test_any_history_keeps_exactly_what_the_policy_requires(rule, events):
    there, losses, step = [], {}, 0
    pinned = Pinned()
    retention = Retention(rule, pathlib.Path("nowhere"))
    retention.path = pinned
    for kind, *what in events:
        if kind == "pin":
            pinned.steps.add(step + what[0])
        elif kind == "unpin":
            pinned.steps.discard(step + what[0])
        elif (
            kind == "damage"
            # the newest are found damaged when a start looks for one to resume from, and the run
            # rewinds
        ):
            there = there[: -what[0]]
            step = there[-1] if there else 0
        if kind in ("damage", "restart"):
            retention.scores = {}
        if kind == "save":
            step += what[0]
            losses[step] = what[1]
            retention.update_scores(
                there, lambda step: {} if losses[step] is None else {"loss": losses[step]}
            )
            retention.record_scores(
                step, {} if what[1] is None else {"loss": what[1], "perplexity": 0.0}
            )
            there.append(step)
            mask = retention.should_preserve([SimpleNamespace(step=step) for step in there])
            expected = [
                step for step in there if any(list_reasons(step, there, rule, pinned.steps, losses))
            ]
            assert [step for step, stays in zip(there, mask, strict=True) if stays] == expected
            there = expected
            assert step in there


def test_pins_that_cannot_be_read_delete_nothing(tmp_path, capsys):
    retention = Retention(Checkpoint(keep=1), tmp_path)
    saved = [SimpleNamespace(step=step) for step in (1, 2, 3)]
    assert retention.should_preserve(saved) == [False, False, True]
    (tmp_path / NAME).write_text("1, 7\n")
    assert retention.should_preserve(saved) == [True, False, True]
    (tmp_path / NAME).write_text("the first\n")
    assert retention.should_preserve(saved) == [True, True, True]
    assert (
        "no checkpoint is deleted: " in (errors := capsys.readouterr().err)
        and "must contain numbers of steps" in errors
    )


def test_a_step_that_was_deleted_by_hand_has_no_scores(tmp_path, monkeypatch):
    """A start looks scores up at its first save; a user may have deleted checkpoints by then."""
    with Checkpoints(tmp_path, Checkpoint(best="loss")) as checkpoints:
        assert checkpoints.load_scores(3) == {}

        def refuse_to_read(folder):
            raise PermissionError(folder)

        monkeypatch.setattr("pretrain.workdir.checkpoints.read_record", refuse_to_read)
        (tmp_path / "checkpoints" / "3").mkdir()
        with pytest.raises(NotRestored):  # it may be the best: the run stops rather than delete it
            checkpoints.load_scores(3)


@pytest.mark.slow
def test_a_run_keeps_the_newest_the_multiples_the_best_and_the_pinned_over_a_restart(
    configs, tmp_path, monkeypatch
):
    losses = iter([5.0, 1.0, 3.0, 4.0, 2.0, 6.0])  # of steps 2, 4, ...
    monkeypatch.setattr(
        phase_programs,
        "make_evaluator",
        lambda *_, **__: lambda params, heldout, begin: {"loss": next(losses)},
    )
    rule = Checkpoint(every=2, keep=1, keep_every=5, best="loss")
    run = dataclasses.replace(load(configs["bert"]), checkpoint=rule, evaluate=Evaluate(every=2))
    workdir = tmp_path / "run"
    workdir.mkdir()
    (workdir / NAME).write_text("6\n")
    loop.train(
        dataclasses.replace(run, train=dataclasses.replace(run.train, stop_at_step=8)), workdir
    )
    assert list_checkpoints(workdir) == [4, 6, 8]
    loop.train(run, workdir)
    assert list_checkpoints(workdir) == [4, 6, 10, 12]
    assert [
        row["heldout_loss"] for row in metrics_file.read_metrics(workdir / "metrics.jsonl")[1::2]
    ] == [
        5.0,
        1.0,
        3.0,
        4.0,
        2.0,
        6.0,
    ]
    assert restore_params(workdir, step=4)[1] == 4


def list_checkpoints(workdir):
    with Checkpoints(workdir, read_only=True) as checkpoints:
        assert all(
            checkpoints.load_scores(step)
            == {"loss": {4: 1.0, 6: 3.0, 8: 4.0, 10: 2.0, 12: 6.0}[step]}
            for step in checkpoints.list_steps()
        )
        return sorted(checkpoints.list_steps())


def test_of_a_metric_the_highest_is_best_and_of_equals_the_newest():
    scores = {
        1: {"accuracy": 0.9, "loss": 0.1},
        2: {"accuracy": 0.9, "loss": 0.3},
        3: {"accuracy": 0.5, "loss": 0.2},
        4: {"accuracy": math.nan, "loss": 0.4},
    }
    assert retention.select_steps(
        [1, 2, 3, 4], Checkpoint(keep=1, best="accuracy"), [], scores
    ) == {2, 4}
    assert retention.select_steps([1, 2, 3, 4], Checkpoint(keep=1, best="loss"), [], scores) == {
        1,
        4,
    }
    assert (
        retention.find_best_step(scores, "f1") is None
        and retention.find_best_step({}, "loss") is None
    )
