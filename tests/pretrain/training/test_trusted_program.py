"""On an accelerator a run uses the hand-made operations that its devices compute right, and falls
back to the next one, with a line that says why, where one is wrong, raises, hangs or crashes.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from pretrain.__main__ import main
from pretrain.config import Mesh
from pretrain.kernels.attention.choice import (
    KERNELS,
    AttentionCall,
    AttentionKernel,
    has_kernels,
)
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.kernels.trials.comparison import Verdict
from pretrain.kernels.trials.kernel_trust import RememberedTrust
from pretrain.kernels.trials.trial_memory import TrialMemory
from pretrain.mesh.sharding import make_mesh
from pretrain.training.program import choose_program, make_program
from pretrain.training.trials import (
    EXCHANGE,
    GATHERS,
    LOSS,
    Trust,
    operation_trials,
    trusted_program,
)
from pretrain.training.trials.operation_trials import (
    compare_exchange,
    compare_gathers,
    compare_loss,
    select_leaves,
)
from pretrain.training.trials.trusted_program import agree, make_trusted_program
from tests.pretrain.conftest import RUNS


def attend_right(q, k, v, *, mesh, on_shard=False, **call):
    return attend(q, k, v, **call)


def attend_wrong(q, k, v, **options):
    return attend_right(q, k, v, **options) * 1.1


def find_nothing(*_):
    return None


def set_kernels(monkeypatch, **kernels):
    """Give the CPU kernels, as an accelerator has them."""
    table = [AttentionKernel(name, name, find_nothing, attend) for name, attend in kernels.items()]
    monkeypatch.setitem(KERNELS, "cpu", tuple(table))


def make_trusted(run, tmp_path, sizes=(1,)):
    mesh = make_mesh(Mesh(*sizes), jax.devices()[: int(np.prod(sizes))])
    memory = TrialMemory(tmp_path / "kernels")
    return make_trusted_program(run, mesh, epath.Path(tmp_path), make_program, memory)


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("kernels", "used"),
    [
        ({"splash": attend_right, "row": attend_right}, "splash"),
        ({"splash": attend_wrong, "row": attend_right}, "row: splash failed its test"),
        ({"splash": attend_wrong, "row": attend_wrong}, "XLA: splash failed its test.*, row failed"),
    ],
)  # fmt: skip
def test_the_first_kernel_that_is_right_is_used_and_remembered(
    monkeypatch, tmp_path, spied, capsys, kernels, used
):
    set_kernels(monkeypatch, **kernels)
    compared = spied(trusted_program, "compare_attention")
    program = make_trusted(RUNS["bert"], tmp_path)
    for lines in program.attention.values():
        (line,) = lines
        assert re.match(used, line)
    wrong = [name for name, kernel in kernels.items() if kernel is attend_wrong]
    assert [line.split()[0] for line in program.refusals] == wrong
    assert compared.call_count == len(wrong) + (used != "XLA: splash failed its test.*, row failed")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == compared.call_count and all("tested in" in line for line in printed)
    again = make_trusted(RUNS["bert"], tmp_path)
    assert again.attention == program.attention and again.refusals == program.refusals
    assert compared.call_count == len(printed) and capsys.readouterr().out == ""


def test_the_step_of_a_run_that_fell_back_is_the_plain_one(monkeypatch, tmp_path):
    set_kernels(monkeypatch, row=attend_wrong)
    programs = [make_trusted(RUNS["bert"], tmp_path, (2,))]
    monkeypatch.delitem(KERNELS, "cpu")
    mesh = make_mesh(Mesh(2), jax.devices()[:2])
    programs.append(make_program(RUNS["bert"], mesh))
    with jax.set_mesh(mesh):
        one, other = (p.train_step.lower(p.describe_state(), p.batch) for p in programs)
    assert one.as_text() == other.as_text()


def test_a_kernel_that_is_asked_for_by_name_is_not_compared(monkeypatch, tmp_path):
    set_kernels(monkeypatch, splash=attend_right, row=attend_wrong)
    run = RUNS["bert"]
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, attention="row"))
    program = make_trusted(run, tmp_path)
    assert program.attention == {"update": ["row"], "score": ["row"]} and not program.refusals


def test_on_a_cpu_and_for_absent_devices_nothing_is_compared(monkeypatch, tmp_path):
    assert not has_kernels(make_mesh(Mesh(1), jax.devices()[:1]))
    absent = SimpleNamespace(platform="tpu", device_kind="TPU v5")
    mesh = SimpleNamespace(devices=np.array([absent]))
    assert not has_kernels(mesh)
    monkeypatch.setattr("pretrain.training.program.make_trusted_program", pytest.fail)
    mesh = make_mesh(Mesh(1), jax.devices()[:1])
    choose_program(RUNS["bert"], mesh, epath.Path(tmp_path), make_program)


def test_an_evaluation_uses_what_a_run_has_found(monkeypatch, tmp_path):
    """It compares nothing: a kernel without a verdict is left out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    set_kernels(monkeypatch, row=attend_right)
    q, mesh = jnp.ones((4, 16, 2, 8)), make_mesh(Mesh(1), jax.devices()[:1])
    memory = TrialMemory()
    trust = RememberedTrust(memory, jax.devices()[0])

    def attend_once():
        lines = []
        make_model_hooks(mesh, lines)["ops"].attend(q, q, q)
        return lines

    assert attend_once() == ["XLA: row was not tested on these shapes"]
    (kernel,) = KERNELS["cpu"]
    trust.find_doubt(kernel, AttentionCall(q, q, q, None, None, None, None), mesh)
    ((candidate,),) = trust.unknown.values()
    memory.write_verdict(candidate.key, Verdict())
    assert attend_once() == ["row"]


def test_what_one_process_refuses_all_refuse(monkeypatch, tmp_path):
    trust = RememberedTrust(TrialMemory(tmp_path), jax.devices()[0])
    trust.verdicts = {"a": Verdict(), "b": Verdict(detail="own")}
    other = {"a": ["failed its test", ""], "c": ["", "theirs"]}
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    for answers in ([trust.verdicts, other], [other, dict(trust.verdicts)]):
        monkeypatch.setattr(trusted_program, "exchange_values", lambda *_, answers=answers: answers)
        assert agree(trust) == {
            "a": Verdict("failed its test"),
            "b": Verdict(detail="own"),
            "c": Verdict(detail="theirs"),
        }
    assert trust.is_decided


# ---- the other operations --------------------------------------------------------

DEVICE = jax.devices()[0]


@pytest.mark.held_by(1)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_other_operations_are_right(dtype):
    assert compare_loss(5, 96, 16, dtype, DEVICE).reason == ""
    assert compare_gathers(24, 96, 16, dtype, DEVICE).reason == ""


@pytest.mark.held_by(1)
@pytest.mark.parametrize("wire", [None, "float32"])
@pytest.mark.parametrize("sizes", [(8, 1), (2, 4)])
def test_the_gradient_exchange_is_right(sizes, wire):
    mesh = make_mesh(Mesh(*sizes))
    params = jax.eval_shape(make_program(RUNS["bert"], mesh).init).params
    verdict = compare_exchange(select_leaves(params), mesh, "bfloat16", wire)
    assert verdict == Verdict(detail="equal over 8 devices")


def test_other_operations_with_wrong_results_are_not_trusted(monkeypatch):
    own = operation_trials.token_cross_entropy
    monkeypatch.setattr(
        operation_trials,
        "token_cross_entropy",
        lambda *a, **kw: jax.tree.map(lambda x: x * 1.1, own(*a, **kw)),
    )
    assert "the result is off by 0.1" in compare_loss(5, 96, 16, "bfloat16", DEVICE).reason
    take = operation_trials.take_positions
    monkeypatch.setattr(operation_trials, "take_positions", lambda x, at: take(x, at // 2))
    assert "the result is off by" in compare_gathers(24, 96, 16, "bfloat16", DEVICE).reason
    mesh, psum = make_mesh(Mesh(8)), jax.lax.psum
    params = jax.eval_shape(make_program(RUNS["bert"], mesh).init).params
    leaves = select_leaves(params)
    monkeypatch.setattr(jax.lax, "psum", lambda x, axes: jax.tree.map(lambda y: y * 8, x))
    reason = compare_exchange(leaves, mesh, "bfloat16", None).reason
    assert re.match(r"failed its test: the sum of \['bert'\]\[.* is wrong", reason)
    monkeypatch.setattr(
        jax.lax, "psum", lambda x, axes: x if isinstance(x, dict) else psum(x, axes)
    )
    assert "the sum of the loss" in compare_exchange(leaves, mesh, "bfloat16", None).reason


def test_a_program_does_without_what_is_refused():
    mesh = make_mesh(Mesh(8))
    refused = dict.fromkeys((EXCHANGE, LOSS, GATHERS), "failed its test")
    program = make_program(RUNS["bert"], mesh, trust=Trust(refused=refused))
    assert program.exchange == ["gradients are summed over devices in each layer: failed its test"]
    assert program.scores_at_once == float("inf")
    with jax.set_mesh(mesh):
        text = str(program.train_step.trace(program.describe_state(), program.batch).jaxpr)
    assert "shard_map" not in text


def test_a_run_tries_its_operations_and_leaves_out_what_is_wrong(monkeypatch, tmp_path, capsys):
    set_kernels(monkeypatch, row=attend_right)
    wrong = Verdict("failed its test: it is wrong")
    monkeypatch.setattr(operation_trials, "compare_exchange", lambda *_: wrong)
    program = make_trusted(RUNS["bert"], tmp_path, (2, 2))
    assert program.refusals == ["gradient exchange failed its test: it is wrong"]
    assert program.exchange[0].endswith("in each layer: failed its test: it is wrong")
    assert "gradient exchange failed its test: it is wrong" in capsys.readouterr().out


# ---- whole runs -------------------------------------------------------------------


def test_a_run_prints_and_records_what_it_left_out(monkeypatch, configs, tmp_path, capfd):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    set_kernels(monkeypatch, row=attend_wrong)
    workdir, words = tmp_path / "run", ["train.stop_at_step=1", "evaluate.every=0"]
    assert main(["train", str(configs["bert"]), "--workdir", str(workdir), *words]) == 0
    printed = "".join(capfd.readouterr())
    assert re.search(r"left out: row failed its test: the output is off by 0\.1\S* of", printed)
    assert re.search("attention kernel: XLA: row failed its test", printed)
    (start,) = map(json.loads, (workdir / "environment.jsonl").read_text().splitlines())
    assert start["attention"][0].startswith("XLA: row failed its test: the output is off")
    assert start["left_out"][0].startswith("row failed its test: the output is off by")


def test_doctor_prints_what_agrees_on_a_machine(monkeypatch, tmp_path, configs, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["doctor", "--kernels"]) == 0
    printed = capsys.readouterr().out
    assert "on a CPU the plain equations compute attention" in printed
    assert "on a TPU a run compares Splash, whole-row kernel and chunk kernel with them" in printed
    assert "on a GPU a run compares cuDNN with them" in printed
    set_kernels(monkeypatch, splash=attend_wrong, row=attend_right)
    for is_remembered in (False, True):
        assert main(["doctor", "--kernels", str(configs["bert"])]) == 0
        printed = capsys.readouterr().out
        assert ("tested in" in printed) is not is_remembered
        assert re.search(r"\n    splash +failed its test: the output is off by .*8 heads", printed)
        assert re.search(r"\n    row +errors are at most 0\S+ of the bound \(4 x 32 x 32", printed)


HANGS_AND_CRASHES = """
import os, sys, threading
import jax
from etils import epath
from pretrain.config import Mesh
from pretrain.kernels.attention import choice as attention_kernels
from pretrain.mesh.sharding import make_mesh
from pretrain.settings import Limits
from pretrain.training.program import choose_program, make_program
from pretrain.training.trials.trusted_program import make_trusted_program
from tests.pretrain.conftest import RUNS
import dataclasses

def hang(*arrays, **options):
    threading.Event().wait()

def crash(*arrays, **options):
    os.abort()

attention_kernels.KERNELS["cpu"] = tuple(
    attention_kernels.AttentionKernel(name, name, lambda *_: None, attend)
    for name, attend in (("splash", hang), ("row", crash))
)
run = dataclasses.replace(RUNS["bert"], watchdog=Limits(kernels=1.0))
mesh = make_mesh(Mesh(1), jax.devices()[:1])
program = make_trusted_program(run, mesh, epath.Path(sys.argv[1]), make_program)
print(program.attention["update"])
"""


def test_a_kernel_that_hangs_or_crashes_is_left_out_by_the_next_start(root, tmp_path):
    done = []
    for _ in range(3):
        words = [sys.executable, "-c", HANGS_AND_CRASHES, str(tmp_path)]
        environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(root)}
        done.append(
            subprocess.run(
                words,
                env=os.environ | environment,
                cwd=root,
                capture_output=True,
                text=True,
            )
        )
    hung, crashed, trained = done
    assert hung.returncode == 75, hung.stderr
    assert "hung: 'kernels' has lasted" in hung.stderr and "Repeat the same command" in hung.stderr
    assert (tmp_path / "hung-0.txt").exists()
    assert crashed.returncode == -6, crashed.stderr
    assert trained.returncode == 0, trained.stderr
    for name in ("splash", "row"):
        assert f"{name} was left out, because the process that tested it hung or" in trained.stdout
    assert trained.stdout.count(" to test it again") == 2
