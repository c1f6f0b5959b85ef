"""The file in a sweep's folder that names its members, so that a later command can resume it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from data.corpus.json_lines import format_json
from data.corpus.paths import is_remote
from data.store.atomic import write_atomically
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.check import check_place
from pretrain.workdir.leases import lease

NAME = "sweep.json"
FORMAT = 1
MAX_BYTES = 16 << 20


def check_folder(folder: str) -> None:
    """Raise ConfigError for a path that cannot be the folder of a sweep; nothing is left there.

    A folder that exists must be empty, or hold a sweep.
    """
    check_place(folder, "--folder")
    if is_remote(folder) or not os.path.isdir(folder):
        return
    names = set(os.listdir(folder))
    if NAME not in names and (foreign := sorted(names - {lease.NAME})):
        raise ConfigError(
            f"{folder} is no sweep's folder (it has no {NAME}) and holds "
            f"{', '.join(foreign[:3])}{' ...' if len(foreign) > 3 else ''}; name another --folder, "
            "new or empty"
        )


def open_record(
    folder: str, config: str, pretrained: str | None, members: Mapping[str, Sequence[str]]
) -> None:
    """Write FOLDER/sweep.json, or check that it is of this sweep, which may have more members now.

    Args:
      config, pretrained: the configuration and the model of which all members begin.
      members: {name: overrides}.

    Raises:
      ConfigError: the folder has another sweep, or a file of that name that no sweep wrote.
    """
    path = os.path.join(folder, NAME)
    described = {
        "format": FORMAT,
        "config": config,
        "from": pretrained,
        "members": {name: list(overrides) for name, overrides in members.items()},
    }
    if os.path.lexists(path):
        found = read_record(path)
        for key in ("config", "from"):
            if found[key] != described[key]:
                raise ConfigError(
                    f"{folder} is a sweep with {key} {found[key]}, not {described[key]}; "
                    "name another --folder"
                )
        for name, overrides in found["members"].items():
            if overrides != described["members"].get(name):
                raise ConfigError(
                    f"{folder} has the member {name} with {' '.join(overrides)}, which "
                    "this command does not name: give its values, too, or another --folder"
                )
    write_atomically(path, format_json(described, indent=1) + "\n")


def read_record(path: str) -> dict[str, Any]:
    """Return the content of a sweep.json; raise ConfigError for anything else."""
    problem = f"{path}: no record of a sweep; name another --folder"
    if not os.path.isfile(path) or os.path.getsize(path) > MAX_BYTES:
        raise ConfigError(problem)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except ValueError as error:
        raise ConfigError(f"{problem} ({error})") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ConfigError(problem)
    members = found.get("members")
    is_sound = isinstance(members, dict) and all(
        isinstance(words, list) and all(isinstance(word, str) for word in words)
        for words in members.values()
    )
    if not is_sound or not {"config", "from"} <= found.keys():
        raise ConfigError(problem)
    return found
