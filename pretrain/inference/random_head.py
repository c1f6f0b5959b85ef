"""A check against the use of a random head, which an imported folder did not contain."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pretrain.convert import find_model_family
from pretrain.convert.head_maps import list_unread_modules
from pretrain.convert.weight_values import make_printable
from pretrain.settings.verb_options import VerbOptions, option

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

FLAG = "--allow-random-head"
STEP_HELP = "step of the checkpoint (default: the newest intact one)"
PARAMETERS_HELP = (
    "parameters of the checkpoint: raw, as trained, or ema, their moving average, which a run with "
    "train.ema_decay keeps (default: raw)"
)


def step_option() -> Any:
    """Return the option of the step of a checkpoint."""
    return option(STEP_HELP, default=None)


def parameters_option() -> Any:
    """Return the option of the parameters of a checkpoint."""
    return option(PARAMETERS_HELP, default=None, choices=("raw", "ema"))


def add_checkpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose a checkpoint of --workdir to a parser."""
    parser.add_argument("--step", type=int, help=STEP_HELP)
    parser.add_argument("--parameters", choices=("raw", "ema"), help=PARAMETERS_HELP)


def name_parameters(step: int, parameters: str | None) -> str:
    """Return the step and the kind of the parameters that a command has used."""
    return f"{'moving average of ' if parameters == 'ema' else ''}step {step:,}"


class HeadOptions(VerbOptions):
    """The option of a verb that uses a head."""

    allow_random_head: bool = option(
        "use an imported model whose folder had no head; the head is random until it is trained",
        FLAG,
        default=False,
    )


def check_head(trained: Trained, verb: str, allowed: bool, sentence_heads: bool = True) -> None:
    """Raise ValueError if a command uses parameters that an import has drawn at random.

    They are random at step 0 only: any training trains them.

    Args:
      sentence_heads: whether the command uses the pooler and the heads of sentence pairs.
    """
    missing = [] if allowed or trained.step else (trained.read_origin() or {}).get("missing", [])
    unneeded = list_unread_modules(trained.run.model)
    hf_map = find_model_family(trained.run.model).hugging_face
    if hf_map and not sentence_heads:
        unneeded += hf_map.sentence_heads
    missing = [name for name in missing if not name.startswith(unneeded)]
    if not missing:
        return
    names = ", ".join(make_printable(name) for name in missing[:3])
    if len(missing) > 3:
        names += f" and {len(missing) - 3} more"
    raise ValueError(
        f"{trained.workdir}: {len(missing)} tensors were not in the folder that was imported, so "
        f"they are random: {names}. `{verb}` uses them. Train the model first, or add {FLAG} to "
        "use it as it is. `features`, `attention`, `senses` and `finetune` need no head"
    )
