"""Build the site of these pages: `python docs/build.py [--strict]` writes it to runs/site.

`--serve` shows it while you write.

The site has the tree of the repository: README.md is its first page, and a link that leaves docs/,
to a test or a page of figures, leads to a copy of that file. So one set of relative links serves
the repository and the site. mkdocs.yml names the pages of the menu.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = ROOT / "runs" / "site_source"  # mkdocs.yml names it, too
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`\n]*`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def find_links(page: pathlib.Path) -> list[str]:
    """Return the relative links of a page, without their anchors; code blocks have none."""
    found = LINK.findall(CODE.sub("", FENCE.sub("", page.read_text())))
    return [link.partition("#")[0] for link in found if "://" not in link and link[0] != "#"]


def list_files() -> set[pathlib.Path]:
    """Return the files of the site: the pages, and all that they link to, directly or not."""
    waiting = [ROOT / name for name in PAGES] + sorted((ROOT / "docs").glob("*.*"))
    files: set[pathlib.Path] = set()
    while waiting:
        path = waiting.pop().resolve()
        if path in files or not path.is_relative_to(ROOT) or not path.exists():
            continue
        if path.is_dir():
            waiting.extend(one for one in path.iterdir() if one.is_file())
            continue
        files.add(path)
        if path.suffix == ".md":
            waiting.extend(path.parent / link for link in find_links(path))
    return files


def copy_files(files: set[pathlib.Path], target: pathlib.Path) -> None:
    """Copy the files, with the folders that they are in."""
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(files):
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def main(arguments: list[str]) -> int:
    """Build, or serve; return the exit status of Zensical."""
    copy_files(list_files(), SOURCE)
    verb = ["serve"] if "--serve" in arguments else ["build", "--clean"]
    verb += ["--strict"] if "--strict" in arguments else []
    zensical = pathlib.Path(sys.executable).parent / "zensical"
    if not zensical.exists():
        print("error: Zensical is missing: pip install -e '.[docs]'", file=sys.stderr)
        return 2
    return subprocess.run([zensical, *verb], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
