"""The configuration in the sealed record of a checkpoint, compared with the workdir's."""

from typing import Any

from pretrain.config import Run, from_json
from pretrain.settings.fields import list_differences
from pretrain.workdir.checkpoint_record import read_record
from pretrain.workdir.workdir import Workdir

# A run may be continued with other values of these keys: they decide where and how often something
# is computed, not what. `describe_schedule` reports the effect of another train.steps.
CHANGEABLE_KEYS = (
    *("mesh.", "evaluate.", "checkpoint.", "watchdog."),
    *("guard.replicas", "guard.memory_check"),
    *("train.steps", "train.stop_at_step", "train.attention"),
    *("data.store", "data.threads", "data.prefetch", "data.feed"),
    *("model.remat", "model.encoder.remat"),
)


def list_changes(before: Run, after: Run) -> list[str]:
    """Return "key: old -> new" of the settings outside CHANGEABLE_KEYS that differ."""
    return [
        f"{key}: {old} -> {new}"
        for key, old, new in list_differences(before, after)
        if not key.startswith(CHANGEABLE_KEYS)
    ]


def read_newest_run(workdir: Workdir) -> tuple[int, Run] | None:
    """Return the step and the configuration of the newest checkpoint whose record is sound."""
    for step in workdir.list_steps():
        try:
            record = read_record(workdir / "checkpoints" / str(step))
        except OSError:  # damaged, unreadable or deleted meanwhile; restoring reports it
            continue
        return step, from_json(record["run"], where=f"{workdir}, step {step}")
    return None


def describe_other_run(workdir: Workdir, record: dict[str, Any]) -> str:
    """Return a line if the record of a checkpoint has other settings than the workdir; else "".

    Such a checkpoint is of another run, or of this one before its settings were changed.
    """
    if not workdir.has_config:
        return ""
    step = record["step"]
    run = from_json(record["run"], where=f"{workdir}, step {step}")
    changes = list_changes(run, workdir.run)
    if not changes:
        return ""
    return (
        f"note: checkpoint {step} was not made with the settings in {workdir}/config.json "
        f"({'; '.join(changes)}): it is of another run, or of this one before --allow-changes or "
        "an edit"
    )
