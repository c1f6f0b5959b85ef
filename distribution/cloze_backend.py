"""Build the wheel, in which everything is below one import package (PEP 517).

A checkout has four import packages: pretrain, models, data, configs. In the wheel they are
`cloze.pretrain` and so on, because a name such as `data` in site-packages hides others. The wheel
is built in a temporary folder: the packages are copied below cloze/, their imports are renamed, and
setup.cfg is changed to match. The sdist and the editable install have the names of the checkout.
"""

import configparser
import contextlib
import importlib.util
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from setuptools import build_meta

# What is the same in a checkout and in the wheel is that of setuptools.
build_sdist = build_meta.build_sdist
build_editable = build_meta.build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARENT = "cloze"  # the import package of the wheel
METADATA = ("README.md", "LICENSE")  # files that setup.cfg names


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """Return what the build requires beside pyproject.toml: nothing.

    Setuptools would write to the checkout to find this out, which may be read-only.
    """
    return []


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel in a folder and return its name."""
    target = str(pathlib.Path(wheel_directory).resolve())
    with stage_sources():
        return build_meta.build_wheel(target, config_settings)


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Mapping[str, Any] | None = None
) -> str:
    """Write the metadata of the wheel in a folder and return the name of its subfolder."""
    target = str(pathlib.Path(metadata_directory).resolve())
    with stage_sources():
        return build_meta.prepare_metadata_for_build_wheel(target, config_settings)


@contextlib.contextmanager
def stage_sources() -> Iterator[None]:
    """Make the sources of the wheel in a temporary folder, and work in it.

    A build in the checkout would leave build/lib there, and later wheels would have the modules
    that were removed since.
    """
    rename_imports = load_rename_imports()
    settings = read_settings(ROOT / "setup.cfg")
    packages = settings["options.packages.find"]["include"].replace("*", "").split()
    names = {package: f"{PARENT}.{package}" for package in packages}
    left_out = make_filter(list_tracked(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        stage = pathlib.Path(folder)
        shutil.copytree(ROOT / "distribution" / PARENT, stage / PARENT)
        for package in packages:
            shutil.copytree(ROOT / package, stage / PARENT / package, ignore=left_out)
            for path in (stage / PARENT / package).rglob("*.py"):
                try:
                    renamed = rename_imports(path.read_text("utf-8"), names)
                except ValueError as error:
                    raise ValueError(f"{path.relative_to(stage / PARENT)}: {error}") from error
                path.write_text(renamed, "utf-8")
        for name in METADATA:
            shutil.copy(ROOT / name, stage / name)
        change_settings(settings)
        with (stage / "setup.cfg").open("w", encoding="utf-8") as file:
            settings.write(file)
        with contextlib.chdir(stage):
            yield


def list_tracked(root: pathlib.Path) -> set[str]:
    """Return the files that git tracks in a checkout, and their folders; nothing elsewhere."""
    if not (root / ".git").exists():
        return set()
    try:
        done = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    except OSError:  # there is no git
        return set()
    paths = [pathlib.Path(name) for name in done.stdout.split("\0") if name]
    return {str(part) for path in paths for part in (path, *path.parents)}


def make_filter(tracked: set[str]) -> Callable[[str, list[str]], set[str]]:
    """Return the `ignore` of `shutil.copytree` that leaves out hidden and untracked files.

    Args:
      tracked: paths below ROOT; if it is empty, all files count as tracked.
    """

    def find_left_out(folder: str, names: list[str]) -> set[str]:
        place = pathlib.Path(folder).relative_to(ROOT)
        found = {name for name in names if name == "__pycache__" or name.startswith(".")}
        return found | {name for name in names if tracked and str(place / name) not in tracked}

    return find_left_out


def read_settings(path: pathlib.Path) -> configparser.ConfigParser:
    """Return what setup.cfg says."""
    settings = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    settings.optionxform = str
    settings.read_string(path.read_text("utf-8"))
    return settings


def change_settings(settings: configparser.ConfigParser) -> None:
    """Put the packages, their data and the command below `PARENT`."""
    settings["options.packages.find"]["include"] = f"{PARENT}, {PARENT}.*"
    data = settings["options.package_data"]
    settings["options.package_data"] = {f"{PARENT}.{name}": data[name] for name in data}
    commands = settings["options.entry_points"]["console_scripts"].strip().splitlines()
    pairs = [command.split("=") for command in commands]
    settings["options.entry_points"]["console_scripts"] = "".join(
        f"\n{name.strip()} = {PARENT}.{function.strip()}" for name, function in pairs
    )


def load_rename_imports() -> Callable[[str, Mapping[str, str]], str]:
    """Return `rename_imports` of the sources, without importing the packages around it."""
    path = ROOT / "pretrain" / "publish" / "renamed_imports.py"
    spec = importlib.util.spec_from_file_location("renamed_imports", path)
    assert spec is not None and spec.loader is not None  # there is a loader for the suffix .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.rename_imports
