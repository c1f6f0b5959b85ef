"""The models that a run may hold, and the objectives that train each. No JAX.

A model or an objective is imported when its name is asked for.
"""

from data.members import FolderMembers
from data.objectives import CLASSES, OBJECTIVES
from data.objectives.objective import Objective
from models import config as model_config
from models.config import find_configs, load_config
from models.config.base import Config, TakesHead
from models.config.heads import HeadedConfig
from pretrain.families import FAMILIES
from pretrain.settings.overrides import OPEN_KINDS


def find_own_objectives(kind: type[Config]) -> tuple[type[Objective], ...] | None:
    """Return the objectives of a model's own record, the paper's first; None without a record."""
    if issubclass(kind, HeadedConfig):
        return tuple(OBJECTIVES[name] for name in kind.objectives)
    family = FAMILIES.get(kind.__module__.rpartition(".")[2])
    return family.objectives if family and family.config is kind else None


def find_objectives(kind: type[Config]) -> tuple[type[Objective], ...]:
    """Return a model's own objectives, and those that can train the same models."""
    own = find_own_objectives(kind) or ()
    names = {objective.name for objective in own}
    return own + tuple(other for other in OBJECTIVES.values() if other.trains_as in names)


def list_trained() -> dict[type[Config], tuple[type[Objective], ...]]:
    """Return {a model's configuration: the objectives that can train it} of all models."""
    return {kind: find_objectives(kind) for kind in find_configs()}


def load_encoder(file: str) -> type[Config] | None:
    """Return the configuration in a file of models/config if a head can be put on it."""
    kind = load_config(file)
    return kind if kind and issubclass(kind, TakesHead) else None


FAMILY_CONFIGS, ENCODERS = (
    FolderMembers(model_config.__path__, load, lambda kind: kind.__name__, suffix="Config")
    for load in (load_config, load_encoder)
)
OPEN_KINDS |= {Objective: CLASSES, Config: FAMILY_CONFIGS, TakesHead: ENCODERS}
