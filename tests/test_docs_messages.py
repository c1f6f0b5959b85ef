"""The messages that docs/troubleshooting.md quotes are in the code."""

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs" / "troubleshooting.md"
PLACEHOLDER = re.compile(r"\[?\b[A-Z]+\b\]?|\.\.\.")
# Messages of argparse.
OF_OTHERS = frozenset({"unrecognized arguments"})


def list_messages() -> list[str]:
    """Return all quoted messages of the first column of tables headed `message` or `symptom`."""
    messages, inside = [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if re.match(r"\| (message|symptom) \|", line):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside:
            messages += re.findall(r"`([^`]+)`", line.split(" | ")[0])
    return messages


@functools.cache
def read_strings() -> dict[str, str]:
    """Return {path of a production file: all its strings, the parts of f-strings included}."""
    strings = {}
    for folder in ("models", "data", "pretrain"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            values = [
                node.value
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
            strings[path.relative_to(ROOT).as_posix()] = "\n".join(values)
    return strings


def split_message(message: str) -> list[str]:
    """Return what a message prints between its placeholders and their quotation marks."""
    parts = [part.strip(" '") for part in PLACEHOLDER.split(message)]
    return [part for part in parts if len(part) > 1]


def test_messages_are_found_on_the_page():
    assert len(list_messages()) >= 30


@pytest.mark.parametrize("message", [m for m in list_messages() if m not in OF_OTHERS])
def test_quoted_message_is_one_of_the_code(message: str):
    parts = split_message(message)
    assert parts
    assert any(all(part in text for part in parts) for text in read_strings().values()), (
        f"docs/troubleshooting.md quotes {message!r}: no file of the code has {parts} as strings"
    )
