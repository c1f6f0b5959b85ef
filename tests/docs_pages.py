"""Parse the pages: blocks of code, commands, links and headings."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
# The order of execution: later pages use what earlier pages make.
ORDER = (
    *("docs/quickstart.md", "docs/training.md", "docs/data.md", "docs/finetune.md"),
    *("docs/evaluation.md", "docs/export_import.md"),
)
RUN = ("", "bash", "python")  # languages of the blocks that are executed
SHOWN = ("text", "yaml", "dockerfile", "json")  # languages of the blocks that are only shown
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+?) -->\n\s*)?"
    r"^ *```(?P<language>[\w-]*)\n(?P<text>.*?)^ *```",
    re.MULTILINE | re.DOTALL,
)
LAUNCH = re.compile(r"^(?:\./launch\.sh|python -m pretrain) +(?P<rest>.*)$", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code of a page. reason: why it is not executed, or None if it is."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None

    @property
    def name(self):
        return f"{self.page}:{self.line}"


def list_pages() -> list[str]:
    """Return the pages in the order of execution."""
    docs = ROOT / "docs"
    files = [*docs.glob("*.md"), *(docs / "configuration").glob("*.md")]
    found = sorted(path.relative_to(ROOT).as_posix() for path in files)
    rest = [page for page in found if page not in ORDER]
    return [*ORDER, *rest, "README.md", "CONTRIBUTING.md", "SECURITY.md"]


def read_blocks(page: str) -> list[Block]:
    """Return the blocks of code of a page."""
    text = (ROOT / page).read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["text"],
            found["reason"],
        )
        for found in FENCE.finditer(text)
    ]


def split_commands(text: str) -> list[str]:
    """Return the commands of a shell block, one line each, without comments."""
    lines = (line.strip() for line in text.replace("\\\n", " ").splitlines())
    return [
        re.sub(r"\s+#\s.*$", "", line.removeprefix("$ "))
        for line in lines
        if line and not line.startswith("#")
    ]


def read_verb(command: str) -> str | None:
    """Return the arguments after ./launch.sh or python -m pretrain; None for another program."""
    found = LAUNCH.match(command)
    return found["rest"] if found else None


def list_links(page: str) -> list[tuple[str, str]]:
    """Return (file or "", anchor or "") of each link of a page within the repository."""
    text = re.sub(r"`[^`\n]*`", "`", FENCE.sub("", (ROOT / page).read_text()))
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [tuple(link.partition("#")[::2]) for link in found if "://" not in link]


def list_anchors(path: pathlib.Path) -> set[str]:
    """Return the anchors of a page's headings, as both GitHub and Python-Markdown make them."""
    anchors, seen = set(), {}
    for heading in re.findall(r"^#+ +(.+?) *$", FENCE.sub("", path.read_text()), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = seen[slug] = seen.get(slug, -1) + 1
        anchors.add(f"{slug}-{number}" if number else slug)
    return anchors
