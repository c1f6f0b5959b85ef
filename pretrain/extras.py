"""The shell command that installs an extra of setup.cfg: the one place that error messages and help texts take it from.

Cloze is not on the package index, and the package of that name there is another project's, so no command names the distribution.
"""

import pathlib
import shlex
import sys
from importlib import metadata

ROOT = pathlib.Path(__file__).resolve().parents[1]


def how_to_install(extra: str, root: pathlib.Path = ROOT) -> str:
    """Return the command that installs one or several extras, such as "report,metrics", into this Python from any folder.

    In a checkout it installs the checkout. Where a wheel of Cloze was installed there is none: the command then names the libraries that
    the extra stands for.
    """
    pip = f"{shlex.quote(sys.executable or 'python')} -m pip install"
    if (root / "setup.cfg").is_file():
        return f"{pip} -e {shlex.quote(f'{root}[{extra}]')}"
    if requirements := _read_requirements(extra):
        return f"{pip} {shlex.join(requirements)}"
    return f"pip install -e '.[{extra}]' in the folder of Cloze's checkout"


def _read_requirements(extra):
    """Return the requirements of the extras by the metadata of the installed wheel; [] where there is none."""
    endings = tuple(f'extra == "{name}"' for name in extra.split(","))
    try:
        lines = [line.partition(";") for line in metadata.requires("cloze") or ()]
    except metadata.PackageNotFoundError:
        return []
    return sorted(
        {
            requirement.strip()
            for requirement, _, marker in lines
            if marker.replace("'", '"').strip().endswith(endings)
        }
    )
