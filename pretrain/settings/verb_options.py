"""The options of a verb, declared once: the flags, the function and its help follow from a class.

    class ExportOptions(VerbOptions):
        model: str = option("workdir of a run", "--workdir", kw_only=False, converter=format_path)
        dtype: str = option("dtype of the weights", default="float32", choices=DTYPES)

    add_options(parser, ExportOptions)  # the command line
    options = read_options(ExportOptions, parser.parse_args())

    @takes(ExportOptions)  # Python: export(model, *, dtype="float32")
    def export(options: ExportOptions) -> None: ...

A checker of types and an editor know the signature of `export`, and `help(export)` lists each
option with its meaning.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, dataclass_transform

Parameters = ParamSpec("Parameters")
Options = TypeVar("Options")
Owner = TypeVar("Owner")
Result = TypeVar("Result")

KEY = "option"  # of the metadata of a field
TYPES = {"int": int, "float": float}  # of the words of the command line; any other is a text
WIDTH = 96  # of a docstring
# What the argument `config` of several verbs takes.
CONFIG_HELP = (
    "a configuration: its name (`describe --list` shows all), a .py file with config(), or a saved "
    "config.json"
)


class Group(NamedTuple):
    """Options that `--help` lists together.

    Attributes:
      title: "" lists them among the options without a group.
      description: a line below the title.
      excludes: whether at most one of them may be given.
      required: whether one of them must be given.
    """

    title: str = ""
    description: str | None = None
    excludes: bool = False
    required: bool = False

    def add_to(self, parser: argparse._ActionsContainer) -> argparse._ActionsContainer:
        """Return a new group of a parser, to which arguments can be added."""
        if self.title:
            parser = parser.add_argument_group(self.title, self.description)
        if self.excludes:
            parser = parser.add_mutually_exclusive_group(required=self.required)
        return parser


class Option(NamedTuple):
    """What the command line has of a field.

    Attributes:
      help: the meaning, as a phrase; %(default)s is replaced by the default.
      flags: names on the command line, "name" for a positional argument; (): --name.
      group: where `--help` lists it; None: among the options without a group.
      only_python: whether the command line lacks it.
      converter: makes the value of the field of a given value or the default; None: they are equal.
      arguments: further arguments of `add_argument`.
    """

    help: str
    flags: tuple[str, ...]
    group: Group | None
    only_python: bool
    converter: Callable[[Any], Any] | None
    arguments: dict[str, Any]

    def name_argument(self, name: str) -> str:
        """Return the name in parsed arguments of the field `name`."""
        return self.flags[0].lstrip("-").replace("-", "_") if self.flags else name


def option(
    help: str,
    *flags: str,
    default: Any = dataclasses.MISSING,
    kw_only: bool = True,
    group: Group | None = None,
    only_python: bool = False,
    converter: Callable[[Any], Any] | None = None,
    **arguments: Any,
) -> Any:
    """Return a field of a class of options; without a default it is required.

    Args:
      help, flags, group, only_python, converter, arguments: see `Option`.
      default: the value if it is not given.
      kw_only: whether the function takes it by name alone.
    """
    metadata = {KEY: Option(help, flags, group, only_python, converter, arguments)}
    return dataclasses.field(default=default, kw_only=kw_only, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option,))
class VerbOptions:
    """A base of frozen dataclasses whose fields are `option`s; None means the default."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        for field in list_options(type(self)):
            value, converter = vars(self)[field.name], field.metadata[KEY].converter
            if value is None and field.default is not dataclasses.MISSING:
                value = field.default
            object.__setattr__(self, field.name, converter(value) if converter else value)
        self.check()

    def check(self) -> None:
        """Raise ValueError for values that are not valid."""

    def check_choices(self, *names: str) -> None:
        """Raise ValueError unless each of these options has one of its choices."""
        for field in list_options(type(self)):
            value, choices = vars(self)[field.name], field.metadata[KEY].arguments.get("choices")
            if field.name in names and value not in choices:
                raise ValueError(
                    f"{format_flag(field.name)} {value}: must be {' or '.join(choices)}"
                )


def list_options(options: type) -> list[dataclasses.Field[Any]]:
    """Return the fields of a class of options: its own, then the inherited ones."""
    fields = {field.name: field for field in dataclasses.fields(options)}
    declared = [name for kind in options.__mro__ for name in inspect.get_annotations(kind)]
    return [fields[name] for name in dict.fromkeys(declared) if name in fields]


def format_flag(name: str) -> str:
    """Return the flag of an option on the command line, unless it is declared with another."""
    return "--" + name.replace("_", "-")


# ---- the command line --------------------------------------------------------


def add_options(
    parser: argparse._ActionsContainer, options: type, leave_out: Sequence[str] = ()
) -> Mapping[Group | None, argparse._ActionsContainer]:
    """Add an argument for each option to a parser; return its groups, None for the parser.

    Args:
      parser: the parser.
      options: a class of options.
      leave_out: names of options that the parser has already, or lacks.
    """
    places: dict[Group | None, argparse._ActionsContainer] = {None: parser}
    for field in list_options(options):
        declared: Option = field.metadata[KEY]
        if declared.only_python or field.name in leave_out:
            continue
        if declared.group is not None and declared.group not in places:
            places[declared.group] = declared.group.add_to(parser)
        flags = declared.flags or (format_flag(field.name),)
        arguments: dict[str, Any] = {"help": declared.help}
        if flags[0].startswith("-"):
            is_required = field.default is dataclasses.MISSING
            if not is_required:
                arguments |= {"default": field.default}
            elif declared.group is None or not declared.group.excludes:
                arguments |= {"required": True}
        name = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        type_name = name.removesuffix(" | None")
        if type_name == "bool":
            arguments |= {"action": "store_true"}
        elif type_name in TYPES:
            arguments |= {"type": TYPES[type_name]}
        places[declared.group].add_argument(*flags, **arguments | declared.arguments)
    return places


def read_options(options: Callable[..., Options], args: argparse.Namespace) -> Options:
    """Return the options that parsed arguments have; the others have their defaults."""
    kind: Any = options
    names = {
        field.name: field.metadata[KEY].name_argument(field.name) for field in list_options(kind)
    }
    given: Any = {name: vars(args)[own] for name, own in names.items() if own in args}
    return options(**given)


# ---- the function ------------------------------------------------------------


def takes(
    options: Callable[Parameters, Options],
) -> Callable[[Callable[[Options], Result]], Callable[Parameters, Result]]:
    """Return a decorator: a function of one object of options takes each option by its name.

    Raises:
      ValueError: in a call, for the name of an option that does not exist.
    """

    def decorate(function: Callable[[Options], Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **given: Parameters.kwargs) -> Result:
            check_names(options, function.__name__, given)
            return function(options(*args, **given))

        return document(call, options)

    return decorate


def builds(
    options: Callable[Parameters, Options], verb: str
) -> Callable[[Callable[[Owner, Options], None]], Callable[Concatenate[Owner, Parameters], None]]:
    """Return the decorator of an `__init__` that does as `takes`; errors name the verb."""

    def decorate(
        function: Callable[[Owner, Options], None],
    ) -> Callable[Concatenate[Owner, Parameters], None]:
        @functools.wraps(function)
        def call(self: Owner, *args: Parameters.args, **given: Parameters.kwargs) -> None:
            check_names(options, verb, given)
            function(self, options(*args, **given))

        return document(call, options, is_method=True)

    return decorate


def check_names(options: Any, verb: str, given: Mapping[str, Any]) -> None:
    """Raise ValueError for the name of an option that a verb does not have."""
    known = [field.name for field in list_options(options)]
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"{verb} has no option {unknown[0]!r}; it has {', '.join(known)}")


def document(call: Any, options: Any, is_method: bool = False) -> Any:
    """Give a function the signature of a class of options, and list them in its docstring."""
    own, declared = inspect.signature(call), inspect.signature(options)
    owner = list(own.parameters.values())[:1] if is_method else []
    call.__signature__ = own.replace(parameters=[*owner, *declared.parameters.values()])
    text, heading, rest = inspect.cleandoc(call.__doc__).partition("\nRaises:")
    fields = {field.name: field for field in dataclasses.fields(options)}
    lines = [_explain(fields[name]) for name in declared.parameters]
    call.__doc__ = "\n".join([f"{text.rstrip()}\n\nArgs:", *lines, heading + rest])
    return call


def _explain(field: dataclasses.Field[Any]) -> str:
    """Return the lines of a docstring about an option."""
    meaning = field.metadata[KEY].help.replace("%(default)s", str(field.default))
    first, rest = f"  {field.name}: ", " " * 4
    return textwrap.fill(f"{meaning}.", WIDTH, initial_indent=first, subsequent_indent=rest)
