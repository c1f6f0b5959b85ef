"""Trees of frozen dataclasses: set by `path=value` arguments, checked against their annotations, written as JSON and read back.

Knows no particular class: the caller gives the ones that may be loaded.
"""

import ast
import dataclasses
import difflib
import math
import types
import typing
from typing import Any, Literal, NamedTuple, cast

LARGEST = 1 << 63  # of an int's size


class ConfigError(ValueError):
    """A configuration that cannot be what its writer meant; the message names the key and what is allowed."""


def at_least(config, low, *names):
    """Raise ConfigError unless each named field of `config` is `low` or more."""
    for name in names:
        value = getattr(config, name)
        if isinstance(value, (int, float)) and not value >= low:
            raise ConfigError(
                f"{type(config).__name__}.{name} is {value}; it must be at least {low}"
            )


class Override(NamedTuple):
    """One `path=value`: the names along the path, the text of the value, and both as the user wrote them."""

    names: tuple[str, ...]
    text: str
    argument: str

    @property
    def key(self):
        return self.argument.partition("=")[0]


def parse_override(argument):
    """Return the Override that an argument `path=value` spells. Raises ConfigError for anything else."""
    path, equals, text = argument.partition("=")
    if not equals or not path or not path.isprintable():
        raise ConfigError(
            f"{argument!r} is not of the form path=value, for example train.steps=100"
        )
    return Override(tuple(path.split(".")), text, argument)


def apply_overrides(node: Any, overrides) -> Any:
    """Return a copy of the tree `node` with all overrides applied at once, so that only their result must make sense.

    A section is replaced before its fields are set, whichever comes first; of two values for one field the last is taken.
    """
    if is_named_tuple(node):
        return _apply_to_items(node, overrides)
    hints = typing.get_type_hints(type(node)) if dataclasses.is_dataclass(node) else {}
    fields = {field.name: hints[field.name] for field in dataclasses.fields(node)} if hints else {}
    by_name: dict[str, list[Override]] = {}
    for override in overrides:
        if override.names[0] not in fields:
            raise _unknown_key(node, override, fields)
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
        given = [one.argument for name in wrong or values for one in by_name[name]]
        raise ConfigError(f"{' '.join(given)}: {error}") from error


def is_named_tuple(value) -> bool:
    """Return whether a value is a tuple of dataclasses that have names, by which keys call them."""
    return isinstance(value, tuple) and bool(value) and all(map(has_name, map(type, value)))


def has_name(kind) -> bool:
    """Return whether a class is a dataclass with a field `name`."""
    return dataclasses.is_dataclass(kind) and any(
        field.name == "name" for field in dataclasses.fields(kind)
    )


def _apply_to_items(items, overrides):
    """Return a copy of a tuple of named dataclasses with overrides applied, whose first names are theirs."""
    by_name = {item.name: [] for item in items}
    for override in overrides:
        if override.names[0] not in by_name:
            raise _unknown_key(items, override, by_name)
        if len(override.names) == 1:
            raise ConfigError(f"{override.key} is a section: set one of its fields")
        by_name[override.names[0]].append(override._replace(names=override.names[1:]))
    return tuple(apply_overrides(item, by_name[item.name]) for item in items)


def _is_valid(node, name, value):
    try:
        dataclasses.replace(node, **{name: value})
    except ValueError:
        return False
    return True


def _apply_to_field(value, kind, overrides):
    inner = []
    for override in overrides:
        if len(override.names) == 1:
            value = _parse(override.text, kind, override.key)
        else:
            inner.append(override._replace(names=override.names[1:]))
    return apply_overrides(value, inner) if inner else value


def _unknown_key(node, override, fields):
    name, key = override.names[0], override.key
    close = difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
    place = type(node).__name__ if fields else f"{key.rpartition('.')[0]} is a value and"
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ConfigError(
        f"{key}: {place} has no {name!r}; {hint}It has {', '.join(fields) or 'no parts'}"
    )


def _parse(text, kind, key):
    """`text` as a value of the annotated type `kind`."""
    kinds = alternatives(kind)
    parts: list[Any] = [part for part in kinds if dataclasses.is_dataclass(part)]
    if parts:
        names = {part.__name__.lower(): part for part in parts}
        if text.lower() in names:
            try:
                return names[text.lower()]()
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{key}={text}: {error}") from error
        raise ConfigError(
            f"{key}: {text!r} is not one of {', '.join(part.__name__ for part in parts)}"
        )
    try:
        value = ast.literal_eval(
            text.title() if text.lower() in ("true", "false", "none") else text
        )
    except (SyntaxError, ValueError):
        value = text
    if any(typing.get_origin(one) is tuple for one in kinds) and not isinstance(value, tuple):
        items = (
            value.split(",") if isinstance(value, str) else value
        )  # words, as in evaluate.metrics=accuracy,f1
        value = tuple(items) if isinstance(items, list) else (items,)
    if type(value) is float and value.is_integer() and int in kinds and float not in kinds:
        value = int(value)  # steps=1e6
    if str in kinds and not isinstance(value, str) and not (value is None and type(None) in kinds):
        value = text
    value = _widen(value, kinds)
    check(value, key, kind)
    return value


def alternatives(kind):
    """The types of a union, or the one type."""
    return (
        typing.get_args(kind)
        if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
        else (kind,)
    )


def _widen(value, kinds):
    """Integers where floats are meant become floats, also inside tuples."""
    if type(value) is int and float in kinds and int not in kinds and abs(value) < LARGEST:
        return float(value)
    if isinstance(value, tuple):
        inner = [typing.get_args(one)[0] for one in kinds if typing.get_origin(one) is tuple]
        return tuple(_widen(item, inner) for item in value)
    return value


def check(value, key, kind=None):
    """Raise ConfigError unless `value` is of the annotated type, down to the last field."""
    if dataclasses.is_dataclass(value):
        if kind is not None and type(value) not in alternatives(kind):
            raise ConfigError(f"{key}: {type(value).__name__} is not one of {spell_type(kind)}")
        hints = typing.get_type_hints(type(value))
        for field in dataclasses.fields(value):
            check(getattr(value, field.name), f"{key}.{field.name}".lstrip("."), hints[field.name])
    elif not any(_fits(value, one) for one in alternatives(kind)):
        raise ConfigError(f"{key}: {show_value(value)} is not {spell_type(kind)}")
    elif is_named_tuple(value):
        for item in value:
            check(item, f"{key}.{item.name}")


def show_value(value):
    """A value in a line of its own, cut where it is long."""
    if type(value) is int and abs(value) >= LARGEST:  # Python spells none of more than 4,300 digits
        return "a number of 64 bits or more"
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 120 else f"{text[:80]} ... {text[-20:]}"


def _sized(value):
    """Whether a number is one that can be computed with."""
    return math.isfinite(value) if type(value) is float else abs(value) < LARGEST


def _fits(value, kind):
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(
            _fits(item, typing.get_args(kind)[0]) for item in value
        )
    if type(value) in (int, float) and not _sized(value):
        return False
    return type(value) is kind or (kind is float and type(value) is int)


def spell_type(kind):
    """Return an annotated type in words, as errors and lists of fields name it."""

    def one(kind):
        if typing.get_origin(kind) is Literal:
            return "one of " + ", ".join(map(repr, typing.get_args(kind)))
        if typing.get_origin(kind) is tuple:
            return f"a tuple of {one(typing.get_args(kind)[0]).removeprefix('a ')}s"
        return {
            int: "an int",
            float: "a number",
            bool: "true or false",
            str: "text",
            type(None): "none",
        }.get(kind, getattr(kind, "__name__", str(kind)))

    return " or ".join(map(one, alternatives(kind)))


def plain(node) -> Any:
    """The tree as dictionaries and lists, each dataclass with its `type`."""
    if dataclasses.is_dataclass(node):
        fields = {
            field.name: plain(getattr(node, field.name)) for field in dataclasses.fields(node)
        }
        return {"type": type(node).__name__, **fields}
    return [plain(item) for item in node] if isinstance(node, tuple) else node


def typed(node, kinds, where):
    """The tree that `plain` wrote; `kinds` maps the names that may be loaded to their classes."""
    if isinstance(node, list):
        return tuple(typed(item, kinds, where) for item in node)
    if not isinstance(node, dict):
        return node
    named = node.get("type")
    if not isinstance(named, str) or named not in kinds:
        raise ConfigError(
            f"{where}: unknown type {show_value(named)}; known are {', '.join(kinds)}"
        )
    kind = kinds[named]
    names = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(node.keys() - names - {"type"})
    if unknown:
        told = ", ".join(name if name.isprintable() else repr(name) for name in unknown)
        raise ConfigError(f"{where}: {named} has no {told}: written by another version of Cloze?")
    values = {
        name: typed(value, kinds, f"{where}: {name}")
        for name, value in node.items()
        if name != "type"
    }
    hints = typing.get_type_hints(kind)
    for name, value in values.items():
        check(value, f"{where}: {name}", hints[name])
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error
