"""Write nested dicts, lists and scalars as YAML. `pod` runs without any library.

A string is written as JSON, which YAML 1.2 includes, unless it is plainly a word or a script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

# Words that YAML 1.1 or 1.2 reads as something else than a string.
RESERVED = frozenset("y n yes no on off true false null".split())
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")


def format_yaml(value: Any, depth: int = 0) -> str:
    """Return a dict or a list as YAML in block style; `depth` counts the levels around it."""
    lines = []
    for head, item in list_items(value):
        if isinstance(item, Mapping | Sequence) and not isinstance(item, str) and item:
            text = format_yaml(item, depth + 1)
            # A dict in a list begins on the line of its dash.
            is_nested = head == "-" and isinstance(item, Mapping)
            lines.append(f"{head} {text.strip()}" if is_nested else f"{head}\n{text}")
        else:
            lines.append(f"{head} {format_scalar(item, depth + 1)}")
    indent = "  " * depth
    return "\n".join(indent + line for line in lines)


def list_items(value: Any) -> list[tuple[str, Any]]:
    """Return (what precedes it on its line, item) of a dict or a list."""
    if isinstance(value, Mapping):
        return [(f"{format_word(key)}:", item) for key, item in value.items()]
    return [("-", item) for item in value]


def format_scalar(value: Any, depth: int) -> str:
    """Return a number, a string or an empty list as YAML; a script of lines becomes a block."""
    if not isinstance(value, str):
        return json.dumps(value)
    lines = value.splitlines()
    if value.count("\n") == len(lines) > 1 and all(map(is_script_line, lines)):
        return "|\n" + "\n".join("  " * depth + line for line in lines)
    return format_word(value)


def format_word(value: str) -> str:
    """Return a string in one line, without quotes where it is read as a string without them."""
    is_plain = PLAIN.fullmatch(value) and value.lower() not in RESERVED
    return value if is_plain else quote_string(value)


def is_script_line(line: str) -> bool:
    """Return whether a line is the same in a block: printable, without spaces at its ends."""
    return line.isprintable() and bool(line) and line == line.strip()


def quote_string(value: str) -> str:
    """Return a string in double quotes, with every character escaped that YAML does not allow."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08X}" for letter in text)
