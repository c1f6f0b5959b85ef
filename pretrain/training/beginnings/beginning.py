"""The workdir of a run that begins with the parameters of another model."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np

from data.corpus.paths import is_remote
from data.images.encoding import ImageEncoding
from data.source import Source
from data.store.kinds import open_source
from models import build
from models.config.base import ImageConfig, ModelConfig, PatchConfig
from models.layers.layer_layout import flatten_params, match_layout, unstack_layers
from pretrain.config import Run, print_notice
from pretrain.families import FAMILIES, find_family
from pretrain.families.family_record import Family
from pretrain.settings.overrides import ConfigError
from pretrain.training.beginnings.branch import start_branch
from pretrain.training.beginnings.given import GivenModel, open_given
from pretrain.training.beginnings.new_vocabulary import change_vocabulary
from pretrain.training.beginnings.patches import take_body
from pretrain.training.beginnings.tiling import check_tiling, tile_params
from pretrain.training.fits.model_fit import check_fit
from pretrain.training.new_workdir import name_folder, report_other_origin, start_workdir
from pretrain.training.state import init_params
from pretrain.workdir.workdir import Workdir

# Fields that say how a model is computed, not what.
COMPUTED = ("scan", "remat")


def start_from(
    run: Run,
    workdir: str,
    place: str,
    *,
    step: int | None = None,
    with_optimizer: bool = False,
    tile: bool = False,
    new_rows: str | None = None,
    keeps_vocab: bool = False,
    source: Source | None = None,
) -> Run:
    """Create a workdir with the parameters of the model in `place`; return the run.

    Of images the body is taken, and the head is random. Of texts all is taken. A workdir that
    exists is left as it is, to be resumed.

    Args:
      run: the run as configured. Its `model.vocab` follows the model in `place`.
      workdir: the folder of the run.
      place: a workdir, a Hugging Face folder, or hf://USER/NAME.
      step: the step of a workdir's checkpoint; None: the newest.
      with_optimizer: whether the run goes on from that step: with the optimizer's state, the count
        of steps and the next unread row.
      tile: whether the weights are tiled to a larger model.
      new_rows: `pieces` or `mean`, for rows of another vocabulary; None: it must be the same.
      keeps_vocab: whether `model.vocab` stays as it is.
      source: what to train on; None: the store in `run.data.store`.

    Raises:
      ConfigError: the two models do not fit, or the data does not fit the run.
      ValueError: the workdir is remote, or this process is one of several.
    """
    if (existing := Workdir.open(workdir)).has_config:
        report_other_origin(existing, place, step)
        return run if keeps_vocab else follow_vocab(run, existing.run.model)
    check_one_process(workdir)
    given = open_given(place, step)
    check_kinds(run.model, given)
    if isinstance(run.model, ModelConfig) and not (keeps_vocab or new_rows):
        run = follow_vocab(run, given.config, place)
    source = source or open_source(run.data.store)
    check_fit(run, source)
    if with_optimizer:
        check_same_model(run, source, given)
        start_branch(run, workdir, given, source)
        return run
    if isinstance(run.model, PatchConfig):
        params, new = take_body(run, given.place, given.params)
    else:
        given = fit_vocabulary(run, workdir, given, source, new_rows)
        params, new = take_all(run, given, tile), list(given.missing)
    origin = {"folder": name_folder(place), "pretrained_step": given.step, "fresh": new}
    origin |= {"new_rows": new_rows} if new_rows else {}
    start_workdir(workdir, run, params, source.encoding, origin)
    verb, fresh = "are tiled" if tile else "come", ", ".join(new) or "none"
    print(f"{workdir}: parameters {verb} from {given.origin}; initialized at random: {fresh}")
    return run


def check_one_process(workdir: str) -> None:
    """Raise ValueError unless this is one process, and the workdir is on this machine."""
    if is_remote(workdir) or jax.process_count() > 1:
        raise ValueError(
            "--from begins a run in one process, in a folder of this machine; without --from the "
            "same command resumes it anywhere"
        )


def check_same_model(run: Run, source: Source, given: GivenModel) -> None:
    """Raise ConfigError unless a run has the vocabulary and the parameters of the given model."""
    if isinstance(run.model, PatchConfig):
        return  # the checkpoint names what differs
    check_vocabulary(source, given)
    take_all(run, given, tile=False)


def check_kinds(model: Any, given: GivenModel) -> None:
    """Raise ConfigError unless a model has the parameters of the given one, whatever the sizes."""
    kinds = type(model).__name__, type(given.config).__name__
    if isinstance(model, PatchConfig) and isinstance(given.config, PatchConfig):
        return
    if isinstance(model, ImageConfig) or isinstance(given.config, ImageConfig):
        raise ConfigError(
            f"--from: {given.place} has a {kinds[1]}, and the configuration a {kinds[0]}; of "
            "images, models of patches begin with each other's parameters"
        )
    if not isinstance(model, ModelConfig) or not isinstance(given.config, ModelConfig):
        raise ConfigError(
            f"--from: {given.place} has a {kinds[1]}, and the configuration a {kinds[0]}; models "
            "with a head begin by `finetune --from`"
        )
    fitting = find_twins(find_family(model))
    if find_family(given.config).name not in fitting:
        names = " or ".join(FAMILIES[name].config.__name__ for name in fitting)
        raise ConfigError(
            f"--from: {given.place} has a {kinds[1]}, and a {kinds[0]} begins with the parameters "
            f"of a {names}"
        )


def find_twins(family: Family) -> list[str]:
    """Return the names of the families with the same parameters, its own first."""
    others = [
        other.name
        for other in FAMILIES.values()
        if family.name == other.twin or other.name == family.twin
    ]
    return [family.name, *others]


def follow_vocab(run: Run, other: Any, place: str = "") -> Run:
    """Return a run with the `model.vocab` of another model; `place`: what a notice names."""
    model: Any = run.model
    if not isinstance(other, ModelConfig) or model.vocab == other.vocab:
        return run
    if place:
        print_notice(f"model.vocab={other.vocab} follows {place} ({model.vocab} before)")
    return dataclasses.replace(run, model=dataclasses.replace(model, vocab=other.vocab))


def fit_vocabulary(
    run: Run, workdir: str, given: GivenModel, source: Source, new_rows: str | None
) -> GivenModel:
    """Return the given model with the rows of a source's vocabulary, and print what they are.

    Raises ConfigError for another vocabulary, unless `new_rows` says what its rows begin with.
    """
    if not new_rows:
        check_vocabulary(source, given)
        return given
    given, rows = change_vocabulary(run, given, source.encoding, new_rows)
    print(f"{workdir}: {rows}")
    return given


def check_vocabulary(source: Source, given: GivenModel) -> None:
    """Raise ConfigError unless the ids of a source are the ids that the given model knows."""
    assert not isinstance(given.encoding, ImageEncoding)
    if source.encoding.fingerprint != given.encoding.fingerprint:
        raise ConfigError(
            f"--from: {source.path} has another vocabulary than {given.place}, so its ids would "
            f"mean other tokens: prepare it with `--vocabulary {given.place}`, or add --new-rows "
            "pieces to begin with this vocabulary"
        )


def take_all(run: Run, given: GivenModel, tile: bool) -> dict[str, Any]:
    """Return the parameters of a run of texts, all of which come from the given model.

    Raises ConfigError unless the sizes fit.
    """
    init = partial(init_params, build(run.model), run.data.objective, run.train.seed)
    changes = list_field_changes(given.config, run.model)
    if tile:
        family = find_family(run.model)
        check_tiling(family, run.model, given.config)
        initial = jax.device_get(jax.jit(init)())
        params = tile_params(family, run.model, given.config, given.params, initial)
    else:
        # Arrays of the right shapes that take no memory.
        initial = jax.tree.map(
            lambda leaf: np.broadcast_to(np.float32(0), leaf.shape), jax.eval_shape(init)
        )
        if other := list_other_shapes(list_shapes(given.params), list_shapes(initial)):
            raise ConfigError(
                f"--from: the configuration has other sizes than {given.place}: "
                f"{'; '.join(other + changes)}. Give both models the same sizes"
                + (", or add --tile to begin with tiled weights" if can_grow(run, given) else "")
            )
        params = match_layout(given.params, initial)
    for change in changes:
        print(f"changed from {given.place}: {change}")
    return params


def can_grow(run: Run, given: GivenModel) -> bool:
    """Return whether --tile would accept both models."""
    try:
        check_tiling(find_family(run.model), run.model, given.config)
    except ConfigError:
        return False
    return True


def list_shapes(params: Any) -> dict[str, tuple[int, ...]]:
    """Return {path: shape} of all parameters, the layers unstacked."""
    return {path: leaf.shape for path, leaf in flatten_params(unstack_layers(params)).items()}


def list_other_shapes(
    before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]], limit: int = 3
) -> list[str]:
    """Return "path: [shape] -> [shape]" of the first `limit` parameters that differ."""
    paths = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    lines = [
        f"{path}: "
        + " -> ".join(str([*s[path]]) if path in s else "absent" for s in (before, after))
        for path in paths[:limit]
    ]
    return lines + ([f"{len(paths) - limit} more parameters"] if len(paths) > limit else [])


def list_field_changes(before: Any, after: Any) -> list[str]:
    """Return "key: old -> new" of the fields that both configurations have."""
    fields = [{field.name for field in dataclasses.fields(config)} for config in (before, after)]
    names = [f.name for f in dataclasses.fields(after) if f.name in fields[0] - {*COMPUTED}]
    values = [(name, getattr(before, name), getattr(after, name)) for name in names]
    return [f"model.{name}: {old} -> {new}" for name, old, new in values if old != new]
