"""The pages: links and anchors exist, commands parse, each flag and field is explained."""

import argparse
import dataclasses
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys

import pytest

from pretrain.__main__ import VERBS
from pretrain.cli.verbs import import_verb
from pretrain.config import CONFIGS, SECTION_CLASSES, Run, load
from pretrain.settings.grid import list_members
from tests.docs_pages import (
    ROOT,
    RUN,
    SHOWN,
    list_anchors,
    list_links,
    list_pages,
    read_blocks,
    read_verb,
    split_commands,
)

PAGES = list_pages()
BELOW = "<!-- Below this line"  # in pages of which a command writes the rest


def make_parser(verb):
    """Return the argument parser of a verb."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    import_verb(verb).add_arguments(parser)
    return parser


def list_commands():
    """Yield (place, arguments) of each command of the pages and the configurations."""
    for page in PAGES:
        if page.startswith("docs/adding_"):
            continue  # its commands use what it adds; tests/test_adding_*.py run it
        for block in read_blocks(page):
            if block.language in ("", "bash"):
                for command in split_commands(block.text):
                    if words := read_verb(command):
                        yield pytest.param(block.name, words, id=f"{block.name} {words[:50]}")
    for path in sorted(CONFIGS.glob("*.py")):
        text = path.read_text().replace("\\\n", " ")
        for words in re.findall(r"^ *python -m pretrain +([a-z]+ .*)$", text, re.MULTILINE):
            yield pytest.param(path.name, words, id=f"{path.name} {words[:50]}")


@pytest.mark.parametrize(("place", "words"), list(list_commands()))
def test_a_command_that_is_shown_can_be_given(place, words):
    verb, *rest = shlex.split(words.replace("...", ""))
    if verb in ("test", "lint", "VERB") or rest == ["--help"]:
        return
    assert verb in VERBS, f"{place} shows the verb {verb!r}"
    parser = make_parser(verb)
    args = parser.parse_args(rest) if verb == "local" else parser.parse_intermixed_args(rest)
    config = getattr(args, "config", None)  # describe --fields has none
    is_made_elsewhere = config and config.startswith("runs/")
    if hasattr(args, "overrides") and config and not is_made_elsewhere:
        for overrides in (
            list_members(args.overrides).values() if verb == "sweep" else [args.overrides]
        ):
            load(config, overrides)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    here = (ROOT / page).parent
    for target, anchor in list_links(page):
        path = here / target if target else ROOT / page
        assert path.exists(), f"{page} links to {target}"
        if anchor and path.suffix == ".md":
            assert anchor in list_anchors(path), f"{page} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_a_block_is_executed_or_has_a_reason(page):
    """tests/test_docs_run.py executes those without a reason."""
    for block in read_blocks(page):
        assert block.language in (*RUN, *SHOWN), f"{block.name}: language {block.language!r}"
        assert block.reason is None or len(block.reason) > 10, f"{block.name} gives no reason"


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_a_page_with_commands_begins_with_what_they_need_and_take(page):
    first = (ROOT / page).read_text().partition("```")[0]
    if any(block.language in RUN for block in read_blocks(page)):
        assert re.search(r"^\*\*Needs\*\* \S.* \*\*Takes\*\* \S.*$", first, re.MULTILINE), (
            f"{page} lacks its line: **Needs** ... **Makes** ... **Takes** ..."
        )


@pytest.mark.parametrize("page", PAGES)
def test_columns_of_tables_have_names(page):
    """The first column of a table too."""
    headers = re.findall(r"^\|(.*)\n\|[-|: ]+\|$", (ROOT / page).read_text(), re.MULTILINE)
    assert [header for header in headers if not header.split("|")[0].strip()] == []


@pytest.mark.parametrize("verb", VERBS)
def test_each_flag_is_explained_on_a_page(verb):
    pages = [page for page in PAGES if not page.startswith("docs/configuration/")]
    text = "\n".join((ROOT / page).read_text().partition(BELOW)[0] for page in pages)
    for action in make_parser(verb)._actions:
        for flag in action.option_strings:
            if flag.startswith("--") and flag != "--help":
                found = re.search(rf"`[^`\n]*{flag}(?![\w-])[^`\n]*`", text)
                assert found, f"no page explains {flag} of {verb}"


def read_sections():
    """Return {section of a run: (its text, the text of its page)}."""
    sections = {}
    for path in (ROOT / "docs/configuration").glob("*.md"):
        text = path.read_text()
        for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            name = part.partition("\n")[0]
            assert name == "Shared fields" or name not in sections, f"{name} is on two pages"
            sections[name] = part, text
    return sections


def test_each_field_of_a_configuration_is_explained():
    """A field has a row in its section, or its default there and a row elsewhere on the page."""
    sections = read_sections()
    for name, kind in SECTION_CLASSES.items():
        for field in dataclasses.fields(kind):
            if kind is Run:
                assert f"| `{field.name}` |" in (ROOT / "docs/configuration.md").read_text()
                continue
            part, page = sections[name]
            row = f"| `{field.name}` |"
            assert row in part or (f"`{field.name}=" in part and row in page), (
                f"{name}.{field.name}"
            )


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_pages_are_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text()
    assert [page for page in PAGES if f": {page}\n" not in menu] == []


@pytest.mark.slow
@pytest.mark.more
def test_the_site_is_built_without_warnings(tmp_path):
    if not importlib.util.find_spec("zensical"):
        pytest.skip("Zensical is not installed: the extra docs")
    command = [sys.executable, ROOT / "docs/build.py", "--strict"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    home = (ROOT / "runs/site/index.html").read_text()
    assert "Not yet" in home and (ROOT / "runs/site/docs/quickstart/index.html").exists()
    assert "BertForPretraining" in (ROOT / "runs/site/models/bert.py/index.html").read_text()
    notebook = (ROOT / "runs/site/docs/notebooks/own_text.ipynb/index.html").read_text()
    assert "data:image/png;base64," in notebook and "step 300/300" in notebook
    assert done.stdout.endswith(f"{ROOT / 'runs/site/index.html'}\n")
