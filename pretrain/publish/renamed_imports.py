"""Rename packages in the import statements of a Python file. Imports only the standard library.

The build of the wheel puts `cloze.` before the packages of the checkout (distribution/), and the
export to JAX removes it again. Statements are found by the parser: strings, comments and docstrings
stay as they are.
"""

import ast
import re
from collections.abc import Iterator, Mapping


def rename_imports(code: str, names: Mapping[str, str]) -> str:
    """Return the source with packages renamed where they are imported.

    `import a` becomes `from b import a` for {"a": "b.a"}, so that the file's other lines stay true.

    Args:
      names: {dotted name of a package: its new name}, which ends with the same word.

    Raises:
      ValueError: an import binds a name that would change, such as `import a.c`.
    """
    lines = code.encode().splitlines(keepends=True)  # the parser counts columns in bytes
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = b"".join(lines)
    edits = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            statement = text[start:end].decode()
            renamed = _rename_statement(node, statement, names)
            edits.append((start, end, renamed.encode()))
    for start, end, renamed in sorted(edits, reverse=True):
        text = text[:start] + renamed + text[end:]
    return text.decode()


def list_imports(code: str) -> list[str]:
    """Return the dotted names that a file imports; `from a import b` as `a.b`."""
    return [
        name
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _list_names(node)
    ]


def _list_names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield alias.name
        else:
            yield f"{'.' * node.level}{node.module or ''}.{alias.name}"


def _rename_statement(
    node: ast.Import | ast.ImportFrom, statement: str, names: Mapping[str, str]
) -> str:
    """Return a statement with renamed packages, or as it is if it imports none of them."""
    old = {name for name in names for found in _list_names(node) if _is_within(found, name)}
    if not old:
        return statement
    (name,) = old if len(old) == 1 else (None,)
    if name is not None and isinstance(node, ast.ImportFrom) and _is_within(node.module, name):
        pattern = rf"(from\s+){re.escape(name)}(?=[.\s])"
        renamed, count = re.subn(pattern, rf"\g<1>{names[name]}", statement, count=1)
        if count == 1:
            return renamed
    parent, _, last = names[name].rpartition(".") if name is not None else ("", "", "")
    if parent and isinstance(node, ast.Import) and statement == f"import {last}":
        return f"from {parent} import {last}"
    raise ValueError(
        f"line {node.lineno}: {statement!r} imports {' and '.join(sorted(old))} in a form that "
        "cannot be renamed: write `from PACKAGE.MODULE import NAME`"
    )


def _is_within(found: str | None, name: str) -> bool:
    """Return whether a dotted name names a package or something in it."""
    return found is not None and f"{found}.".startswith(f"{name}.")
