"""Values, defaults, types and meanings of the fields of a configuration.

This module knows no particular class. The meaning of a field is the comment at the end of its line
or on the lines above it, and may begin with a unit in brackets.
"""

import ast
import dataclasses
import functools
import inspect
import io
import textwrap
import tokenize
import typing
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pretrain.settings.overrides import (
    OPEN_KINDS,
    Override,
    format_type,
    has_name,
    is_named_tuple,
    list_alternatives,
    list_options,
)


class Setting(NamedTuple):
    """A leaf of a configuration: its key, its value, and the default of its field."""

    key: str
    value: Any
    default: Any

    @property
    def is_changed(self) -> bool:
        """Whether the value differs from the default."""
        return self.value != self.default


def find_default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a dataclass field; dataclasses.MISSING where it has none."""
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()


def list_settings(node: Any, prefix: str = "") -> list[Setting]:
    """Return the Settings of a tree of dataclasses, in order.

    The defaults come from the class in the tree, not from the class that the tree has by default.
    """
    settings = []
    for field in dataclasses.fields(node):
        value, key = getattr(node, field.name), f"{prefix}.{field.name}".lstrip(".")
        if dataclasses.is_dataclass(value):
            settings += list_settings(value, key)
        elif is_named_tuple(value):
            for item in value:
                settings += list_settings(item, f"{key}.{item.name}")
        else:
            settings.append(Setting(key, value, find_default(field)))
    return settings


def format_value(value: Any) -> str:
    """Return a value as it is written after path= on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(format_value, value)) or "()"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value else repr(value)


def list_differences(old: Any, new: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Return [(path, old value, new value)] of every leaf in which two trees differ."""
    if is_named_tuple(old) and is_named_tuple(new):
        names = [[item.name for item in items] for items in (old, new)]
        if names[0] == names[1]:
            pairs = zip(old, new, strict=True)
            return [row for a, b in pairs for row in list_differences(a, b, f"{path}.{a.name}")]
    if dataclasses.is_dataclass(old) and type(old) is type(new):
        values = [
            (field.name, getattr(old, field.name), getattr(new, field.name))
            for field in dataclasses.fields(old)
        ]
        return [
            row
            for name, a, b in values
            for row in list_differences(a, b, f"{path}.{name}".lstrip("."))
        ]
    return [] if old == new else [(path, old, new)]


# ---- sections that are replaced ----------------------------------------------


def list_dropped(before: Any, after: Any, overrides: Sequence[Override]) -> list[str]:
    """Return a line for each override that replaces a whole section and drops settings of it.

    A setting is dropped if it is not its default, no other override sets it, and the new section
    does not have it at the same value.

    Args:
      before: the tree without the overrides.
      after: the tree with the overrides.
      overrides: the overrides.
    """
    keys = {override.key for override in overrides}
    lines = []
    for override in {override.key: override for override in overrides}.values():
        old, new = (find_node(tree, override.key) for tree in (before, after))
        if not (dataclasses.is_dataclass(old) and dataclasses.is_dataclass(new)):
            continue
        now = {setting.key: setting.value for setting in list_settings(new, override.key)}
        dropped = [
            f"{setting.key}={format_value(setting.value)} "
            + (f"(now {format_value(now[setting.key])})" if setting.key in now else "(has none)")
            for setting in list_settings(old, override.key)
            if setting.is_changed
            and setting.key not in keys
            and now.get(setting.key, dataclasses.MISSING) != setting.value
        ]
        if dropped:
            lines.append(f"{override.argument} drops {', '.join(dropped)}")
    return lines


def find_node(node: Any, key: str) -> Any:
    """Return the value at a key of a tree, or None."""
    for name in key.split("."):
        if is_named_tuple(node):
            node = next((item for item in node if item.name == name), None)
        else:
            node = getattr(node, name, None)
    return node


# ---- printing a run ----------------------------------------------------------


def format_tree(node: Any, indent: int = 0) -> list[str]:
    """Return the lines of a tree of dataclasses, one a leaf.

    Values that differ from their default are marked `* default X`.
    """
    lines = []
    width = max(len(field.name) for field in dataclasses.fields(node))
    for field in dataclasses.fields(node):
        value, default = getattr(node, field.name), find_default(field)
        if is_named_tuple(value):
            lines.append(f"{' ' * indent}{field.name}")
            for item in value:
                lines += [f"{' ' * (indent + 2)}{item.name}", *format_tree(item, indent + 4)]
            continue
        is_section = dataclasses.is_dataclass(value)
        if is_section:
            differs = default is not dataclasses.MISSING and type(value) is not type(default)
            text, default = type(value).__name__, type(default).__name__
        else:
            differs = default is not dataclasses.MISSING and value != default
            text, default = format_value(value), format_value(default)
        line = f"{' ' * indent}{field.name:<{width}}  {text}"
        lines.append(f"{line:<40}  * default {default}" if differs else line)
        if is_section:
            lines += format_tree(value, indent=indent + 2)
    return lines


# ---- printing the fields -----------------------------------------------------


class FieldNote(NamedTuple):
    """The description of a field; `keys` has one for each place of its section in a run."""

    keys: tuple[str, ...]
    section: str
    type: str
    default: str
    unit: str
    meaning: str


def list_dataclasses(hint: Any, is_open: bool = True) -> list[tuple[Any, bool]]:
    """Return [(dataclass, whether it is an item of a tuple)] that an annotation allows.

    is_open: whether the subclasses of `OPEN_KINDS` are among them; all of them are imported.
    """
    kinds = []
    for kind in list_alternatives(hint) if is_open else list_options(hint):
        if kind in OPEN_KINDS:
            continue
        if typing.get_origin(kind) is tuple:
            kinds += [(item, True) for item in typing.get_args(kind)[:1] if has_name(item)]
        elif dataclasses.is_dataclass(kind):
            kinds.append((kind, False))
    return kinds


def list_sections(
    kind: Any, places: tuple[str, ...] = ("",), is_open: bool = True
) -> dict[Any, tuple[str, ...]]:
    """Return {dataclass: keys of its places} of `kind` and all that its fields may contain.

    is_open: as of `list_dataclasses`.
    """
    sections = {kind: places}
    for name, hint in typing.get_type_hints(kind).items():
        for section, is_item in list_dataclasses(hint, is_open):
            key = f"{name}.NAME" if is_item else name
            inner = tuple(f"{place}.{key}".lstrip(".") for place in places)
            for nested, keys in list_sections(section, inner, is_open).items():
                sections[nested] = tuple(dict.fromkeys((*sections.get(nested, ()), *keys)))
    return sections


def list_nodes(node: Any, place: str = "") -> dict[type, tuple[str, ...]]:
    """Return {dataclass: keys of its places} of the dataclasses in a tree."""
    nodes: dict[type, tuple[str, ...]] = {type(node): (place,)}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        key = f"{place}.{field.name}".lstrip(".")
        items = {f"{key}.{item.name}": item for item in value} if is_named_tuple(value) else {}
        for inner, item in items.items() if items else [(key, value)]:
            if dataclasses.is_dataclass(item):
                for kind, places in list_nodes(item, inner).items():
                    nodes[kind] = nodes.get(kind, ()) + places
    return nodes


def list_field_notes(kind: Any, places: Iterable[str]) -> list[FieldNote]:
    """Return the FieldNotes of a dataclass whose places have the keys `places`."""
    hints = typing.get_type_hints(kind)
    notes = []
    for field in dataclasses.fields(kind):
        default = find_default(field)
        if dataclasses.is_dataclass(default):
            default = type(default).__name__
        elif default is not dataclasses.MISSING:
            default = format_value(default)
        keys = tuple(f"{place}.{field.name}".lstrip(".") for place in places)
        unit, meaning = read_meaning(kind, field.name)
        spelled = format_type(hints[field.name])
        default = "" if default is dataclasses.MISSING else default
        notes.append(FieldNote(keys, kind.__name__, spelled, default, unit, meaning))
    return notes


def read_meaning(kind: type, name: str) -> tuple[str, str]:
    """Return (unit, meaning) of a field, "" where it has none.

    A field without a comment in its own class has the base class's.
    """
    for base in kind.__mro__:
        if base is not object and (comment := read_comments(base).get(name)):
            unit, bracket, meaning = comment.partition("] ")
            if bracket and unit.startswith("["):
                return unit[1:], meaning
            return "", comment
    return "", ""


@functools.cache
def read_comments(kind: type) -> dict[str, str]:
    """Return {field: comment} of the fields that a class itself declares.

    The comment is the lines above the field, then the end of its line.
    """
    source = textwrap.dedent(inspect.getsource(kind))
    inline, above = {}, {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = token.line.lstrip().startswith("#")
            (above if alone else inline)[token.start[0]] = token.string.lstrip("# ")
    comments = {}
    [definition] = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first = node.lineno
            while first - 1 in above:
                first -= 1
            lines = range(first, (node.end_lineno or node.lineno) + 1)
            texts = [above.get(line) or inline.get(line) for line in lines]
            comments[node.target.id] = " ".join(filter(None, texts))
    return comments


def format_notes(notes: Iterable[FieldNote]) -> list[str]:
    """Return the lines that list FieldNotes in a terminal."""
    lines = []
    for note in notes:
        unit = f" {note.unit}" if note.unit else ""
        default = f", default {note.default}{unit}" if note.default else ""
        lines.append(f"  {', '.join(note.keys)}: {note.type}{default}")
        lines += textwrap.wrap(note.meaning, 100, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return lines
