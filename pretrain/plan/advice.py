"""What would fit, and what would be faster: variants of a run, each compiled, none estimated."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator

from pretrain.config import Mesh, override
from pretrain.overrides import ConfigError
from pretrain.plan.estimate import plan


def what_would_fit(run, machine, say: Callable[[str], None], quick: bool = False) -> list[dict]:
    """Try what saves memory, the cheapest remedy first, until one fits: [{words, plan}] of all that were tried."""
    tried = []
    for words in remedies(run, len(machine.devices)):
        try:
            facts = plan(override(run, words), machine, evaluation=False, quick=quick)
        except (ConfigError, ValueError):
            continue  # does not divide on this mesh
        tried.append({"words": words, "plan": facts})
        say(f"  {' '.join(words)}: {verdict(facts)}")
        if facts["fits"]:
            break
    return tried


def remedies(run, devices) -> Iterator[list[str]]:
    """`path=value` words that need less memory than the run, the least costly first."""
    words = []
    if run.mesh.fsdp not in (-1, devices) and run.mesh.model == 1:
        words = ["mesh.data=1", "mesh.fsdp=-1"]  # costs exchanges, most of them hidden
        yield list(words)
    if not run.model.remat:
        words = words + ["model.remat=true"]  # costs a second forward pass
        yield list(words)
    for factor in (2, 4, 8, 16):
        yield words + [f"train.microbatches={run.train.microbatches * factor}"]
    for model in (2, 4, 8):
        if devices % model == 0:
            yield [word for word in words if not word.startswith("mesh")] + [
                "mesh.data=1",
                "mesh.fsdp=-1",
                f"mesh.model={model}",
            ]


def search(
    run, machine, say: Callable[[str], None], quick: bool = False, best: int = 5
) -> list[dict]:
    """Compile meshes x micro-batches x remat and return the `best` that fit, by their bound: [{words, plan}].

    Meshes: all data, all fsdp, and squares of the two, each with 1, 2 and 4 (8 for many devices) on `model`.
    """
    found = []
    candidates = list(variants(run, len(machine.devices)))
    for number, words in enumerate(candidates, 1):
        try:
            facts = plan(override(run, words), machine, evaluation=False, quick=quick)
        except (ConfigError, ValueError) as error:
            say(f"{number}/{len(candidates)}  {' '.join(words)}: {error}")
            continue
        say(f"{number}/{len(candidates)}  {' '.join(words)}: {verdict(facts)}")
        found.append({"words": words, "plan": facts})
    fitting = [one for one in found if one["plan"]["fits"]]
    return sorted(fitting, key=lambda one: one["plan"]["step_seconds_bound"] or math.inf)[:best]


def variants(run, devices) -> Iterator[list[str]]:
    """The words of each candidate."""
    models = [
        model
        for model in (1, 2, 4, 8)
        if devices % model == 0
        and model <= max(4, devices // 8)
        and run.model.num_heads % model == 0
    ]
    for model, microbatches, remat in itertools.product(models, (1, 2, 4), (False, True)):
        rest = devices // model
        for fsdp in sorted({1, 2 ** (int(math.log2(rest)) // 2), rest}):
            mesh = (rest // fsdp, fsdp, model) if rest % fsdp == 0 else None
            if mesh is None or run.data.batch_size % (microbatches * rest):
                continue
            yield [
                *(
                    f"mesh.{field.name}={size}"
                    for field, size in zip(dataclasses.fields(Mesh), mesh)
                ),
                f"train.microbatches={microbatches}",
                f"model.remat={str(remat).lower()}",
            ]


def verdict(facts) -> str:
    """A plan in a line."""
    sizes = facts["bytes_per_chip"]
    peak = f"{sizes['peak'] / 2**30:.2f} GiB a chip" if sizes["peak"] else "more than there is"
    if not facts["fits"]:
        return f"does not fit ({peak})"
    if facts["step_seconds_bound"] is None:
        return f"fits ({peak})"
    return f"fits ({peak}), at least {facts['step_seconds_bound'] * 1e3:.1f} ms a step, MFU at most {facts['mfu_bound']:.0%}"
