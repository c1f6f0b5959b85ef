"""Override, check, write and read trees of frozen dataclasses.

A tree is overridden by `path=value` arguments, checked against its annotations, and written as
JSON. This module knows no particular class: the caller gives those that may be loaded.
"""

import ast
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from data.members import FolderMembers

LARGEST = 1 << 63  # the absolute value of an int must be below
# {annotation: the classes by name that a field with it may hold}: of base classes whose subclasses
# are imported when a run names them. `find` takes a name in any case.
OPEN_KINDS: dict[type, "FolderMembers[Any]"] = {}


class ConfigError(ValueError):
    """An invalid configuration; the message names the key and what is allowed."""


def check_at_least(config: Any, low: float, *names: str) -> None:
    """Raise ConfigError unless each named field of `config` is `low` or more."""
    for name in names:
        value = getattr(config, name)
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(one, (int, float)) and not one >= low for one in numbers):
            raise ConfigError(
                f"{type(config).__name__}.{name} is {value}; it must be at least {low}"
            )


class Override(NamedTuple):
    """One `path=value`: names along the path, text of the value, and the argument as written."""

    names: tuple[str, ...]
    text: str
    argument: str

    @property
    def key(self) -> str:
        """The path as the user wrote it."""
        return self.argument.partition("=")[0]


def parse_override(argument: str) -> Override:
    """Return the Override of an argument. Raises ConfigError unless it is `path=value`."""
    path, equals, text = argument.partition("=")
    if not equals or not path or not path.isprintable():
        raise ConfigError(
            f"{argument!r} is not of the form path=value, for example train.steps=100"
        )
    return Override(tuple(path.split(".")), text, argument)


def apply_overrides(node: Any, overrides: Iterable[Override]) -> Any:
    """Return a copy of the tree `node` with overrides applied together.

    Only the result must be valid. A section is replaced before its fields are set, in either order
    of the arguments. Of two values for one field the last is used.

    Raises:
      ConfigError: an override names no field, or its value is invalid.
    """
    if is_named_tuple(node):
        return _apply_to_items(node, overrides)
    hints = typing.get_type_hints(type(node)) if dataclasses.is_dataclass(node) else {}
    fields = {field.name: hints[field.name] for field in dataclasses.fields(node)} if hints else {}
    by_name: dict[str, list[Override]] = {}
    for override in overrides:
        if override.names[0] not in fields:
            raise make_unknown_key_error(node, override, fields)
        by_name.setdefault(override.names[0], []).append(override)
    values = {
        name: _apply_to_field(getattr(node, name), fields[name], group)
        for name, group in by_name.items()
    }
    try:
        return dataclasses.replace(cast(Any, node), **values)
    except ConfigError:
        raise
    except ValueError as error:
        wrong = [name for name, value in values.items() if not _is_valid(node, name, value)]
        arguments = [override.argument for name in wrong or values for override in by_name[name]]
        raise ConfigError(f"{' '.join(arguments)}: {error}") from error


def is_named_tuple(value: Any) -> bool:
    """Return whether a value is a tuple of dataclasses with names, which keys contain."""
    return isinstance(value, tuple) and bool(value) and all(map(has_name, map(type, value)))


def has_name(kind: Any) -> bool:
    """Return whether a class is a dataclass with a field `name`."""
    return dataclasses.is_dataclass(kind) and any(
        field.name == "name" for field in dataclasses.fields(kind)
    )


def _apply_to_items(items: tuple[Any, ...], overrides: Iterable[Override]) -> tuple[Any, ...]:
    """Return a copy of a tuple of named dataclasses with overrides, whose paths begin with them."""
    by_name = {item.name: [] for item in items}
    for override in overrides:
        if override.names[0] not in by_name:
            raise make_unknown_key_error(items, override, by_name)
        if len(override.names) == 1:
            raise ConfigError(f"{override.key} is a section: set one of its fields")
        by_name[override.names[0]].append(override._replace(names=override.names[1:]))
    return tuple(apply_overrides(item, by_name[item.name]) for item in items)


def _is_valid(node: Any, name: str, value: Any) -> bool:
    try:
        dataclasses.replace(node, **{name: value})
    except ValueError:
        return False
    return True


def _apply_to_field(value: Any, kind: Any, overrides: Iterable[Override]) -> Any:
    inner = []
    for override in overrides:
        if len(override.names) == 1:
            value = parse_value(override.text, kind, override.key)
        else:
            inner.append(override._replace(names=override.names[1:]))
    return apply_overrides(value, inner) if inner else value


def make_unknown_key_error(node: Any, override: Override, fields: Mapping[str, Any]) -> ConfigError:
    name, key = override.names[0], override.key
    close = difflib.get_close_matches(name, fields, n=3, cutoff=0.5)
    close.sort(key=lambda field: sorted(field) != sorted(name))  # swapped letters come first
    place = type(node).__name__ if fields else f"{key.rpartition('.')[0]} is a value and"
    hint = f"did you mean {close[0]!r}? It" if close else "it"
    return ConfigError(
        f"{key}: {place} has no {name!r}; {hint} has {', '.join(fields) or 'no parts'}"
    )


def parse_value(text: str, kind: Any, key: str) -> Any:
    """Return `text` as a value of the annotated type `kind`."""
    kinds = list_options(kind)
    if any(dataclasses.is_dataclass(member) or member in OPEN_KINDS for member in kinds):
        if section := _find_section(text, kinds):
            try:
                return section()
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{key}={text}: {error}") from error
        known = ", ".join(
            member.__name__.removesuffix("Type") for member in list_alternatives(kind)
        )
        raise ConfigError(f"{key}: {text!r} is not one of {known}")
    try:
        is_constant = text.lower() in ("true", "false", "none")
        value = ast.literal_eval(text.title() if is_constant else text)
    except (SyntaxError, ValueError):
        value = text
    if any(typing.get_origin(option) is tuple for option in kinds) and not isinstance(value, tuple):
        # Text, as in evaluate.metrics=accuracy,f1.
        items = value.split(",") if isinstance(value, str) else value
        value = tuple(items) if isinstance(items, list) else (items,)
    if type(value) is float and value.is_integer() and int in kinds and float not in kinds:
        value = int(value)  # steps=1e6
    if str in kinds and not isinstance(value, str) and not (value is None and type(None) in kinds):
        value = text
    value = _convert_ints(value, kinds)
    check_types(value, key, kind)
    return value


def _find_section(name: str, kinds: Iterable[Any]) -> Any:
    """Return the class of a name in any case that a field of these types may hold, or None."""
    for kind in kinds:
        if kind in OPEN_KINDS:
            if found := OPEN_KINDS[kind].find(name):
                return found
        elif kind.__name__.removesuffix("Type").lower() == name.lower():
            return kind
    return None


def list_options(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type, as they are written."""
    return (
        typing.get_args(kind)
        if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
        else (kind,)
    )


def list_alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types that an annotation allows; all of them are imported."""
    kinds = [
        alternative
        for option in list_options(kind)
        for alternative in (OPEN_KINDS[option].values() if option in OPEN_KINDS else (option,))
    ]
    return tuple(dict.fromkeys(kinds))


def _convert_ints(value: Any, kinds: Sequence[Any]) -> Any:
    """Return the value with integers as floats where the type is float, also inside tuples."""
    if type(value) is int and float in kinds and int not in kinds and abs(value) < LARGEST:
        return float(value)
    if isinstance(value, tuple):
        inner = [typing.get_args(kind)[0] for kind in kinds if typing.get_origin(kind) is tuple]
        return tuple(_convert_ints(item, inner) for item in value)
    return value


def check_types(value: Any, key: str, kind: Any = None) -> None:
    """Raise ConfigError unless `value` and all fields in it have their annotated types.

    key: the value's key. kind: its annotated type; None for the root of a tree.
    """
    if dataclasses.is_dataclass(value):
        if kind is not None and _find_section(type(value).__name__, list_options(kind)) is not (
            type(value)
        ):
            raise ConfigError(f"{key}: {type(value).__name__} is not one of {format_type(kind)}")
        hints = typing.get_type_hints(type(value))
        for field in dataclasses.fields(value):
            check_types(
                getattr(value, field.name), f"{key}.{field.name}".lstrip("."), hints[field.name]
            )
    elif not any(_is_of_type(value, option) for option in list_options(kind)):
        raise ConfigError(f"{key}: {show_value(value)} is not {format_type(kind)}")
    elif is_named_tuple(value):
        for item in value:
            check_types(item, f"{key}.{item.name}")


def show_value(value: Any) -> str:
    """Return a value as text for an error, shortened where it is long."""
    if type(value) is int and abs(value) >= LARGEST:  # Python formats at most 4,300 digits
        return "a number of 64 bits or more"
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 120 else f"{text[:80]} ... {text[-20:]}"


def _is_representable(value: float) -> bool:
    """Return whether a number is finite, and fits 64 bits if it is an int."""
    return math.isfinite(value) if type(value) is float else abs(value) < LARGEST


def _is_of_type(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(
            _is_of_type(item, typing.get_args(kind)[0]) for item in value
        )
    if type(value) in (int, float) and not _is_representable(value):
        return False
    return type(value) is kind or (kind is float and type(value) is int)


def format_type(kind: Any) -> str:
    """Return an annotated type as text, for errors and lists of fields."""

    def format_plural(item: str) -> str:
        first, of, rest = item.partition(" of ")
        article, _, noun = first.rpartition(" ")
        if of and noun != "tuple":
            return item  # one of some values
        return f"{noun if article in ('a', 'an') else first}s{of}{rest}"

    def format_alternative(kind: Any) -> str:
        if typing.get_origin(kind) is Literal:
            return "one of " + ", ".join(map(repr, typing.get_args(kind)))
        if typing.get_origin(kind) is tuple:
            return f"a tuple of {format_plural(format_alternative(typing.get_args(kind)[0]))}"
        return {
            int: "an int",
            float: "a number",
            bool: "true or false",
            str: "text",
            type(None): "none",
        }.get(kind, getattr(kind, "__name__", str(kind)))

    return " or ".join(map(format_alternative, list_alternatives(kind)))


def to_plain(node: Any) -> Any:
    """Return the tree as dictionaries and lists for JSON, each dataclass with its `type`."""
    if dataclasses.is_dataclass(node):
        fields = {
            field.name: to_plain(getattr(node, field.name)) for field in dataclasses.fields(node)
        }
        return {"type": type(node).__name__, **fields}
    return [to_plain(item) for item in node] if isinstance(node, tuple) else node


def from_plain(node: Any, classes: Mapping[str, type], where: str) -> Any:
    """Return the tree of dataclasses that `to_plain` wrote; raise ConfigError for anything else.

    classes: {name: class} of the classes that may be loaded. where: the file and field, for errors.
    """
    if isinstance(node, list):
        return tuple(from_plain(item, classes, where) for item in node)
    if not isinstance(node, dict):
        return node
    named = node.get("type")
    if not isinstance(named, str) or named not in classes:
        raise ConfigError(
            f"{where}: unknown type {show_value(named)}; known are {', '.join(classes)}"
        )
    kind = classes[named]
    fields = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(node.keys() - fields - {"type"})
    if unknown:
        names = ", ".join(name if name.isprintable() else repr(name) for name in unknown)
        raise ConfigError(f"{where}: {named} has no {names}: written by another version of Cloze?")
    values = {
        name: from_plain(value, classes, f"{where}: {name}")
        for name, value in node.items()
        if name != "type"
    }
    hints = typing.get_type_hints(kind)
    for name, value in values.items():
        check_types(value, f"{where}: {name}", hints[name])
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error
