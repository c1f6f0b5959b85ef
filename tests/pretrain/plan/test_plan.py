"""Plans: the roofline by its formula, invalid machines, and two configurations compiled for TPUs
that are not attached.
"""

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from pretrain.cli.plan import format_facts
from pretrain.config import Mesh, load
from pretrain.host.extras import how_to_install
from pretrain.mesh.sharding import make_mesh
from pretrain.plan import estimate
from pretrain.plan import topology as machines
from pretrain.plan.collectives import Collective
from pretrain.plan.estimate import estimate_6nd, plan_run
from pretrain.plan.roofline import (
    compute_exchange_seconds,
    compute_link_rate,
    compute_roofline,
    format_share,
)
from pretrain.plan.topology import Machine
from pretrain.settings.overrides import ConfigError
from pretrain.training.accelerators import CHIPS
from pretrain.training.flops import count_step_flops
from pretrain.training.program import make_program
from tests import forks


class Device(SimpleNamespace):
    __hash__ = object.__hash__


def slice_of_chips(name, kind, slices=1):
    """Return a Machine and its mesh (all of it `fsdp`, the slices `data`) of made-up devices at
    their coordinates.
    """
    sides = [int(side) for side in name.partition(":")[2].split("x")]
    places = [tuple(int(i) for i in place[::-1]) for place in np.ndindex(*sides[::-1])]
    devices = [
        Device(device_kind=kind, platform="tpu", coords=place, slice_index=i)
        for i in range(slices)
        for place in places
    ]
    grid = np.empty((slices, len(places), 1), object)
    grid.reshape(-1)[:] = devices
    return Machine(name, devices, slices), SimpleNamespace(
        devices=grid, size=len(devices), axis_names=("data", "fsdp", "model")
    )


def test_a_mesh_may_split_the_sides_of_a_slice():
    """2 x 2 x 2 x 2 on 2 x 2 x 4 chips: two axes share a side."""
    machine, _ = slice_of_chips("v5p:2x2x4", "TPU v5")
    for device in machine.devices:
        device.core_on_chip = device.process_index = 0
    assert make_mesh(Mesh(2, 2, 2, 2), machine.devices).devices.shape == (2, 2, 2, 2)


def make_exchange(kind, size, group, count=1, overlapped=False):
    return Collective(kind, size, "bf16", tuple(group), ("fsdp",), count, overlapped, "", ())


@pytest.mark.parametrize(
    ("name", "kind", "group", "links"),
    [
        ("v5p:2x2x4", "TPU v5", range(16), 4),  # 1 + 1, and a ring of 4
        ("v5p:2x2x4", "TPU v5", (0, 4, 8, 12), 2),  # the ring
        ("v5p:2x2x4", "TPU v5", (0, 1), 1),
        ("v5e:4x4", "TPU v5 lite", range(16), 2),  # rings only in a whole pod
        ("v5e:16x16", "TPU v5 lite", range(256), 4),
        ("v4:4x4x4", "TPU v4", range(64), 6),
    ],
)
def test_the_links_of_a_group(name, kind, group, links):
    machine, mesh = slice_of_chips(name, kind)
    devices = [mesh.devices.flat[place] for place in group]
    assert compute_link_rate(devices, machine) == links * CHIPS[kind].link


def test_a_roofline_is_the_longest_of_four_plus_exposed_communication():
    machine, mesh = slice_of_chips("v5p:2x2x4", "TPU v5")
    hidden, bare = (
        make_exchange("all-gather", 4e9, range(16), count=3, overlapped=True),
        make_exchange("all-reduce", 1e9, range(16)),
    )
    work = (16 * 459e12 * 0.05, 14.336e12 * 0.03, 2765e9 * 0.02, [hidden, bare])
    roof = compute_roofline(*work, mesh, machine)
    assert roof.matmul == pytest.approx(0.05) and roof.memory == pytest.approx(0.02)
    assert roof.vector == pytest.approx(0.03)
    assert roof.hidden == pytest.approx(3 * 4e9 * 15 / 16 / 400e9)
    assert roof.exposed == pytest.approx(2 * 1e9 * 15 / 16 / 400e9)
    assert roof.bound_seconds == pytest.approx(0.05 + roof.exposed) and roof.bottleneck == "matmul"
    slow = dataclasses.replace(roof, vector=0.06)
    assert slow.bound_seconds == pytest.approx(0.06 + roof.exposed) and slow.bottleneck == "vector"


@pytest.mark.parametrize(
    ("kind", "rate"), [("TPU v4", 275e12), ("TPU v5 lite", 197e12), ("TPU v5", 459e12)]
)
def test_the_clock_of_the_vector_units_is_that_of_the_matrix_units(kind, rate):
    """Four matrix units of 128 x 128 for each core make the published peak at one clock."""
    ops_per_cycle = {"TPU v4": 2 * 128 * 16, "TPU v5 lite": 4096, "TPU v5": 2 * 4096}[kind]
    clock = CHIPS[kind].vector_rate / ops_per_cycle
    cores = 1 if kind == "TPU v5 lite" else 2
    assert cores * 4 * CHIPS[kind].matrix_unit ** 2 * 2 * clock == pytest.approx(rate, rel=0.002)


def test_no_share_of_the_peak_is_shown_above_all_of_it():
    assert [format_share(share, 1) for share in (0.5, 1.0, 1.001)] == [
        "50.0%",
        "100.0%",
        "over 100%",
    ]


def test_traffic_between_slices_uses_the_slower_network():
    """2 GB a chip, summed with three other slices': a ring sends 3/4 of them twice."""
    machine, mesh = slice_of_chips("v5p:2x2x1", "TPU v5", slices=4)
    one = make_exchange("all-reduce between slices", 2e9, (0, 4, 8, 12), count=3)
    assert compute_exchange_seconds(one, mesh, machine) == pytest.approx(
        3 * 2 * 2e9 * 3 / 4 / 6.25e9
    )


@pytest.mark.parametrize(
    "name",
    ["v7x:2x2x2", "v5p", "v5p:4x4", "v5e:4x4x4", "v5p:64x64x64", "v5e:0x4", "v5e:4xx4", "tpu"],
)
def test_invalid_slices_are_refused(name):
    with pytest.raises(ConfigError, match="is not the name of a TPU slice: v4:2x2x1"):
        machines.make_tpu_machine(name)


def test_phases_and_stairs_of_equal_shapes_are_planned_once(monkeypatch):
    """Their times add up by their own steps."""
    planned = []

    def plan_shape(run, machine, **_):
        planned.append((run.data.batch_size, run.data.objective.length))
        hours = {"days_bound": run.train.steps / 24, "chip_hours_bound": run.train.steps * 8.0}
        return {"fits": True, "steps": run.train.steps, **hours}

    monkeypatch.setattr(estimate, "plan_run", plan_shape)
    words = "phases.short.steps=30 phases.long.steps=12 phases.end.steps=8 data.batch_size=16 "
    words += "data.batch_ramp.start=8 data.batch_ramp.steps=10 phases.long.data.objective.length=32"
    run = load("bert_tiny", [*words.split(), "data.objective.max_predictions=6"])
    facts = estimate.plan_phases(run, Machine("8 fake CPU devices", jax.devices("cpu")))
    assert planned == [(8, 16), (16, 16), (16, 32)]
    phases = [(phase["name"], phase["steps"], phase["changes"]) for phase in facts["phases"]]
    assert phases == [
        *(("short", 10, ["data.batch_size=8"]), ("short", 20, [])),
        *(("long", 12, []), ("end", 8, [])),
    ]
    assert [phase["days_bound"] * 24 for phase in facts["phases"]] == pytest.approx([10, 20, 12, 8])
    assert facts["fits"] and facts["steps"] == 50
    assert facts["days_bound"] * 24 == pytest.approx(50) and facts["chip_hours_bound"] == 400


@pytest.mark.more
def test_a_plan_of_phases_is_printed_phase_by_phase():
    words = "phases.short.steps=30 phases.long.steps=12 phases.long.data.batch_size=8"
    small = "model.depth=1 model.width=16 model.mlp=32 model.num_heads=2 model.vocab=64"
    run = load("bert_tiny", [*words.split(), *small.split(), "data.batch_size=16"])
    machine = Machine("8 fake CPU devices", jax.devices("cpu"))
    facts = estimate.plan_phases(run, machine, evaluation=False)
    assert [phase["tokens_per_step"] for phase in facts["phases"]] == [256, 128]
    printed = "\n".join(format_facts("bert_tiny", run, facts))
    assert "bert_tiny, phase short, " in printed and "bert_tiny, phase long, " in printed


def test_a_machine_without_the_tpus_compiler_is_advised_what_to_install(monkeypatch):
    from jax.experimental import topologies

    def raise_absent(**_):
        raise RuntimeError("Failed to open libtpu.so: no such file")

    monkeypatch.setattr(topologies, "get_topology_desc", raise_absent)
    with pytest.raises(ConfigError, match=f"{re.escape(how_to_install('plan'))}.*--mesh N"):
        machines.make_tpu_machine("v5p:2x2x4")


def run_plan(root, *words, run=subprocess.run, **options):
    """Return the JSON of a plan, made by a separate process: libtpu reads its settings once."""
    done = run(
        [sys.executable, "-m", "pretrain", "plan", *words, "--json"],
        cwd=root,
        capture_output=True,
        text=True,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def plan_for_tpu(root):
    """Return plan_for_tpu(*words): the JSON of a plan, each of one process that makes them all."""
    words = [sys.executable, "-m", "tests.pretrain.plan.planner"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with subprocess.Popen(words, cwd=root, **pipes) as planner:

        def make_plan(*words):
            print(json.dumps([*words, "--json"]), file=planner.stdin, flush=True)
            line = planner.stdout.readline()
            assert line, f"the planner ended with status {planner.wait()}; its error is above"
            status, output = json.loads(line)
            assert status == 0, "the plan's error is above"
            return json.loads(output)

        yield make_plan
        planner.stdin.close()
        assert planner.wait(60) == 0


@pytest.mark.held_by(1)
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu, the TPU's compiler, is not installed (Linux only)",
)
@pytest.mark.parametrize(
    ("config", "words", "attention"),
    [
        (
            "bert_tiny",
            "mesh.data=1 mesh.fsdp=2 mesh.model=2 model.attention_dropout=0 data.objective.length=128 model.length=128".split(),
            ["Splash"],
        ),
        (  # the kernel inside of the exchange's shard_map
            "bert_tiny",
            "mesh.data=2 mesh.fsdp=2 model.attention_dropout=0 data.objective.length=128 model.length=128".split(),
            ["Splash"],
        ),
        (  # its fixed pattern is a static mask of the kernel, another in each head
            "sparse_transformer_tiny",
            "mesh.data=1 mesh.fsdp=2 mesh.model=2 model.depth=1 data.objective.length=256 model.length=256".split(),
            ["Splash"],
        ),
        (
            "t5_mini",
            "mesh.data=2 mesh.fsdp=2 model.depth=1 model.decoder_depth=1 model.dropout=0".split(),
            [
                "whole-row kernel: Splash cannot add a bias to the scores",
                "whole-row kernel: Splash takes multiples of 128 positions on each device, not 29 positions on 1 devices",
            ],
        ),
    ],
)
def test_a_configuration_is_compiled_for_a_slice(plan_for_tpu, tmp_path, config, words, attention):
    facts = plan_for_tpu(
        config,
        *words,
        "train.compute_dtype=bfloat16",
        "--topology",
        "v5e:2x2",
        "--quick",
        "--price",
        "1.5",
        "--output",
        str(tmp_path / "plan.json"),
    )
    assert json.loads((tmp_path / "plan.json").read_text()) == facts
    assert (
        facts["fits"]
        and facts["chips"] == 4
        and facts["warnings"] == [] == facts["gathered_against_the_rules"]
    )
    sizes = facts["bytes_per_chip"]
    assert sizes["optimizer"] == pytest.approx(
        2 * sizes["parameters"], rel=1e-3
    )  # Adam's two moments
    parts = [sizes[name] for name in ("parameters", "optimizer", "batch", "temporary")]
    assert sum(parts) == sizes["peak"] and min(parts) > 0
    assert (
        sizes["parameters"] + sizes["optimizer"]
        < sizes["peak"]
        < sizes["limit"]
        == sizes["peak"] + sizes["headroom"]
    )
    assert facts["attention"] == {"update": attention, "score": attention}
    assert (
        facts["flops_computed"] >= facts["flops_per_step"]
        and 1 < facts["flops_per_step"] / facts["flops_6nd"] < 2
    )
    (way, *_) = facts["exchange"]
    assert ("once a step, in bfloat16" in way) == ("mesh.model=2" not in words)
    # Every parameter is gathered in bf16 once or in each pass, and its gradient reduced, over half
    # of the chips.
    assert facts["interconnect_bytes_per_step"] > 1.5 * sizes["parameters"] / 2
    assert (
        {"fsdp"}
        <= {axis for one in facts["collectives"] for axis in one["axes"]}
        <= {"data", "fsdp", "model"}
    )
    roof = facts["roofline"]
    assert facts["step_seconds_bound"] == pytest.approx(
        max(roof[name] for name in ("matmul", "vector", "memory", "hidden")) + roof["exposed"]
    )
    assert 0 < roof["vector"] < facts["step_seconds_bound"]
    assert roof["matmul"] >= facts["flops_computed"] / (4 * 197e12)
    assert 0 < facts["floor_share"] < 1
    assert facts["floor_share"] * facts["step_seconds_bound"] == pytest.approx(
        max(facts["floor"].values())
    )
    assert facts["visible_mfu_bound"] <= facts["hfu_bound"] <= 1
    assert facts["mfu_bound"] == pytest.approx(
        facts["flops_per_step"] / (4 * 197e12 * facts["step_seconds_bound"])
    )
    assert facts["cost_bound"] == pytest.approx(facts["chip_hours_bound"] * 1.5)


@pytest.mark.more
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu, the TPU's compiler, is not installed (Linux only)",
)
def test_two_slices_exchange_gradients_and_nothing_else(root):
    """Each of a slice's 4 chips sends a quarter of the gradients to the other slice. The table is
    embedding and output layer; its two gradients are added before they cross.

    The verb is a command here, without the tests' settings of XLA.
    """
    facts = run_plan(
        root,
        "bert_tiny",
        "data.batch_size=128",
        "--topology",
        "v5p:2x2x1",
        "--slices",
        "2",
        "--quick",
        env={key: value for key, value in os.environ.items() if key != "XLA_FLAGS"},
    )
    assert facts["slices"] == 2 and facts["mesh"]["data"] == 8 and facts["step_seconds_bound"] > 0
    crossing = [one for one in facts["collectives"] if one["kind"].endswith("between slices")]
    assert {(one["kind"], one["devices"], *one["axes"]) for one in crossing} == {
        ("all-reduce between slices", 2, "data")
    }
    crossed = sum(one["bytes"] * one["count"] for one in crossing)
    assert crossed == pytest.approx(facts["bytes_per_chip"]["parameters"] / 4, rel=0.05)


def test_without_the_tpus_compiler_fake_devices_show_shardings_and_exchanges(root):
    plan = partial(run_plan, root, run=forks.run)
    facts = plan("bert_tiny", "mesh.data=2", "mesh.fsdp=4", "--mesh", "8")
    assert (
        facts["fits"]
        and facts["kind"] == "cpu"
        and facts["step_seconds_bound"] is None
        and facts["bytes_per_chip"]["limit"] is None
    )
    total = facts["bytes_per_chip"]["parameters"]
    alone = plan("bert_tiny", "mesh.data=1", "--mesh", "1")
    assert alone["collectives"] == [] and alone["flops_per_step"] == facts["flops_per_step"]
    assert 3 < alone["bytes_per_chip"]["parameters"] / total <= 4


def test_a_plan_says_what_muon_gathers():
    """AdamW sends as much less; where each device has whole matrices, Muon sends nothing more."""
    machine = Machine("fake", jax.devices()[:4])
    small = [
        "model.depth=1",
        "model.width=32",
        "model.mlp=64",
        "model.vocab=128",
        "data.batch_size=4",
    ]

    def plan(*words):
        run = load("bert_tiny", [*small, *words])
        facts = plan_run(run, machine, evaluation=False)
        return facts, "\n".join(format_facts("bert_tiny", run, facts))

    over = ("mesh.data=1", "mesh.fsdp=4")
    (muon, text), (adamw, other) = (plan(f"optimizer={name}", *over) for name in ("muon", "adamw"))
    sent = muon["muon_bytes_per_step"]
    least = muon["interconnect_bytes_per_step"] - adamw["interconnect_bytes_per_step"]
    assert sent == pytest.approx(least, rel=0.01) and sent > 2e5
    assert f"muon         sends {sent / 2**30:.4f} GiB of these" in text
    assert adamw["muon_bytes_per_step"] == 0 and "muon" not in other
    assert plan("optimizer=muon", "mesh.data=4")[0]["muon_bytes_per_step"] == 0


def test_the_usual_estimate_counts_tokens_and_patches_of_images():
    """6ND is a little below the FLOPs of the matmuls: scores of attention are not in it."""
    run = load("vit_mnist", ["data.batch_size=8", "data.store=none"])
    mesh = make_mesh(run.mesh, jax.devices()[:1])
    estimate = estimate_6nd(make_program(run, mesh), run)
    assert 1 < count_step_flops(run).all_pairs / estimate < 1.1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--topology T, a TPU slice such as v5p:2x2x4, or --mesh N"),
        (["--topology", "v5e:4x4", "--mesh", "8"], "either"),
        (["--topology", "v5x:4x4"], "'v5x:4x4' is not the name of a TPU slice"),
        (["--mesh", "2", "--slices", "4"], "--slices 4 needs --topology T"),
        (["--topology", "v5e:4x4", "--slices", "-1"], "--slices -1: must be at least 1"),
        (["--topology", "v5e:4x4", "--slices", "0"], "--slices 0: must be at least 1"),
        (["--mesh", "-2"], "--mesh -2: must be at least 1"),
        (["--mesh", "8", "--search", "--price", "2"], "--price has no effect with --search"),
        (["--mesh", "8", "--price", "2"], "--price has no effect with --mesh"),
        (["--topology", "v5e:4x4", "--price", "nan"], "--price nan: must be a number from 0 on"),
        (["--mesh", "8", "--search", "mesh.sequence=3"], "leave no mesh of 8 devices to try"),
        (["--mesh", "8", "--output", "absent/f"], "--output absent/f: must be a file in a folder"),
        (["--mesh", "8", "data.batch_size=12"], "data.batch_size=12 does not divide"),
    ],
)
def test_a_wrong_argument_is_one_error(capsys, monkeypatch, words, message):
    from pretrain.__main__ import main

    monkeypatch.setattr(machines, "configure_environment", lambda: None)
    monkeypatch.setattr(
        machines, "make_cpu_machine", lambda count: Machine("fake", jax.devices()[:count])
    )
    assert main(["plan", "bert_tiny", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_compiler_is_named_with_its_extra(monkeypatch):
    """JAX says "TPU support not installed", without a word of what to install."""
    from jax.experimental import topologies

    from pretrain.plan import topology

    def refuse(**options):
        raise RuntimeError("JAX TPU support not installed; cannot generate TPU topology.")

    monkeypatch.setattr(topologies, "get_topology_desc", refuse)
    monkeypatch.setattr(topology.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"not installed.*install it: .*\[plan\]"):
        topology.make_tpu_machine("v4:2x2x4")
