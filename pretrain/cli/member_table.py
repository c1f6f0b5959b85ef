"""The members of an objective, as the table of docs/adding_an_objective.md. No JAX.

The meaning of a field is its comment, the meaning of a method the first line of its docstring.
"""

from __future__ import annotations

import inspect
import textwrap
from typing import Any, NamedTuple

from data.objectives.objective import Objective
from pretrain.cli.field_pages import escape_cell, format_table
from pretrain.cli.generated_page import make_marker
from pretrain.settings.fields import format_value, read_meaning

MARKER = make_marker("describe --members --page docs/adding_an_objective.md")
REQUIRED = "required"


class Member(NamedTuple):
    """A member of a class.

    Attributes:
      default: its value in the class, as a configuration spells it; "" for a method.
      is_required: whether a subclass must define it.
    """

    name: str
    shown: str
    default: str
    meaning: str
    is_required: bool


def list_members(kind: type) -> list[Member]:
    """Return the public members of a class: the required ones, then the others, each in order."""
    names: dict[str, None] = {}
    for base in kind.__mro__:
        declared = [*inspect.get_annotations(base), *vars(base)]
        names |= {name: None for name in declared if not name.startswith("_")}
    members = [describe_member(kind, name) for name in names]
    return sorted(members, key=lambda member: not member.is_required)


def describe_member(kind: Any, name: str) -> Member:
    """Return a member of a class."""
    value = inspect.getattr_static(kind, name, inspect.Parameter.empty)
    if inspect.isfunction(value):
        [_, *arguments] = inspect.signature(value).parameters
        summary, _, _ = (inspect.getdoc(value) or "").partition("\n")
        required = name in getattr(kind, "__abstractmethods__", ())
        return Member(name, f"{name}({', '.join(arguments)})", "", summary, required)
    unit, meaning = read_meaning(kind, name)
    meaning = f"[{unit}] {meaning}" if unit else meaning
    if value is inspect.Parameter.empty:
        return Member(name, name, "", meaning, True)
    default = '""' if value == "" else "()" if value == () else format_value(value)
    return Member(name, name, default, meaning, False)


def format_members() -> str:
    """Return the members of an objective as a Markdown table."""
    rows = []
    for member in list_members(Objective):
        default = f"`{member.default}`" if member.default else ""
        meaning = escape_cell(member.meaning)
        rows.append((f"`{member.shown}`", REQUIRED if member.is_required else default, meaning))
    return "\n".join(format_table(("member", "default", "meaning"), rows))


def print_members() -> None:
    """Print the members of an objective, two lines each."""
    for member in list_members(Objective):
        default = REQUIRED if member.is_required else f"default {member.default}"
        is_plain = not (member.is_required or member.default)
        print(f"  {member.shown}" + ("" if is_plain else f" ({default})"))
        print(textwrap.indent(textwrap.fill(member.meaning, 94), " " * 6))
