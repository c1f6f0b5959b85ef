"""The built-in corpus: real English that comes with every Python, so that a first run needs no download.

CPython's documentation topics (pydoc_data.topics) and what its authors wrote in the standard library's own source
files: docstrings and longer comments. Everything is parsed, nothing imported, so the same Python gives the same corpus.

A document is a topic, a class with its methods, or a module with its functions; its paragraphs stand in the order of
the source, separated by blank lines, without markup. Left out, and counted: doctests, tables and code among the text,
what occurred before, and documents of fewer than FEWEST words. Test packages are not read (their docstrings are
labels), nor `encodings` (a hundred times the same sentence), nor what was installed beside the standard library.
"""

import ast
import collections
import json
import pathlib
import platform
import re
import sysconfig
from collections.abc import Iterator

LEFT_OUT = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "encodings",
    "__phello__",
    "__pycache__",
}
FEWEST = 8  # words of a document
COMMENT = 12  # words of a comment that counts as prose
PROSE = 0.86  # share of letters and blanks in a paragraph: code and tables have less
MARKUP = (
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
ITEM = re.compile(r"\s*(?:[-*•]|\d+[.)]|\([a-z\d]\))\s+\S|\s*[\w<>\[\]'., -]{1,40}\s+(?:--|—|:)\s")
COMMENTS = re.compile(r"(?:^[ \t]*#.*\n)+", re.M)


def identity() -> str:
    """What the corpus depends on: equal identities mean equal corpora."""
    return f"builtin, {platform.python_implementation()} {platform.python_version()}"


def write_builtin(path: pathlib.Path) -> dict[str, int]:
    """Write the corpus to `path` as JSON lines with `name` and `text`. Returns what was left out: reason -> count."""
    counts, seen = collections.Counter(), set()
    with path.open("w", encoding="utf-8") as file:
        for name, paragraphs in _documents():
            text = "\n\n".join(_prose(paragraphs, seen, counts))
            if not text:
                continue
            if len(text.split()) < FEWEST:
                counts[f"documents of fewer than {FEWEST} words"] += 1
                continue
            file.write(json.dumps({"name": name, "text": text}, ensure_ascii=False) + "\n")
    return dict(counts)


def _documents() -> Iterator[tuple[str, list[str]]]:
    """Names and raw texts, in order of the path."""
    root = pathlib.Path(sysconfig.get_path("stdlib"))
    files = [file.relative_to(root) for file in root.rglob("*.py")]
    for file in sorted(file for file in files if not LEFT_OUT & set(file.parts)):
        source = (root / file).read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
        tree = ast.parse(source.lstrip("\ufeff"))
        if file.as_posix() == "pydoc_data/topics.py":
            yield from ((f"topic {name}", [text]) for name, text in sorted(_topics(tree).items()))
        else:
            module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
            yield from _of_module(module, tree, source)


def _topics(tree: ast.Module) -> dict[str, str]:
    """The dictionary that is the module's one assignment."""
    return next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))


def _of_module(module: str, tree: ast.Module, source: str) -> Iterator[tuple[str, list[str]]]:
    """A document for the module and one for each of its classes: docstrings and comments by line."""
    written: dict[str, list[tuple[int, str | None]]] = {module: [(0, ast.get_docstring(tree))]}
    owners = [
        (node.lineno, node.end_lineno, f"{module}.{node.name}")
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    ]
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            owner = _owner(owners, node.lineno, module)
            written.setdefault(owner, []).append((node.lineno, ast.get_docstring(node)))
    line, at = 1, 0
    for match in COMMENTS.finditer(source):
        line += source.count("\n", at, match.start())
        at = match.start()
        text = re.sub(r"^[ \t]*#+[ \t:]?", "", match[0], flags=re.M)
        if len(text.split()) >= COMMENT:
            written.setdefault(_owner(owners, line, module), []).append((line, text))
    for name, texts in written.items():
        yield name, [text for _, text in sorted((at, text) for at, text in texts if text)]


def _owner(owners, line: int, module: str) -> str:
    return next((name for first, last, name in owners if first <= line <= last), module)


def _prose(texts: list[str], seen: set[str], counts: collections.Counter) -> Iterator[str]:
    """Paragraphs without markup, each once in the whole corpus."""
    for text in texts:
        if text in seen:
            counts["docstrings and comments that occurred before"] += 1
            continue
        seen.add(text)
        for block in re.split(r"\n\s*\n", text):
            if block.lstrip().startswith((">>>", "...", "|", "+-")):
                counts["paragraphs of code or tables"] += 1
                continue
            for pattern, plain in MARKUP:
                block = pattern.sub(plain, block)
            for paragraph in _paragraphs(block):
                if _is_prose(paragraph):
                    yield paragraph
                else:
                    counts["paragraphs of code or tables"] += 1


def _paragraphs(block: str) -> Iterator[str]:
    """Lines joined; an item of a list, or a line without a letter, ends the paragraph before it."""
    lines = []
    for line in block.split("\n"):
        rule = not any(map(str.isalpha, line))
        if lines and (rule or ITEM.match(line)):
            yield " ".join(lines)
            lines = []
        if not rule:
            lines.append(" ".join(line.split()))
    if lines:
        yield " ".join(lines)


def _is_prose(paragraph: str) -> bool:
    plain = sum(character.isalpha() or character == " " for character in paragraph)
    return plain >= PROSE * len(paragraph) and " " in paragraph
