"""Every command that a page or a configuration shows is one that the program takes."""

import argparse
import importlib
import pathlib
import re
import shlex

import pytest

from pretrain.__main__ import VERBS
from pretrain.config import CONFIGS, load

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(CONFIGS.glob("*.py"))]
COMMAND = re.compile(
    r"^\s*(?:#\s*)?(?:\$ )?(?:python -m pretrain|\./launch\.sh) +(?P<words>[a-z]+ .*)$",
    re.MULTILINE,
)


def commands():
    for page in PAGES:
        if page.name.startswith("adding_"):
            continue  # it adds what its commands name; tests/test_adding_*.py run it
        text = page.read_text().replace("\\\n", " ")
        for found in COMMAND.finditer(text):
            words = found["words"].split(" # ")[0].split("   ")[0]
            yield pytest.param(page, words, id=f"{page.name}: {words[:60]}")


@pytest.mark.parametrize(("page", "words"), list(commands()))
def test_a_command_that_is_shown_can_be_given(page, words):
    verb, *rest = shlex.split(words.replace("...", ""))
    if verb in ("test", "VERB"):
        return
    assert verb in VERBS, f"{page.name} shows the verb {verb!r}"
    parser = argparse.ArgumentParser(exit_on_error=False)
    importlib.import_module(VERBS[verb][0]).add_arguments(parser)
    args = parser.parse_intermixed_args(rest)
    if hasattr(args, "overrides") and getattr(args, "config", None):  # describe --fields has none
        load(args.config, args.overrides)


def test_links_lead_somewhere():
    for page in PAGES[:1] + [page for page in PAGES if page.parent.name == "docs"]:
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)", prose):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
