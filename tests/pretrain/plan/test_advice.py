"""The remedies of `plan`: which are tried, in which order, and which are shown; a formula replaces
the compiler.
"""

import jax
import pytest

from pretrain.config import load
from pretrain.mesh.sharding import make_mesh
from pretrain.plan import advice
from pretrain.plan.topology import Machine
from pretrain.settings.overrides import ConfigError

pytestmark = pytest.mark.fast

GIB = 2**30
SIXTEEN = Machine("v5p:2x2x4", [None] * 16)


def simulate_run(run, machine, evaluation, quick):
    """Memory falls with micro-batches, remat and sharded parameters; time rises with the first two,
    and with `model`.
    """
    m, devices = run.mesh, len(machine.devices)
    data = devices // (m.fsdp * m.model) if m.data == -1 else m.data
    fsdp = devices // (data * m.model) if m.fsdp == -1 else m.fsdp
    if data * fsdp * m.model != devices or run.data.batch_size % (
        data * fsdp * run.train.microbatches
    ):
        raise ConfigError("does not divide")
    activations = 64 * (0.25 if run.model.remat else 1) / run.train.microbatches
    peak = (activations + 32 / fsdp / m.model) * GIB
    seconds = (
        (1 + 0.3 * run.model.remat) * (1 + 0.1 * run.train.microbatches) * (1 + 0.5 * (m.model - 1))
    )
    return {
        "fits": peak < 20 * GIB,
        "bytes_per_chip": {"peak": peak},
        "step_seconds_bound": seconds,
        "mfu_bound": 0.5 / seconds,
        "mesh": (data, fsdp, m.model),
        "exchange": ["once a step", "odd parts"] if fsdp == devices else ["once a step"],
    }


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(advice, "plan_run", simulate_run)


def test_remedies_are_tried_from_the_cheapest_until_one_fits():
    messages = []
    tried = advice.try_remedies(load("bert_base"), SIXTEEN, messages.append)
    assert [one["words"] for one in tried] == [
        ["mesh.data=1", "mesh.fsdp=-1"],
        ["mesh.data=1", "mesh.fsdp=-1", "model.remat=true"],
    ]
    assert [one["plan"]["fits"] for one in tried] == [False, True]
    assert (
        "does not fit (66.00 GiB a chip)" in messages[0]
        and "fits (18.00 GiB a chip), at least 1430.0 ms a step" in messages[1]
    )


def test_a_model_without_a_choice_is_not_asked_to_recompute():
    """LeNet-5 and encoders of words have no `remat`."""
    for name in ("lenet_mnist", "textcnn"):
        words = [" ".join(words) for words in advice.iterate_remedies(load(name), 16)]
        words += [" ".join(words) for words in advice.iterate_variants(load(name), 16)]
        assert words and not any("remat" in line for line in words)


def test_micro_batches_come_before_splitting_layers(monkeypatch):
    tight = Machine("v5p:2x2x4", [None] * 16)
    monkeypatch.setattr(advice, "plan_run", lambda *a, **k: simulate_run(*a, **k) | {"fits": False})
    words = [
        " ".join(one["words"])
        for one in advice.try_remedies(load("bert_base"), tight, lambda line: None)
    ]
    first_model = next(i for i, line in enumerate(words) if "mesh.model" in line)
    assert "train.microbatches=2" in words[2] and all(
        "microbatches" in line for line in words[2:first_model]
    )
    assert not any("microbatches=32" in line for line in words)  # 256 rows do not divide by 16 x 32


def test_the_search_leaves_devices_for_the_positions():
    run = load("bert_tiny", ["mesh.data=1", "mesh.sequence=4"])
    found = list(advice.iterate_variants(run, 8))
    assert found
    for words in found:
        sizes = make_mesh(advice.override_run(run, words).mesh, jax.devices()).shape
        assert sizes["sequence"] == 4


def test_the_search_gives_the_fastest_that_fit():
    messages = []
    found = advice.search_variants(load("bert_base"), SIXTEEN, messages.append, max_variants=3)
    bounds = [one["plan"]["step_seconds_bound"] for one in found]
    assert (
        len(found) == 3 and bounds == sorted(bounds) and all(one["plan"]["fits"] for one in found)
    )
    everything = list(advice.iterate_variants(load("bert_base"), 16))
    assert len({tuple(words) for words in everything}) == len(everything)
    fitting = [
        facts
        for words in everything
        if (
            facts := simulate_run(
                advice.override_run(load("bert_base"), words), SIXTEEN, False, False
            )
        )["fits"]
    ]
    assert bounds[0] == min(facts["step_seconds_bound"] for facts in fitting)
    meshes = {tuple(words[:3]) for words in everything}
    assert ("mesh.data=16", "mesh.fsdp=1", "mesh.model=1") in meshes and (
        "mesh.data=1",
        "mesh.fsdp=4",
        "mesh.model=4",
    ) in meshes
    splits = {words[1] for words in everything if words[2] == "mesh.model=1"}
    assert splits == {f"mesh.fsdp={2**power}" for power in range(5)}
    for line in messages:
        assert line.endswith("; odd parts") == ("mesh.fsdp=16 " in line), line


def test_a_search_of_which_nothing_compiles_says_so(monkeypatch):
    """Not that nothing fits: memory is not what is missing."""

    def refuse(*arguments, **options):
        raise ConfigError("data.objective.length=512: the model has 128 positions")

    monkeypatch.setattr(advice, "plan_run", refuse)
    messages = []
    with pytest.raises(ConfigError, match=r"^none of the \d+ configurations .* 128 positions$"):
        advice.search_variants(load("bert_base"), SIXTEEN, messages.append)
    assert messages
