"""`train.attention` names what computes attention: a kernel that cannot serve the run is refused
before anything is compiled, and what was compiled is printed and recorded.
"""

import dataclasses
import json
import typing
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask
from pretrain.__main__ import main
from pretrain.config import Mesh, load
from pretrain.kernels.attention.choice import (
    CHUNK_KERNELS,
    KERNELS,
    AttentionKernel,
    AttentionRules,
    make_attend,
)
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.attention.row.sharded import attend_with_rows, find_row_obstacle
from pretrain.mesh.sharding import make_mesh
from pretrain.settings import AttentionChoice
from pretrain.settings.overrides import ConfigError
from pretrain.training.continuation import check_workdir
from pretrain.training.program import make_program
from pretrain.workdir.workdir import Workdir
from tests.command import split_words
from tests.pretrain.conftest import RUNS

ROWS_ON_A_CPU = AttentionKernel(
    "row", "whole-row kernel", find_row_obstacle, partial(attend_with_rows, interpret=True)
)
DROP = KeyedDropout(jnp.zeros(2, jnp.uint32), 0.1, ())


def choose(run, **train):
    return dataclasses.replace(run, train=dataclasses.replace(run.train, **train))


def make_fake_mesh(platform):
    """Return a mesh of one device that does not exist."""
    device = SimpleNamespace(platform=platform, device_kind="TPU v5", compute_capability="9.0")
    sizes = dict.fromkeys(("data", "fsdp", "sequence", "model"), 1)
    return SimpleNamespace(devices=np.array([device]), shape=sizes, size=1)


def trace_choice(platform, choice, is_strict=True, mask=None, drop=None, length=256):
    """Return the lines that are reported as attention is traced."""
    heard = []
    attend_by_choice = make_attend(
        make_fake_mesh(platform),
        lambda *line: heard.append(line),
        rules=AttentionRules(choice, is_strict),
    )
    q = jax.ShapeDtypeStruct((2, length, 2, 64), jnp.bfloat16)
    if (
        choice == "plain" or not is_strict
    ):  # a kernel cannot be traced for devices that do not exist
        jax.eval_shape(partial(attend_by_choice, mask=mask, drop=drop), q, q, q)
    else:
        attend_by_choice(q, q, q, mask=mask, drop=drop)
    return heard


def test_the_choices_are_the_kernels():
    kernels = [
        kernel for table in (KERNELS, CHUNK_KERNELS) for row in table.values() for kernel in row
    ]
    assert {"auto", "plain", *(kernel.choice for kernel in kernels)} == {
        *typing.get_args(AttentionChoice)
    }


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("platform", "choice", "words"),
    [
        ("cpu", "splash", "needs a TPU, and this run is on a CPU; choose auto or plain"),
        ("cpu", "cudnn", "needs a GPU, and this run is on a CPU"),
        ("tpu", "cudnn", "needs a GPU, and this run is on a TPU; choose auto, plain, splash, row or chunk"),
        ("gpu", "row", "needs a TPU, and this run is on a GPU; choose auto, plain or cudnn"),
    ],
)  # fmt: skip
def test_a_kernel_of_other_devices_is_refused_at_once(platform, choice, words):
    with pytest.raises(ConfigError, match=f"train.attention={choice} {words}"):
        make_attend(make_fake_mesh(platform), rules=AttentionRules(choice))


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("platform", "choice", "options", "words"),
    [
        ("tpu", "splash", {"drop": DROP}, "Splash cannot drop weights; choose auto or plain"),
        ("tpu", "splash", {"length": 100}, "Splash takes multiples of 128 .*; choose auto, plain or row"),
        ("tpu", "chunk", {}, "it takes only chunks of sorted keys.*; choose auto, plain, splash or row"),
        ("gpu", "cudnn", {"drop": DROP}, "cuDNN drops weights by a seed .*; choose auto or plain"),
    ],
)  # fmt: skip
def test_a_kernel_that_cannot_serve_a_call_is_refused_with_the_others(
    platform, choice, options, words
):
    with pytest.raises(
        ConfigError, match=f"train.attention={choice} cannot serve this run: {words}"
    ):
        trace_choice(platform, choice, **options)


def test_an_evaluation_falls_back_where_the_training_step_would_be_refused():
    ((kernel, reason),) = trace_choice("tpu", "splash", is_strict=False, drop=DROP)
    assert (kernel, reason) == ("XLA", "Splash cannot drop weights")


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_plain_uses_no_kernel(platform):
    assert trace_choice(platform, "plain", mask=Mask(causal=True)) == [
        ("XLA", "train.attention=plain")
    ]


def test_a_run_with_the_row_kernel_uses_it_for_all_calls(monkeypatch):
    """By `auto` the other kernel of the platform comes first."""
    first = AttentionKernel(
        "splash", "Splash", lambda *_: None, lambda q, k, v, **_: attend(q, k, v)
    )
    monkeypatch.setitem(KERNELS, "cpu", (first, ROWS_ON_A_CPU))
    mesh = make_mesh(Mesh(1), jax.devices()[:1])
    for choice, kernel in (("auto", "Splash"), ("row", "whole-row kernel")):
        run = choose(RUNS["bert"], attention=choice)
        program = make_program(run, mesh)
        with jax.set_mesh(mesh):
            program.train_step.trace(program.describe_state(), program.batch)
        assert program.attention["update"] == [kernel]


def test_a_model_without_attention_has_no_use_for_a_kernel(monkeypatch):
    monkeypatch.setitem(KERNELS, "cpu", (ROWS_ON_A_CPU,))
    mesh = make_mesh(Mesh(1), jax.devices()[:1])
    run = choose(RUNS["lstm_lm"], attention="row")
    with pytest.raises(ConfigError, match="train.attention=row has no effect: a LstmLmConfig has"):
        make_program(run, mesh)
    make_program(choose(run, attention="auto"), mesh)


@pytest.mark.parametrize(("name", "lines"), [("bert", ["XLA"]), ("lstm_lm", [])])
def test_a_model_without_attention_has_no_line_on_it(name, lines):
    mesh = make_mesh(Mesh(1), jax.devices()[:1])
    program = make_program(RUNS[name], mesh)
    with jax.set_mesh(mesh):
        program.train_step.trace(program.describe_state(), program.batch)
    assert program.attention["update"] == lines


def test_a_run_prints_and_records_what_computes_attention(configs, tmp_path, capfd):
    """It may continue with another choice, because all compute the same up to rounding."""
    workdir, words = tmp_path / "run", ["train.stop_at_step=1", "evaluate.every=0"]
    choice = "train.attention=plain"
    assert main(["train", str(configs["bert"]), "--workdir", str(workdir), *words, choice]) == 0
    assert "attention kernel: XLA\n" in "".join(capfd.readouterr())
    (start,) = map(json.loads, (workdir / "environment.jsonl").read_text().splitlines())
    assert start["attention"] == ["XLA"] and start["step"] == 0
    assert load(workdir / "config.json").train.attention == "plain"
    check_workdir(load(configs["bert"], words), Workdir.open(workdir), allow_changes=False)


def test_train_refuses_a_kernel_before_it_makes_a_workdir(configs, tmp_path, capsys):
    words = split_words(
        f"train {configs['bert']} --workdir {tmp_path / 'run'} train.attention=splash"
    )
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "train.attention=splash needs a TPU, and this run is on a CPU" in error
    assert "Traceback" not in error and not (tmp_path / "run").exists()
