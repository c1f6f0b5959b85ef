"""A fine-tuning that begins with an adapter of `peft`: its settings, its factors and its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pretrain.settings.overrides import ConfigError

if TYPE_CHECKING:
    from pretrain.config import Run
    from pretrain.workdir.workdir import Workdir


def read_lora_settings(folder: str, model: Any) -> dict[str, Any]:
    """Return the fields of `Train` that an adapter of `peft` sets for a model."""
    from pretrain.convert.adapter_folder import find_adapter_targets, open_adapter

    adapter = open_adapter(folder)
    targets = find_adapter_targets(adapter, model)
    return {
        "lora_rank": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": adapter.dropout,
        "lora_targets": targets,
    }


def check_lora_settings(folder: str | None, base: Run, requested: Run) -> None:
    """Raise ValueError if the command line changes a setting that the adapter of a folder has."""
    for name in ("lora_rank", "lora_alpha", "lora_targets") if folder else ():
        own, other = getattr(base.train, name), getattr(requested.train, name)
        if own != other:
            raise ValueError(f"train.{name}={other}: the adapter {folder} has {own}; leave it out")


def describe_adapter(folder: str | None) -> dict[str, Any]:
    """Return what origin.json says of the adapter that a run begins with."""
    from pretrain.convert.adapter_folder import open_adapter
    from pretrain.training.new_workdir import name_folder

    if not folder:
        return {}
    return {"adapter": name_folder(folder), "adapter_digest": open_adapter(folder).digest}


def check_adapter(workdir: Workdir, folder: str | None) -> None:
    """Raise ConfigError if a fine-tuning that exists began with an adapter of other contents."""
    origin, given = workdir.read_origin() or {}, describe_adapter(folder)
    if origin.get("adapter_digest") != given.get("adapter_digest"):
        raise ConfigError(
            f"{workdir} began with the adapter {origin.get('adapter', 'none')}, not with "
            f"{folder or 'none'}: give the --adapter that it began with, or name another --workdir"
        )


def add_adapter(folder: str, run: Run, params: Any) -> tuple[dict[str, Any], bool]:
    """Return (parameters with the factors of an adapter, whether it has the head, too)."""
    import jax

    from pretrain.convert.adapter_folder import fill_adapter, open_adapter
    from pretrain.training.optimizers.factors import add_factors

    adapted = jax.device_get(jax.jit(lambda tree: add_factors(run, tree))(params))
    return fill_adapter(open_adapter(folder), run.model, adapted)
