"""The functions of pretrain.api show their options, whose other names are on the page."""

import inspect
import pathlib
import re

import pytest

from pretrain import api
from pretrain.api.evaluate_options import EvaluateOptions, QuestionOptions
from pretrain.api.exporting import ExportArguments, PushArguments
from pretrain.api.importing import ImportOptions
from pretrain.api.predicting import PredictOptions, PredictorOptions
from pretrain.api.preparing import PrepareOptions
from pretrain.api.training import TrainOptions
from pretrain.finetune.finetune_options import FinetuneOptions
from pretrain.settings.verb_options import KEY, list_options

ROOT = pathlib.Path(__file__).parents[3]
OPTIONS = {
    "prepare": PrepareOptions,
    "train": TrainOptions,
    "finetune": FinetuneOptions,
    "finetune_seeds": FinetuneOptions,
    "evaluate": EvaluateOptions,
    "evaluate_questions": QuestionOptions,
    "predict": PredictOptions,
    "Predictor": PredictorOptions,
    "export": ExportArguments,
    "push": PushArguments,
    "import_folder": ImportOptions,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_help_lists_each_option(name):
    function = getattr(api, name)
    assert inspect.signature(function).parameters.keys() == (
        inspect.signature(OPTIONS[name]).parameters.keys()
    )
    documented = function.__init__ if isinstance(function, type) else function
    for field in list_options(OPTIONS[name]):
        assert re.search(rf"^ *{field.name}: \w", documented.__doc__, re.MULTILINE), field.name


def test_the_page_has_the_names_that_differ():
    page = (ROOT / "docs" / "python.md").read_text()
    _, _, rest = page.partition("| flag | argument |\n")
    table, _, _ = rest.partition("\n\n")
    for name, options in OPTIONS.items():
        for field in list_options(options):
            flag = next(iter(field.metadata[KEY].flags), "")
            if flag.startswith("--") and flag[2:].replace("-", "_") != field.name:
                assert f"{flag}`" in table, f"{flag} of {name}"
                assert f"`{field.name}`" in table, f"{field.name} of {name}"
