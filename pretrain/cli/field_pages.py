"""The generated pages of the configuration: docs/configuration.md and docs/configuration/*.md.

A page describes a field once. Where several sections of a page share a field, with its type, unit
and meaning, one table describes it, and each section lists its own default.
"""

from __future__ import annotations

import inspect
import pathlib
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from data.config import Data
from data.objectives.objective import Objective
from models.config.base import ImageConfig, ModelConfig, WordEncoderConfig
from models.config.heads import HeadedConfig
from pretrain.cli.generated_page import make_marker, update_page
from pretrain.run import Run
from pretrain.settings import Evaluate, Mesh, Optimizer, Phase, Train
from pretrain.settings.fields import FieldNote, list_field_notes, list_sections

COMMAND = "describe --fields --page docs/configuration.md"
MARKER = make_marker(COMMAND)
SHARED_FROM = 3  # sections that have a field, from which on the page's first table describes it
LONGEST_UNION = 6  # alternatives of a type that a table names
IN_A_MIXTURE = "data.objective.parts.NAME.objective"  # every objective's other place


class FieldPage(NamedTuple):
    """A page: its file, title, introduction, and whether a section begins its part of the order.

    A section for which no page answers follows the section before it, in which it is nested.
    """

    name: str
    title: str
    introduction: str
    has_section: Callable[[Any], bool]


PAGES = (
    FieldPage(
        "text_models",
        "Models of text",
        "Sections of `model`, one for each family; `model=CLASS` changes the family. In a "
        "fine-tuned model they stand at `model.encoder`. Defaults are the size that a section's "
        "first line names; [recipes](../recipes.md) has the others.",
        lambda kind: issubclass(kind, ModelConfig),
    ),
    FieldPage(
        "image_models",
        "Models of images",
        "Sections of `model` for images, and of `model.teacher` where a model is distilled.",
        lambda kind: issubclass(kind, ImageConfig),
    ),
    FieldPage(
        "heads",
        "Encoders of words, and heads",
        "Encoders that train together with their head, and the heads that `finetune` puts on an "
        "encoder.",
        lambda kind: issubclass(kind, WordEncoderConfig | HeadedConfig),
    ),
    FieldPage(
        "data",
        "Data and pretraining objectives",
        "The section `data`, and the classes of `data.objective`. In a mixture an objective "
        f"stands at `{IN_A_MIXTURE}`.",
        lambda kind: kind is Data or (issubclass(kind, Objective) and not kind.reads_examples),
    ),
    FieldPage(
        "tasks",
        "Fine-tuning objectives",
        "Sections of `data.objective` for labelled examples. `finetune` chooses them by `--task` "
        "and writes their store.",
        lambda kind: issubclass(kind, Objective) and kind.reads_examples,
    ),
    FieldPage(
        "optimizer",
        "Optimizers",
        "Sections of `optimizer`, each with its schedule.",
        lambda kind: kind in typing.get_args(Optimizer),
    ),
    FieldPage(
        "train",
        "Training and devices",
        "The sections `train`, `guard` and `mesh`, and the items of `phases`.",
        lambda kind: issubclass(kind, Train | Mesh | Phase),
    ),
    FieldPage(
        "evaluate",
        "Evaluation, checkpoints, limits",
        "The sections `evaluate`, `checkpoint` and `watchdog`.",
        lambda kind: kind is Evaluate,
    ),
)


def group_sections() -> dict[FieldPage, dict[Any, tuple[str, ...]]]:
    """Return {page: {section of a run: keys of its places}}, without the run itself."""
    groups: dict[FieldPage, dict[Any, tuple[str, ...]]] = {page: {} for page in PAGES}
    current = PAGES[0]
    for kind, places in list_sections(Run).items():
        if kind is Run:
            continue
        current = next((page for page in PAGES if page.has_section(kind)), current)
        # A place within another one comes after it.
        inner = [place for place in places if place.startswith(tuple(f"{p}." for p in places))]
        groups[current][kind] = (*(place for place in places if place not in inner), *inner)
    return groups


def write_pages(path: pathlib.Path) -> None:
    """Write the part of a page below its marker, and the pages of a folder of the page's name."""
    update_page(path, MARKER, format_index(path.stem))
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    for page, sections in group_sections().items():
        (folder / f"{page.name}.md").write_text(format_page(page, sections))


# ---- formatting --------------------------------------------------------------


def format_index(folder: str) -> str:
    """Return the sections of a run, and links to all others, as Markdown."""
    groups = group_sections()
    lines = ["## Sections", "", "| section | default | holds | fields |", "|---|---|---|---|"]
    for note in list_field_notes(Run, ("",)):
        [name] = note.keys
        pages = [
            f"[{page.name}]({folder}/{page.name}.md)"
            for page, sections in groups.items()
            if any({name, f"{name}.NAME"} & {*places} for places in sections.values())
        ]
        default = f"`{note.default}`" if note.default else ""
        lines.append(f"| `{name}` | {default} | {note.meaning} | {', '.join(pages)} |")
    lines += ["", "Every class, with its fields:", ""]
    for page, sections in groups.items():
        links = ", ".join(
            f"[{kind.__name__}]({folder}/{page.name}.md#{kind.__name__.lower()})"
            for kind in sections
        )
        lines.append(f"- {page.title}: {links}")
    return "\n".join([*lines, ""])


def format_page(page: FieldPage, sections: Mapping[Any, tuple[str, ...]]) -> str:
    """Return a page of sections as Markdown."""
    notes = {kind: list_field_notes(kind, places) for kind, places in sections.items()}
    counts: dict[tuple[str, ...], int] = {}
    for group in notes.values():
        for note in group:
            counts[describe_field(note)] = counts.get(describe_field(note), 0) + 1
    shared = choose_shared(counts)
    lines = [f"# {page.title}", "", page.introduction, ""]
    lines += [f"<!-- Written by: python -m pretrain {COMMAND} -->", ""]
    if shared:
        lines += ["## Shared fields", ""]
        lines += format_table(("field", "type", "meaning"), map(format_shared, shared))
    described = dict.fromkeys(shared, "")
    for kind, group in notes.items():
        lines += format_section(kind, sections[kind], group, described)
        for note in group:
            described.setdefault(describe_field(note), kind.__name__)
    return "\n".join(lines)


def choose_shared(counts: Mapping[tuple[str, ...], int]) -> list[tuple[str, ...]]:
    """Return the fields that a page's first table describes, at most one of each name."""
    best: dict[str, tuple[str, ...]] = {}
    for fact, count in counts.items():
        known = best.get(fact[0])
        if count >= SHARED_FROM and fact[-1] and (known is None or count > counts[known]):
            best[fact[0]] = fact
    return list(best.values())


def describe_field(note: FieldNote) -> tuple[str, ...]:
    """Return what sections must have in common to share a field: all but its default."""
    return name_field(note), note.type, note.unit, note.meaning


def name_field(note: FieldNote) -> str:
    """Return the name of a field within its section."""
    return note.keys[0].rpartition(".")[2]


def format_section(
    kind: Any,
    places: Sequence[str],
    notes: Sequence[FieldNote],
    described: Mapping[tuple[str, ...], str],
) -> list[str]:
    """Return the lines of a section.

    Args:
      places: the keys at which a run may have it.
      notes: its fields.
      described: {field: the section that describes it, "" for the shared table}.
    """
    where = ", ".join(f"`{place}`" for place in places if place != IN_A_MIXTURE)
    lines = [f"## {kind.__name__}", "", f"{where}: {inspect.getdoc(kind) or ''}", ""]
    elsewhere: dict[str, list[str]] = {}
    rows = []
    for note in notes:
        place = described.get(describe_field(note))
        if place is None:
            rows.append(format_own(note))
        else:
            elsewhere.setdefault(place, []).append(f"`{name_field(note)}={note.default}`")
    if rows:
        lines += format_table(("field", "type", "default", "meaning"), rows)
    for place, fields in elsewhere.items():
        link = f"As in [{place}](#{place.lower()})" if place else "[Shared](#shared-fields)"
        lines += [f"{link}: {' '.join(fields)}", ""]
    return lines


def format_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, and an empty one."""
    head, *body = (f"| {' | '.join(line)} |" for line in (columns, *rows))
    return [head, "|---" * len(columns) + "|", *body, ""]


def format_own(note: FieldNote) -> tuple[str, ...]:
    """Return the cells of a field that a section describes."""
    default = f"`{escape_cell(note.default)}`" if note.default else ""
    unit = f" {note.unit}" if note.unit and note.default else ""
    cells = (f"`{name_field(note)}`", shorten_type(note.type), f"{default}{unit}")
    return (*cells, escape_cell(note.meaning))


def format_shared(fact: tuple[str, ...]) -> tuple[str, ...]:
    """Return the cells of a field that several sections share."""
    name, kind, unit, meaning = fact
    return f"`{name}`", f"{shorten_type(kind)}{f' ({unit})' if unit else ''}", escape_cell(meaning)


def shorten_type(kind: str) -> str:
    """Return a type for a table, without articles and `one of`; a long union becomes words."""
    if kind.count(" or ") > LONGEST_UNION:
        return "one of many classes"
    kind = kind.replace("true or false", "bool")
    return escape_cell(re.sub(r"\ban? |\bone of (?=')", "", kind))


def escape_cell(text: str) -> str:
    """Return a text for a cell of a Markdown table."""
    return text.replace("|", "\\|")
