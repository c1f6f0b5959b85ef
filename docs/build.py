"""Build the site of these pages: `python docs/build.py [--strict]` writes it to runs/site.

`--serve` shows it at http://localhost:8000; `--serve 8080` takes another port.

The site has the tree of the repository: README.md is its first page, and a link that leaves docs/,
to a page of figures, leads to a copy of that page. A link to source leads to a page that shows it,
a notebook with its stored outputs and pictures.
So one set of relative links serves the repository and the site. mkdocs.yml names the pages of the
menu.
"""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = ROOT / "runs" / "site_source"  # mkdocs.yml names it, too
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md")
# {suffix of a source file: the language in which its page highlights it}
SOURCES = {".py": "python", ".sh": "bash", ".toml": "toml", ".cfg": "ini"}
SOURCES |= {".txt": "text", ".cff": "yaml", ".ipynb": "python"}
PORT = 8000
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
    waiting += sorted((ROOT / "docs" / "figures").iterdir())
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
    """Copy the files, with the folders that they are in; source files become pages."""
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(files):
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in SOURCES:
            copy.with_name(f"{path.name}.md").write_text(show_source(path))
        elif path.suffix == ".md":
            copy.write_text(link_source_pages(path.read_text()))
        else:
            shutil.copy(path, copy)


def show_source(path: pathlib.Path) -> str:
    """Return a page that shows a source file."""
    if path.suffix == ".ipynb":
        return show_notebook(json.loads(path.read_text())["cells"])
    name = path.relative_to(ROOT).as_posix()
    return f"# {name}\n\n{format_block(path.read_text(), SOURCES[path.suffix])}\n"


def show_notebook(cells: list[dict]) -> str:
    """Return a page with the cells of a notebook, their outputs and their pictures."""
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else format_block(source, "python"))
        for output in cell.get("outputs", ()):
            if picture := output.get("data", {}).get("image/png"):
                data = "".join("".join(picture).split())
                parts.append(f"![output of the cell](data:image/png;base64,{data})")
            elif "text" in output:
                parts.append(format_block("".join(output["text"]), "text"))
    return "\n\n".join(parts) + "\n"


def format_block(text: str, language: str) -> str:
    """Return a block of code whose fence is not in it."""
    fence = "````"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def link_source_pages(text: str) -> str:
    """Return a page whose links to source files lead to the pages that show them."""

    def link(found: re.Match[str]) -> str:
        path, _, anchor = found[1].partition("#")
        if "://" in path or pathlib.PurePosixPath(path).suffix not in SOURCES:
            return found[0]
        return f"]({path}.md{'#' + anchor if anchor else ''})"

    parts = re.split(f"({FENCE.pattern}|{CODE.pattern})", text, flags=FENCE.flags)
    return "".join(LINK.sub(link, part) if i % 2 == 0 else part for i, part in enumerate(parts))


def read_port(arguments: list[str]) -> int:
    """Return the port after --serve.

    Raises:
      SystemExit: it is not a port, or another program listens there.
    """
    words = arguments[arguments.index("--serve") + 1 :]
    given = next((word for word in words if not word.startswith("-")), str(PORT))
    if not given.isdecimal() or not 1 <= int(given) <= 65535:
        raise SystemExit(f"error: --serve {given}: a port from 1 to 65535")
    with socket.socket() as probe:
        if probe.connect_ex(("localhost", int(given))) == 0:
            raise SystemExit(
                f"error: port {given} is in use: name another, --serve {int(given) + 1}"
            )
    return int(given)


def main(arguments: list[str]) -> int:
    """Build, or serve; return the exit status of Zensical."""
    zensical = pathlib.Path(sys.executable).parent / "zensical"
    if not zensical.exists():
        print("error: Zensical is missing: pip install -e '.[docs]'", file=sys.stderr)
        return 2
    verb = ["build", "--clean"]
    if "--serve" in arguments:
        verb = ["serve", "--dev-addr", f"localhost:{read_port(arguments)}"]
    verb += ["--strict"] if "--strict" in arguments else []
    copy_files(list_files(), SOURCE)
    status = subprocess.run([zensical, *verb], cwd=ROOT, check=False).returncode
    if not status and verb[0] == "build":
        print(ROOT / "runs" / "site" / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
