"""The shell commands that install an extra of setup.cfg, for error messages and help texts.

No release is on the package index yet, so no command names the distribution.
"""

import importlib.util
import pathlib
import shlex
import sys
from importlib import metadata

DISTRIBUTION = "cloze-pretrain"  # as setup.cfg names it
ROOT = pathlib.Path(__file__).resolve().parents[2]


def how_to_install(extra: str, root: pathlib.Path = ROOT) -> str:
    """Return the command that installs extras into this Python, from any folder.

    Args:
      extra: one extra, or several with commas, such as "report,metrics".

    In a checkout the command installs the checkout. With an installed wheel of Cloze there is no
    checkout, and the command names the libraries of the extra. Environments that uv makes have no
    pip.
    """
    python = shlex.quote(sys.executable or "python")
    has_pip = importlib.util.find_spec("pip") is not None
    pip = f"{python} -m pip install" if has_pip else f"uv pip install --python {python}"
    if (root / "setup.cfg").is_file():
        return f"{pip} -e {shlex.quote(f'{root}[{extra}]')}"
    if requirements := _read_requirements(extra):
        return f"{pip} {shlex.join(requirements)}"
    return f"pip install -e '.[{extra}]' in the folder of Cloze's checkout"


def _read_requirements(extra: str) -> list[str]:
    """Return the requirements of extras in the installed wheel's metadata; [] without a wheel."""
    endings = tuple(f'extra == "{name}"' for name in extra.split(","))
    try:
        lines = [line.partition(";") for line in metadata.requires(DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        return []
    return sorted(
        {
            requirement.strip()
            for requirement, _, marker in lines
            if marker.replace("'", '"').strip().endswith(endings)
        }
    )


def find_version(name: str) -> str | None:
    """Return the installed version of a distribution, None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
