"""Find a file that hides one of this program's packages. Imports nothing but the standard library.

`python -m pretrain` puts the folder of the caller first on the path of modules, so that a file
data.py there would be imported as `data`.
"""

import importlib.util
import os
import pathlib

from pretrain.host.command import PACKAGES, PREFIX

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_missing_folder() -> str:
    """Return a line if the folder in which the command runs was deleted; "" if it is there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the current folder no longer exists; change to one that does, such as by `cd`"
    return ""


def find_hiding_file(root: pathlib.Path = ROOT) -> str:
    """Return a line on the first file that hides a package of the program; "" if none does."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(f"{PREFIX}{package}")
        if spec is None:
            continue
        hiding = spec.origin
        folders = [pathlib.Path(hiding).parent] if hiding else []
        if hiding is None:  # a folder without __init__.py
            folders = [pathlib.Path(folder) for folder in spec.submodule_search_locations or ()]
            hiding = folders[0] if folders else None
        if hiding and root / package not in (folder.resolve() for folder in folders):
            return (
                f"{hiding} hides the package {package!r} of Cloze (in {root}), because Python "
                "searches that folder first; run the command in another folder, or rename that file"
            )
    return ""
