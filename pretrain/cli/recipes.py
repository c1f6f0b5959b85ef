"""The recipes of the configurations, which are the docstrings of their files. No JAX.

A recipe's first line says what is trained. The rest has sizes, corpora, vocabulary, the commands of
all phases, and the cost where it is known.
"""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from models.config.base import Config
from models.config.heads import HeadedConfig
from pretrain.cli.generated_page import make_marker
from pretrain.config import find_file, list_names, load
from pretrain.families import FAMILIES
from pretrain.host.command import PROGRAM

MARKER = make_marker("describe --list --page docs/recipes.md")
COMMAND = re.compile(r"^( *)python -m pretrain ", re.MULTILINE)
RESULTS = re.compile(r"benchmarks/results/(\w+)\.md")
PAGE = re.compile(r"\bdocs/(\w+)\.md")


class Recipe(NamedTuple):
    """The recipe of a configuration: its name, its first line, and the lines below."""

    name: str
    summary: str
    body: str


def read_recipe(path: pathlib.Path) -> str:
    """Return the docstring of a configuration file; "" without one, and for a saved JSON."""
    if path.suffix != ".py":
        return ""
    text = ast.get_docstring(ast.parse(path.read_text()), clean=False)  # cleaning may dedent
    return (text or "").strip("\n")


def print_recipe(path: pathlib.Path) -> None:
    """Print the recipe of a configuration, with the commands as this installation takes them."""
    if recipe := read_recipe(path):
        print(COMMAND.sub(rf"\1{PROGRAM} ", recipe) + "\n")


def name_family(model: Config) -> str:
    """Return the title of the family of a model, or of the encoder below its head."""
    if isinstance(model, HeadedConfig):
        model = model.encoder
    titles = (family.title for family in FAMILIES.values() if type(model) is family.config)
    title = next(titles, type(model).__name__)
    return title[0].upper() + title[1:]


def group_recipes() -> dict[str, list[Recipe]]:
    """Return {title of a family: recipes of its configurations}, in alphabetical order."""
    groups: dict[str, list[Recipe]] = {}
    for name in list_names():
        summary, _, body = read_recipe(find_file(name)).partition("\n")
        recipe = Recipe(name, summary.removesuffix("."), body.strip("\n"))
        groups.setdefault(name_family(load(name).model), []).append(recipe)
    return dict(sorted(groups.items(), key=lambda group: group[0].lower()))


def format_list(groups: Mapping[str, list[Recipe]]) -> str:
    """Return the configurations by family, a line each."""
    width = max(len(recipe.name) for recipes in groups.values() for recipe in recipes)
    blocks = (
        "\n".join(
            [title, *(f"  {recipe.name:<{width}}  {recipe.summary}".rstrip() for recipe in recipes)]
        )
        for title, recipes in groups.items()
    )
    end = f"`{PROGRAM} describe NAME` prints a recipe and its settings."
    return "\n\n".join([*blocks, end])


def format_page(groups: Mapping[str, list[Recipe]]) -> str:
    """Return the recipes as the Markdown of docs/recipes.md."""
    lines = []
    for title, recipes in groups.items():
        lines += [f"## {title}", ""]
        for recipe in recipes:
            body = PAGE.sub(r"[\1](\1.md)", COMMAND.sub(r"\1./launch.sh ", recipe.body))
            body = RESULTS.sub(r"[\1](../benchmarks/results/\1.md)", body)
            lines += [f"### {recipe.name}", "", f"{recipe.summary}.", "", body, ""]
    return "\n".join(lines)
