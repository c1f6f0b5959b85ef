"""An option is declared once: flags, signature, help and errors follow from its class."""

import argparse
import inspect
import pathlib

import pytest

from pretrain.settings.arguments import format_optional, format_path, list_arguments
from pretrain.settings.verb_options import (
    Group,
    VerbOptions,
    add_options,
    builds,
    list_options,
    option,
    read_options,
    takes,
)

MIXTURE = Group("mixture", "how sources are mixed", excludes=True)


class WatchOptions(VerbOptions):
    tracker: str = option("where metrics go (default: %(default)s)", default="none")


class BakeOptions(WatchOptions):
    dough: str = option("what to bake", "--from", kw_only=False, converter=format_path)
    minutes: int = option("time in the oven", default=3, metavar="N")
    rate: float | None = option("share of rye", default=None, group=MIXTURE)
    uniform: bool = option("equal shares", default=False, group=MIXTURE)
    tin: str | None = option("of metal", default=None, converter=format_optional)
    form: str = option("of the bread", default="round", choices=("round", "long"))
    overrides: list[str] = option(
        "changes", "overrides", default=(), kw_only=False, converter=list_arguments, nargs="*"
    )
    oven: object = option("a loaded oven", default=None, only_python=True)

    def check(self):
        self.check_choices("form")


@takes(BakeOptions)
def bake(options):
    """Bake a bread.

    Raises:
      ValueError: it burns.
    """
    return options


def parse(*words):
    parser = argparse.ArgumentParser()
    add_options(parser, BakeOptions)
    return read_options(BakeOptions, parser.parse_args(words)), parser


def test_the_command_line_and_the_function_agree():
    options, _ = parse("--from", "rye", "--minutes", "5", "--rate", "0.5", "--form", "long", "a=1")
    assert options == bake("rye", {"a": 1}, minutes=5, rate=0.5, form="long")
    assert parse("--from", "rye")[0] == bake(pathlib.Path("rye")) == bake(dough="rye")
    assert (options.minutes, options.uniform, options.overrides) == (5, False, ["a=1"])


def test_none_means_the_default():
    options = bake("rye", None, minutes=None, tracker=None, tin=pathlib.Path("a/b"))
    assert (options.minutes, options.tracker, options.overrides) == (3, "none", [])
    assert options.tin == "a/b"


def test_help_lists_own_options_first_and_groups_last():
    text = parse("--from", "rye")[1].format_help()
    places = [text.index(f"  {words}") for words in ("--from", "--form", "--tracker", "--rate")]
    assert places == sorted(places)
    assert "how sources are mixed" in text and "[--rate RATE | --uniform]" in text
    assert "(default: none)" in text and "--oven" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "required: --from"),
        (("--from", "rye", "--rate", "1", "--uniform"), "not allowed with"),
        (("--from", "rye", "--minutes", "soon"), "invalid int value"),
        (("--from", "rye", "--form", "flat"), "invalid choice"),
    ],
)
def test_wrong_words_are_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        parse(*words)
    assert message in capsys.readouterr().err


def test_wrong_values_are_refused():
    with pytest.raises(ValueError, match="bake has no option 'minute'; it has dough, minutes"):
        bake("rye", minute=3)
    with pytest.raises(ValueError, match="--form flat: must be round or long"):
        bake("rye", form="flat")
    with pytest.raises(ValueError, match="removes a slash"):
        bake(pathlib.Path("gs://bucket/rye"))


def test_the_signature_and_the_docstring_are_the_fields():
    parameters = inspect.signature(bake).parameters
    assert list(parameters)[:2] == ["dough", "overrides"]
    assert parameters["minutes"].default == 3
    assert parameters["minutes"].kind is inspect.Parameter.KEYWORD_ONLY
    lines = bake.__doc__.splitlines()
    assert lines[0] == "Bake a bread." and lines[-1] == "  ValueError: it burns."
    explained = {line.strip().partition(":")[0] for line in lines}
    assert {field.name for field in list_options(BakeOptions)} <= explained
    assert "  tracker: where metrics go (default: none)." in lines


def test_a_class_takes_options():
    class Oven:
        @builds(BakeOptions, "bake")
        def __init__(self, options):
            """Heat an oven."""
            self.options = options

    assert Oven("rye", minutes=4).options == bake("rye", minutes=4)
    assert list(inspect.signature(Oven).parameters)[:2] == ["dough", "overrides"]
    with pytest.raises(ValueError, match="bake has no option 'heat'"):
        Oven("rye", heat=3)
