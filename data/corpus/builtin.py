"""The built-in corpus: English text that comes with Python, so a first run needs no download.

The text is CPython's documentation topics (pydoc_data.topics) and the docstrings and longer
comments of the standard library's source files. Files are parsed and never imported, so the same
Python version gives the same corpus.

A document is a topic, a class with its methods, or a module with its functions. Its paragraphs
have the order of the source, no markup, and blank lines between them. The following is skipped and
counted: doctests, tables and code; repeated text; documents with too few words. Test packages
(whose docstrings are labels), `encodings` (which repeats one sentence a hundred times) and
installed packages are not read.
"""

import ast
import collections
import json
import pathlib
import platform
import re
import sysconfig
from collections.abc import Iterator

SKIPPED_FOLDERS = {  # folders of the standard library that are not read
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "encodings",
    "__phello__",
    "__pycache__",
}
MIN_DOCUMENT_WORDS = 8  # words of the shortest document
MIN_COMMENT_WORDS = 12  # words of the shortest comment that counts as prose
MIN_PROSE_SHARE = (
    0.86  # minimal share of letters and spaces in a paragraph; code and tables have less
)
MARKUP_PATTERNS = (
    (
        re.compile(r":[a-z][a-z:+-]*:`~?([^`<]+?)(?:\s*<[^`>]*>)?`"),
        r"\1",
    ),  # :class:`Name`, :pep:`title <8>`
    (re.compile(r"``([^`]+)``|`([^`\n]+)`_?"), r"\1\2"),
    (
        re.compile(r"\*\*(\w(?:[^*\n]*\w)?)\*\*|(?<![\w*])\*(\w(?:[^*\n]*[\w:.])?)\*(?![\w*])"),
        r"\1\2",
    ),
    (re.compile(r"::(?=\s|$)"), ":"),
    (re.compile(r"^\.\. [\w-]+:\s*", re.M), ""),
)
LIST_ITEM = re.compile(
    r"\s*(?:[-*•]|\d+[.)]|\([a-z\d]\))\s+\S|\s*[\w<>\[\]'., -]{1,40}\s+(?:--|—|:)\s"
)
COMMENT_BLOCK = re.compile(r"(?:^[ \t]*#.*\n)+", re.M)


def identify_corpus() -> str:
    """Return the Python version as text; two corpora are equal if their versions are."""
    return f"builtin, {platform.python_implementation()} {platform.python_version()}"


def write_builtin(path: pathlib.Path) -> dict[str, int]:
    """Write the corpus to `path` as JSON lines with the fields `name` and `text`.

    Returns:
      {reason: number of texts skipped for it}.
    """
    counts, seen = collections.Counter(), set()
    with path.open("w", encoding="utf-8") as file:
        for name, paragraphs in _iterate_documents():
            text = "\n\n".join(_clean_paragraphs(paragraphs, seen, counts))
            if not text:
                continue
            if len(text.split()) < MIN_DOCUMENT_WORDS:
                counts[f"documents of fewer than {MIN_DOCUMENT_WORDS} words"] += 1
                continue
            file.write(json.dumps({"name": name, "text": text}, ensure_ascii=False) + "\n")
    return dict(counts)


def _iterate_documents() -> Iterator[tuple[str, list[str]]]:
    """Yield (name, raw texts) of each document, in order of the file paths."""
    root = pathlib.Path(sysconfig.get_path("stdlib"))
    files = [file.relative_to(root) for file in root.rglob("*.py")]
    for file in sorted(file for file in files if not SKIPPED_FOLDERS & set(file.parts)):
        source = (root / file).read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
        tree = ast.parse(source.lstrip("\ufeff"))
        if file.as_posix() == "pydoc_data/topics.py":
            yield from (
                (f"topic {name}", [text]) for name, text in sorted(_parse_topics(tree).items())
            )
        else:
            module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
            yield from _split_module(module, tree, source)


def _parse_topics(tree: ast.Module) -> dict[str, str]:
    """Return the dictionary of topics, which is the only assignment of its module."""
    return next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))


def _split_module(module: str, tree: ast.Module, source: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, docstrings and comments by line) of a module and of each of its classes."""
    texts_by_name: dict[str, list[tuple[int, str | None]]] = {
        module: [(0, ast.get_docstring(tree))]
    }
    owners = [
        (node.lineno, node.end_lineno, f"{module}.{node.name}")
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    ]
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            owner = _find_owner(owners, node.lineno, module)
            texts_by_name.setdefault(owner, []).append((node.lineno, ast.get_docstring(node)))
    line, offset = 1, 0
    for match in COMMENT_BLOCK.finditer(source):
        line += source.count("\n", offset, match.start())
        offset = match.start()
        text = re.sub(r"^[ \t]*#+[ \t:]?", "", match[0], flags=re.M)
        if len(text.split()) >= MIN_COMMENT_WORDS:
            owner = _find_owner(owners, line, module)
            texts_by_name.setdefault(owner, []).append((line, text))
    for name, texts in texts_by_name.items():
        yield name, [text for _, text in sorted((line, text) for line, text in texts if text)]


def _find_owner(owners: list[tuple[int, int | None, str]], line: int, module: str) -> str:
    """Return the name of the class (first line, last line, name) around a line, else the module."""
    return next((name for first, last, name in owners if first <= line <= (last or first)), module)


def _clean_paragraphs(
    texts: list[str], seen: set[str], counts: collections.Counter
) -> Iterator[str]:
    """Yield the paragraphs without markup; a text that is in `seen` is skipped."""
    for text in texts:
        if text in seen:
            counts["docstrings and comments that occurred before"] += 1
            continue
        seen.add(text)
        for block in re.split(r"\n\s*\n", text):
            if block.lstrip().startswith((">>>", "...", "|", "+-")):
                counts["paragraphs of code or tables"] += 1
                continue
            for pattern, plain in MARKUP_PATTERNS:
                block = pattern.sub(plain, block)
            for paragraph in _split_paragraphs(block):
                if _is_prose(paragraph):
                    yield paragraph
                else:
                    counts["paragraphs of code or tables"] += 1


def _split_paragraphs(block: str) -> Iterator[str]:
    """Yield paragraphs on one line; a list item or a line without letters starts a new one."""
    lines = []
    for line in block.split("\n"):
        is_rule = not any(map(str.isalpha, line))
        if lines and (is_rule or LIST_ITEM.match(line)):
            yield " ".join(lines)
            lines = []
        if not is_rule:
            lines.append(" ".join(line.split()))
    if lines:
        yield " ".join(lines)


def _is_prose(paragraph: str) -> bool:
    num_plain = sum(character.isalpha() or character == " " for character in paragraph)
    return num_plain >= MIN_PROSE_SHARE * len(paragraph) and " " in paragraph
