"""The recipes that are compared with bert_mini_modern: equal sizes, rows and steps."""

import dataclasses

import pytest

from benchmarks.papers.modern_recipe import RECIPES, format_rows, list_words
from pretrain.config import load
from pretrain.phases import resolve_phases

pytestmark = pytest.mark.fast


def test_all_recipes_read_the_same_rows_in_as_many_steps(tmp_path):
    runs = {}
    for name, recipe in RECIPES.items():
        config, *words = list_words(tmp_path, 20, name, 30)
        runs[name] = load(config, words)
        assert type(runs[name].optimizer).__name__.lower() == recipe.optimizer
    phases = {name: resolve_phases(run) for name, run in runs.items()}
    rows = {
        name: [
            (phase.steps, phase.run.data.batch_size, phase.run.data.objective.length)
            for phase in found
        ]
        for name, found in phases.items()
    }
    assert rows.pop("modern_muon") == [(20, 64, 16), (10, 16, 64)]
    assert all(found == [(20, 64, 16), (10, 16, 64)] for found in rows.values())
    decays = {(*(phase.run.optimizer.decay for phase in found),) for found in phases.values()}
    assert decays == {("constant", "linear")}
    objectives = [phase.run.data.objective for found in phases.values() for phase in found[1:]]
    assert all(dataclasses.asdict(one) == dataclasses.asdict(objectives[0]) for one in objectives)


def test_the_table_has_means_and_the_time_of_a_step():
    losses = {"bert_adamw": [5.0, 5.2], "modern_muon": [4.0, 4.5]}
    lines = format_rows(losses, {"bert_adamw": 4.0, "modern_muon": 2.0})
    assert lines[2:] == [
        "| BERT, AdamW | 5.000, 5.200 | 5.100 | 1.00 |",
        "| ModernBERT, Muon | 4.000, 4.500 | 4.250 | 2.00 |",
    ]
