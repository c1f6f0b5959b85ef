"""A run that cannot fit in memory: refused before anything is compiled or written, explained after
an exhausted allocation, and what the line proposes does fit.
"""

import dataclasses
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from pretrain import settings as schema
from pretrain.__main__ import main
from pretrain.config import Adafactor, Guard, load
from pretrain.host.host_memory import HostMemory
from pretrain.mesh.sharding import make_mesh
from pretrain.plan.compile import compile_update
from pretrain.settings.overrides import ConfigError
from pretrain.training import loop
from pretrain.training.memory import device_memory, memory_check
from pretrain.training.memory.device_memory import DeviceMemory, format_bytes
from pretrain.training.memory.exhaustion import MemoryExhausted, explain_exhaustion
from pretrain.training.memory.memory_estimate import estimate_memory
from pretrain.training.memory.remedies import change_run, find_remedies
from pretrain.training.program import make_program
from tests.pretrain.conftest import RUNS

GIB = 2**30
TOO_MUCH = 1 << 50  # [bytes] XLA refuses it on any machine


def make_one_device_mesh():
    return make_mesh(schema.Mesh(), jax.devices()[:1])


def set_memory(monkeypatch, total, available=None):
    """Give each device `total` bytes; without `available` all of it is free."""
    memory = DeviceMemory(total, total if available is None else available, "host (cpu)")
    for module in (device_memory, memory_check):
        monkeypatch.setattr(module, "find_local_memory", lambda mesh: memory)


def list_changes(line):
    """Return the changes that a line proposes, as lists of overrides."""
    (text,) = re.findall(r"What is estimated to fit: (.*?)(?:\. |\n|$)", line)
    return [words.split() for words in text.split("; or ")]


@pytest.fixture
def compilations():
    """Return a list that grows with each program that XLA compiles."""
    seen, is_open = [], [True]

    def note_event(name, seconds, **_):
        if is_open[0] and name.endswith("backend_compile_duration"):
            seen.append(name)

    jax.monitoring.register_event_duration_secs_listener(note_event)
    yield seen
    is_open[0] = False


# ---- the estimate --------------------------------------------------------------


@pytest.mark.held_by(1)
@pytest.mark.parametrize("optimizer", [None, Adafactor()])
@pytest.mark.parametrize(
    ("devices", "mesh"),
    [(1, schema.Mesh()), (8, schema.Mesh()), (8, schema.Mesh(data=1, fsdp=4, model=2))],
)
def test_the_counted_state_is_that_of_the_arrays(devices, mesh, optimizer):
    run = dataclasses.replace(RUNS["bert"], optimizer=optimizer or RUNS["bert"].optimizer)
    devices = make_mesh(mesh, jax.devices()[:devices])
    program = make_program(run, devices)
    state = program.init()

    def count_arrays(tree):
        return sum(
            shard.data.nbytes
            for leaf in jax.tree.leaves(tree)
            for shard in leaf.addressable_shards
            if shard.device == jax.devices()[0]
        )

    held = estimate_memory(run, devices, program, with_activations=False).held
    assert held["parameters"] == count_arrays(state.params) > 0
    assert held["optimizer"] == count_arrays(state.optimizer)
    batch = jax.tree.map(
        lambda leaf: jax.device_put(jnp.zeros(leaf.shape, leaf.dtype), leaf.sharding), program.batch
    )
    assert held["batch"] == count_arrays(batch)


@pytest.mark.held_by(1)
@pytest.mark.parametrize(("name", "microbatches"), [("bert", 1), ("t5", 4)])
def test_a_compiled_step_takes_what_is_certain_and_about_what_is_expected(name, microbatches):
    sizes = ["data.batch_size=512", f"train.microbatches={microbatches}"]
    run = change_run(RUNS[name], sizes)
    mesh = make_one_device_mesh()
    program = make_program(run, mesh)
    estimate = estimate_memory(run, mesh, program)
    sizes = compile_update(run, mesh, program).memory_sizes
    scalars = 4  # [bytes] the number of the step, which is not counted
    assert 0 <= sizes["argument"] - sum(estimate.held.values()) <= scalars
    taken = sizes["argument"] + sizes["temp"]
    assert estimate.certain <= taken
    assert estimate.activations > sum(estimate.held.values())  # so that they are what is compared
    # Without optimisation, as in all tests, XLA saves more than it needs.
    assert 0.3 < estimate.expected / taken < 1.5


def test_activations_follow_rows_microbatches_and_rematerialization():
    mesh, run = make_one_device_mesh(), RUNS["bert"]

    def count_activations(*overrides):
        return estimate_memory(change_run(run, overrides), mesh).activations

    whole = count_activations()
    assert count_activations("train.microbatches=2") == whole // 2
    assert count_activations("data.batch_size=64") == pytest.approx(2 * whole, abs=2)
    assert count_activations("model.remat=true") < whole / 2
    assert count_activations("train.compute_dtype=bfloat16") == pytest.approx(whole, rel=0.2)


# ---- the check -----------------------------------------------------------------


@pytest.mark.parametrize("keys", [["model.width=76800"], ["model.width=3072", "model.depth=60"]])
def test_a_model_that_cannot_fit_is_refused_before_anything_is_compiled_or_written(
    keys, tmp_path, capsys, monkeypatch, compilations
):
    set_memory(monkeypatch, 16 * GIB)
    monkeypatch.setattr(loop, "hold_lease", lambda *_: pytest.fail("the workdir was touched"))
    workdir, one = tmp_path / "run", jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda *_: one)
    assert main(["train", "bert_base", "--workdir", str(workdir), *keys]) == 2
    error = capsys.readouterr().err
    assert not workdir.exists() and not compilations
    assert error.startswith("error: a step needs at least ") and error.count("\n") == 1
    run, mesh = load("bert_base", keys), make_one_device_mesh()
    estimate = estimate_memory(run, mesh, with_activations=False)
    assert format_bytes(estimate.certain) in error and "host (cpu) has 16.00 GiB" in error
    # What it proposes passes on these devices, and without a warning.
    on_these = [words for words in list_changes(error) if "on" not in words]
    assert on_these
    for words in on_these:
        changed = load("bert_base", [*keys, *words])
        memory_check.check_memory(changed, mesh, make_program(changed, mesh))
    assert capsys.readouterr().err == ""


def test_more_devices_are_proposed_over_which_the_state_fits(monkeypatch):
    """The proposal of one device of the eight, checked on eight."""
    run = change_run(RUNS["bert"], ["data.batch_size=8"])
    mesh, eight = make_one_device_mesh(), make_mesh(schema.Mesh(data=1, fsdp=8))
    one_estimate = estimate_memory(run, mesh)
    eight_estimate = estimate_memory(run, eight)
    assert eight_estimate.certain < one_estimate.certain / 3
    (larger, *_) = find_remedies(run, mesh, eight_estimate.expected)
    assert larger == "mesh.data=1 mesh.fsdp=8 on 8 such devices"
    set_memory(monkeypatch, eight_estimate.expected)
    changed = change_run(run, larger.split(" on ")[0].split())
    memory_check.check_memory(changed, eight, make_program(changed, eight))


def test_a_model_without_a_width_is_not_made_narrower():
    """LeNet-5 cannot be made narrower, nor recompute: nothing helps where 64 KiB are left."""
    found = find_remedies(load("lenet_mnist"), make_one_device_mesh(), 1 << 16)
    assert not any("width" in words or "remat" in words for words in found)


def test_a_state_is_refused_from_its_first_byte_too_many(monkeypatch, capsys):
    mesh, run = make_one_device_mesh(), RUNS["bert"]
    program = make_program(run, mesh)
    certain = estimate_memory(run, mesh, program, with_activations=False).certain
    set_memory(monkeypatch, certain, available=0)  # others may free what they have
    memory_check.check_memory(run, mesh, program)
    assert capsys.readouterr().err.startswith("warning: a step takes about ")
    set_memory(monkeypatch, certain - 1)
    with pytest.raises(ConfigError, match="guard.memory_check=warn starts the run all the same"):
        memory_check.check_memory(run, mesh, program)
    assert capsys.readouterr().err == ""
    warned = dataclasses.replace(run, guard=Guard(memory_check="warn"))
    memory_check.check_memory(warned, mesh, program)
    line = capsys.readouterr().err
    assert line.startswith("warning: a step needs at least ") and line.count("\n") == 1
    memory_check.check_memory(
        dataclasses.replace(run, guard=Guard(memory_check="off")), mesh, program
    )
    assert capsys.readouterr().err == ""


def test_a_batch_that_may_not_fit_is_a_warning_whose_proposals_fit(monkeypatch, capsys):
    set_memory(monkeypatch, 16 * GIB)
    run, mesh = load("bert_base", ["data.batch_size=4096"]), make_one_device_mesh()
    memory_check.check_memory(run, mesh, make_program(run, mesh))
    line = capsys.readouterr().err
    assert line.startswith("warning: a step takes about ") and "16.00 GiB available" in line
    changes = list_changes(line)
    keys = {word.partition("=")[0] for words in changes for word in words}
    assert {"train.microbatches", "model.remat", "optimizer", "data.batch_size"} <= keys
    for words in changes:
        changed = change_run(run, words)
        memory_check.check_memory(changed, mesh, make_program(changed, mesh))
    assert capsys.readouterr().err == ""


def test_rows_longer_than_the_model_are_reported_as_before(configs, tmp_path, capsys):
    words = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), "model.length=8"]
    assert main(words) == 2
    assert "rows of 32 tokens are longer than the model's 8 positions" in capsys.readouterr().err


# ---- the memory ----------------------------------------------------------------


def test_an_accelerator_has_what_it_reports_or_what_is_published():
    reporting = SimpleNamespace(
        platform="gpu", device_kind="card", memory_stats=lambda: {"bytes_limit": 5 * GIB}
    )
    assert device_memory.find_device_memory(reporting) == (5 * GIB, 5 * GIB, "card")
    silent = SimpleNamespace(platform="tpu", device_kind="TPU v4", memory_stats=lambda: None)
    assert device_memory.find_device_memory(silent).total == 32 * GIB
    unknown = SimpleNamespace(platform="gpu", device_kind="card", memory_stats=dict)
    assert device_memory.find_device_memory(unknown) is None


def test_devices_of_a_cpu_share_its_memory(monkeypatch):
    monkeypatch.setattr(device_memory, "find_host_memory", lambda: HostMemory(16 * GIB, 8 * GIB))
    assert device_memory.find_device_memory(jax.devices()[0])[:2] == (2 * GIB, GIB)


def test_all_processes_compare_with_the_smallest_device(monkeypatch):
    set_memory(monkeypatch, 4 * GIB)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(device_memory.processes, "get_client", lambda: object())
    published = []

    def exchange(name, value, timeout):
        published.append(value)
        return [value, [2 * GIB, GIB, "other (cpu)"]]

    monkeypatch.setattr(device_memory, "exchange_values", exchange)
    found = device_memory.find_smallest_memory(make_one_device_mesh())
    assert found == (2 * GIB, GIB, "other (cpu)") and published == [
        [4 * GIB, 4 * GIB, "host (cpu)"]
    ]


# ---- exhausted memory ----------------------------------------------------------


def allocate_too_much(*_):
    return jnp.zeros(TOO_MUCH, jnp.int8).block_until_ready()


def raise_memory_error(*_):
    raise MemoryError("Unable to allocate 8.00 GiB for an array")


@pytest.mark.held_by(1)
@pytest.mark.parametrize("fail", [allocate_too_much, raise_memory_error])
def test_exhausted_memory_of_a_run_is_one_line_and_the_batch_may_be_corrected(
    fail, configs, tmp_path, capsys, monkeypatch
):
    workdir = tmp_path / "run"
    words = ["train", str(configs["bert"]), "--workdir", str(workdir), "evaluate.every=0"]
    words += ["train.stop_at_step=1"]
    monkeypatch.setattr(loop, "log_start", fail)  # after config.json is written
    assert main([*words, "data.batch_size=32"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: memory is exhausted (") and "a step takes about " in error
    if fail is allocate_too_much:
        assert "RESOURCE_EXHAUSTED" in error
    assert (workdir / "config.json").exists()
    proposed = [change for change in list_changes(error) if "data.batch_size" in change[0]]
    monkeypatch.undo()
    assert main([*words, *proposed[0]]) == 0
    assert "no step was finished; changed: data.batch_size: 32 -> " in capsys.readouterr().out


def test_what_is_proposed_after_exhaustion_takes_less_than_what_failed():
    run, mesh = RUNS["bert"], make_one_device_mesh()
    estimate = estimate_memory(run, mesh)
    changes = list_changes(memory_check.describe_exhausted_run(run, mesh))
    assert ["train.microbatches=4"] in changes or ["train.microbatches=2"] in changes
    for words in changes:
        less = estimate_memory(change_run(run, words), mesh).expected
        assert less <= estimate.expected - estimate.activations // 2


@pytest.mark.parametrize(
    "error",
    [
        jax.errors.JaxRuntimeError("INTERNAL: a bug"),
        ValueError('RESOURCE_EXHAUSTED: Error writing "1.0" in OCDBT database'),
    ],
)
def test_other_errors_pass(error):
    with pytest.raises(type(error)) as caught, explain_exhaustion(lambda: pytest.fail("asked")):
        raise error
    assert caught.value is error


def test_an_estimate_for_which_no_memory_is_left_is_not_an_error_of_its_own():
    with (
        pytest.raises(MemoryExhausted, match="8.00 GiB .*not even enough is left to estimate"),
        explain_exhaustion(raise_memory_error),
    ):
        raise_memory_error()


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["predict", "--workdir", "w", "text"], "--batch-size 16 (now 32)"),
        (["predict", "--workdir", "w", "text", "--beams", "4"], "--beams 2 (now 4)"),
        (
            ["evaluate", "--workdir", "w", "--dtype", "float32"],
            "a smaller --batch-size, or --dtype",
        ),
        (["finetune", "--from", "w", "--task", "rte", "--workdir", "v"], "with more memory"),
    ],
)
def test_exhausted_memory_of_other_commands_is_one_line(words, advice, capsys, monkeypatch):
    monkeypatch.setattr(f"pretrain.cli.{words[0]}.run", allocate_too_much)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: memory is exhausted (RESOURCE_EXHAUSTED: ")
    assert advice in error and error.count("\n") == 1


def test_a_batch_beyond_hope_is_refused(monkeypatch, capsys):
    run, mesh = change_run(RUNS["bert"], ["data.batch_size=4000000"]), make_one_device_mesh()
    small = change_run(RUNS["bert"], ["data.batch_size=4000"])
    program = make_program(run, mesh)
    estimate = estimate_memory(run, mesh, program)
    assert estimate.activations == pytest.approx(1000 * estimate_memory(small, mesh).activations)
    set_memory(monkeypatch, estimate.expected // 65)
    with pytest.raises(ConfigError, match=r"^a step takes about .* Nothing was compiled"):
        memory_check.check_memory(run, mesh, program)
    assert capsys.readouterr().err == ""
    warned = dataclasses.replace(run, guard=Guard(memory_check="warn"))
    memory_check.check_memory(warned, mesh, program)
    assert capsys.readouterr().err.startswith("warning: a step takes about ")
    set_memory(monkeypatch, estimate.expected // 63)
    memory_check.check_memory(run, mesh, program)
    assert capsys.readouterr().err.startswith("warning: a step takes about ")


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libjax_common.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
    ],
)
def test_an_address_space_that_is_full_is_exhausted_memory(error):
    with pytest.raises(MemoryExhausted, match="memory is exhausted"), explain_exhaustion(str):
        raise error
    with pytest.raises(RuntimeError), explain_exhaustion(str):
        raise RuntimeError("something else")
