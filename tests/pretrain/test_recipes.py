"""The manifests that the pages show are what `pod manifest` prints, and their commands agree with
the launcher's table.
"""

import itertools
import pathlib
import re
import shlex

import pytest

from pretrain.__main__ import main
from pretrain.pod.environment import ENVIRONMENT
from pretrain.pod.manifests import FORMS
from tests.docs_pages import SHOWN, read_blocks, read_verb, split_commands

PAGES = ("docs/gke.md", "docs/slurm.md", "docs/skypilot.md")


def list_manifests():
    """Yield (form, words, text) of each command whose output the next block of its page shows."""
    for page in PAGES:
        blocks = read_blocks(page)
        for block, shown in itertools.pairwise(blocks):
            command = None if block.reason else read_verb(split_commands(block.text)[0])
            words = shlex.split(command or "")
            is_file = shown.language in SHOWN or shown.text.startswith("#!")
            if words[:2] == ["pod", "manifest"] and is_file:
                yield pytest.param(words, shown.text, id=words[words.index("--for") + 1])


@pytest.mark.parametrize(("words", "shown"), list(list_manifests()))
def test_a_page_shows_what_is_written(words, shown, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    printed = capsys.readouterr().out
    if "--output" in words:
        printed = pathlib.Path(words[words.index("--output") + 1]).read_text()
    assert printed == shown
    for name in ENVIRONMENT:
        assert re.search(rf"\b{name}\b", shown), name


def test_each_form_is_shown():
    assert [case.id for case in list_manifests()] == list(FORMS)
