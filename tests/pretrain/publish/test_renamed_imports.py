"""Imports are renamed, and nothing else is."""

import ast
import pathlib

import pytest

from pretrain.publish.renamed_imports import list_imports, rename_imports

pytestmark = pytest.mark.fast

ROOT = pathlib.Path(__file__).parents[3]
NAMES = {"models": "cloze.models", "data": "cloze.data"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import models", "from cloze import models"),
        ("from models import bert", "from cloze.models import bert"),
        ("from models.bert import Bert as B", "from cloze.models.bert import Bert as B"),
        ("from  models.bert import (\n  A,  # from models.bert\n  B,\n)", None),
        ("if x:\n    from data.store import a; from data import b", None),
        ("from models_of_others import a\nfrom x.models import b\nfrom . import data", ""),
        ("import dataclasses, json", ""),
        ("text = 'from models import a'  # from models import a", ""),
        ('"""\nfrom models import a\n"""', ""),
        ("é = 'ü'; from models import a", "é = 'ü'; from cloze.models import a"),
    ],
)
def test_statements_and_nothing_else(source, expected):
    renamed = rename_imports(source, NAMES)
    if expected is None:
        expected = source.replace("from data", "from cloze.data").replace(
            "from  models", "from  cloze.models"
        )
    assert renamed == (expected or source)


@pytest.mark.parametrize(
    "statement", ["import models.bert", "import models as m", "import json, models"]
)
def test_a_binding_that_would_change_is_an_error(statement):
    with pytest.raises(ValueError, match=f"line 2: '{statement}' imports models in a form"):
        rename_imports(f"\n{statement}\n", NAMES)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("package", ["models", "data"])
@pytest.mark.slow
def test_renaming_back_gives_the_same_bytes(package):
    paths = sorted((ROOT / package).rglob("*.py"))
    assert len(paths) > 50
    for path in paths:
        source = path.read_text("utf-8")
        renamed = rename_imports(source, NAMES)
        assert [name.removeprefix("cloze.") for name in list_imports(renamed)] == list_imports(
            source
        )
        assert not any(name.partition(".")[0] in NAMES for name in list_imports(renamed))
        back = rename_imports(renamed, {new: old for old, new in NAMES.items()})
        assert back == source, path
        ast.parse(renamed)
