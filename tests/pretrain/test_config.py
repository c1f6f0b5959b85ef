"""Configurations: overrides on the command line, errors that name the remedy, JSON that reads back
equal.
"""

import dataclasses
import itertools
import json
import pathlib
from typing import Literal

import numpy as np
import pytest

from pretrain.config import (
    CONFIGS,
    SECTION_CLASSES,
    Adafactor,
    AdamW,
    Mesh,
    Run,
    Train,
    from_json,
    load,
    override_run,
    to_json,
    validate_run,
)
from pretrain.settings.fields import list_differences
from pretrain.settings.overrides import ConfigError, format_type
from tests.started import compare_start, run_and_list_modules
from tests.test_layout import CONFIG_FIELDS

NAMES = sorted(path.stem for path in CONFIGS.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_reads_back_equal(name):
    run = load(name)
    assert from_json(to_json(run)) == run
    assert len(dataclasses.fields(run.model)) <= CONFIG_FIELDS
    docstring = (CONFIGS / f"{name}.py").read_text().split('"""')[1]
    commands = (f"train {name}", f"train configs/{name}.py", f"finetune --config {name}")
    assert any(command in docstring for command in commands), "the docstring says the command"


def test_arguments_override():
    run = load(
        "configs/bert_tiny.py",
        ["train.steps=1e3", "optimizer.learning_rate=1", "model.scan=false", "data.store=gs://b/1"],
    )
    assert run.train.steps == 1000 and type(run.train.steps) is int
    assert run.optimizer.learning_rate == 1.0 and type(run.optimizer.learning_rate) is float
    assert run.model.scan is False
    assert run.data.store == "gs://b/1"
    assert load("bert_tiny", ["data.rates=1,2.5"]).data.rates == (1.0, 2.5)
    assert load("bert_tiny", ["data.store=5"]).data.store == "5"
    assert override_run(
        run, ["optimizer=adafactor", "optimizer.decay=linear"]
    ).optimizer == Adafactor(decay="linear")


def test_a_saved_configuration_in_a_bucket_is_read(tmp_path, monkeypatch):
    """The bucket is a folder of this machine. What is a program is not executed from there."""
    run = load("bert_tiny", ["train.steps=7"])
    (tmp_path / "config.json").write_text(to_json(run))
    (tmp_path / "other.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr(
        "pretrain.config.as_path", lambda url: tmp_path / url.removeprefix("gs://bucket/")
    )
    asked = []
    monkeypatch.setattr("pretrain.config.check_bucket", asked.append)
    found = load("gs://bucket/config.json", ["model.depth=3"])
    assert found == dataclasses.replace(run, model=dataclasses.replace(run.model, depth=3))
    assert asked == ["gs://bucket/config.json"]
    for name, message in (
        ("gs://bucket/other.py", "only the config.json of a workdir is read; copy another"),
        ("gs://bucket/none.json", "'gs://bucket/none.json': there is no such file"),
        ("s3://bucket/config.json", "s3:// is not read; expected"),
    ):
        with pytest.raises(ValueError, match=message):
            load(name)


def test_a_section_that_may_be_absent_is_set_to_none_and_back():
    run = load("transformer_xl_tiny", ["model.clusters=none", "model.clamp_len=9"])
    assert run.model.clusters is None and from_json(to_json(run)) == run
    arguments = ["model.clusters=clusters", "model.clusters.cutoffs=5,9", "model.clamp_len=none"]
    assert override_run(run, arguments).model.clusters.cutoffs == (5, 9)
    with pytest.raises(ConfigError, match="model.clusters: 'no' is not one of Clusters, None"):
        load("transformer_xl_tiny", ["model.clusters=no"])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bert_tiny", ("train.stop_at_step=3000", "train.steps=5000")),  # the end is beyond 1,500
        ("electra_tiny", ("model=bertconfig", "data.objective=maskedlm")),
        ("bert_tiny", ("mesh.fsdp=-1", "mesh.data=2")),  # data is -1
        ("t5_small", ("optimizer=adamw", "optimizer.beta2=0.98")),  # Adafactor has no beta2
        ("t5_small", ("data.objective=prefixlm", "data.objective.length=64")),
        ("bert_tiny", ("checkpoint.best=loss", "evaluate.every=100")),
    ],
)
def test_arguments_that_are_valid_together_may_come_in_any_order(name, arguments):
    runs = [load(name, order) for order in itertools.permutations(arguments)]
    assert runs[0] == runs[1] != load(name)


def test_of_two_values_the_last_is_taken_and_both_are_checked():
    assert load("bert_tiny", ["train.steps=3", "train.steps=4"]).train.steps == 4
    assert type(load("bert_tiny", ["optimizer=lamb", "optimizer=adamw"]).optimizer) is AdamW
    with pytest.raises(ConfigError, match="train.steps: 'many' is not an int"):
        load("bert_tiny", ["train.steps=many", "train.steps=4"])


def test_arguments_are_applied_without_being_validated():
    run = override_run(load("bert_tiny"), ["checkpoint.best=loss", "evaluate.every=0"])
    assert run.checkpoint.best == "loss"
    with pytest.raises(ConfigError, match="checkpoint.best=loss needs the held-out part"):
        validate_run(run)


def test_a_value_that_makes_no_sense_names_its_argument():
    with pytest.raises(ConfigError, match=r"^model.depth=0: depth is 0; it must be at least 1"):
        load("bert_tiny", ["model.width=64", "model.depth=0"])


# ---- sections that are replaced ----------------------------------------------


def list_notices(arguments, name="bert_tiny"):
    notices = []
    override_run(load(name), arguments, report=notices.append)
    return notices


def test_a_replaced_section_reports_dropped_settings():
    assert list_notices(["optimizer=lamb"]) == [
        "optimizer=lamb drops optimizer.learning_rate=0.001 (now 0.00176), optimizer.warmup_steps=100 (now 3125)"
    ]
    assert list_notices(["optimizer=adafactor"], "t5_mini") == [
        "optimizer=adafactor drops optimizer.learning_rate=0.01 (now 1.0), optimizer.warmup_steps=300 (now 10000), "
        "optimizer.weight_decay=0.0 (has none), optimizer.scale_by_param_rms=true (has none)"
    ]
    [line] = list_notices(["model=robertaconfig"])
    assert line.startswith("model=robertaconfig drops model.length=128 (now 512), model.vocab=4096")
    assert "model.width=128 (now 768)" in line


def test_repeated_and_unchanged_settings_are_not_dropped():
    assert (
        list_notices(["optimizer.warmup_steps=7", "optimizer=lamb", "optimizer.learning_rate=1"])
        == []
    )
    assert list_notices(["optimizer=adamw"]) == [
        "optimizer=adamw drops optimizer.learning_rate=0.001 (now 0.0001), optimizer.warmup_steps=100 (now 10000)"
    ]
    assert (
        list_notices(["optimizer=adafactor"], "t5_small") == []
    )  # all values are the class's defaults
    assert list_notices(["train.steps=3"]) == []


def test_dropped_settings_are_printed_to_stderr(capsys):
    load("bert_tiny", ["optimizer=lamb"])
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith(
        "optimizer=lamb drops optimizer.learning_rate"
    )


# ---- errors ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("model.detph=3", "model.detph: BertConfig has no 'detph'; did you mean 'depth'?"),
        ("modle.depth=3", "modle.depth: Run has no 'modle'; did you mean 'model'?"),
        ("train.steps=many", "train.steps: 'many' is not an int"),
        ("train.steps=1.5", "train.steps: 1.5 is not an int"),
        ("train.steps=0", "Train.steps is 0; it must be at least 1"),
        ("train.steps=nan", "train.steps: 'nan' is not an int"),
        ("train.stop_at_step=1501", "Train.stop_at_step=1501 is above Train.steps=1500"),
        ("evaluate.every=-1", "Evaluate.every is -1; it must be at least 0"),
        ("checkpoint.every=0", "Checkpoint.every is 0; it must be at least 1"),
        ("checkpoint.keep=0", "Checkpoint.keep is 0; it must be at least 1"),
        ("checkpoint.keep_every=-1", "Checkpoint.keep_every is -1; it must be at least 0"),
        ("checkpoint.best=best", "checkpoint.best=best is no score: choose loss; evaluate.metrics may add accuracy, f1, "),
        ("checkpoint.best=accuracy", "checkpoint.best=accuracy is not measured: add accuracy to evaluate.metrics, or choose loss"),
        ("checkpoint.best=ema/loss", "checkpoint.best=ema/loss is not measured: set evaluate.ema=true, or choose loss"),
        ("checkpoint.best=ema/los", "checkpoint.best=ema/los is no score: choose loss; evaluate.metrics may add accuracy, "),
        ("optimizer.learning_rate=-1", "AdamW.learning_rate is -1.0; it must be at least 0"),
        ("optimizer.beta2=1", "AdamW.beta2 is 1.0; it must be below 1"),
        ("optimizer.beta1=0.99999999", "AdamW.beta1 is 0.99999999; it must be below 1 in float32"),
        ("optimizer.epsilon=0", "AdamW.epsilon is 0.0; it must be at least 1e-30"),
        ("model.scan=1", "model.scan: 1 is not true or false"),
        ("train.compute_dtype=float16", "train.compute_dtype: 'float16' is not one of 'bfloat16', 'float32'"),
        ("train.steps", "'train.steps' is not of the form path=value"),
        ("=3", "'=3' is not of the form path=value"),
        ("train.steps.more=3", "train.steps is a value and has no 'more'"),
        ("model=bertconfg", "model: 'bertconfg' is not one of AlbertConfig, BartConfig, BertConfig, "),
        ("mesh.fsdp=0", "each is at least 1"),
        ("mesh.fsdp=-2", "one of them may be -1"),
        ("mesh.fsdp=-1", "mesh data=-1 x fsdp=-1 x model=1 x sequence=1: only one of them may be -1"),
        ("data.rates=a,b", "data.rates: ('a', 'b') is not a tuple of numbers"),
        ("data.objective=CausalLm",
         "data.objective: a BertConfig is trained by MaskedLm or SentencePair or MaskedDiffusion or WordsAndPictures, not by CausalLm"),
    ],
)  # fmt: skip
def test_a_wrong_override_is_an_error_that_names_it(word, message):
    with pytest.raises(ConfigError) as caught:
        load("bert_tiny", [word])
    assert message in str(caught.value)


def test_a_beta_that_float32_distinguishes_from_1_is_accepted():
    assert np.float32(0.99999995) < 1 == np.float32(0.99999999)
    assert load("bert_tiny", ["optimizer.beta1=0.99999995"]).optimizer.beta1 == 0.99999995


def test_the_best_needs_scores():
    assert (
        load("bert_tiny", ["checkpoint.best=loss", "evaluate.every=1000"]).checkpoint.best == "loss"
    )
    with pytest.raises(
        ConfigError, match="checkpoint.best=loss needs the held-out part: set evaluate.every"
    ):
        load("bert_tiny", ["checkpoint.best=loss", "evaluate.every=0"])


def test_a_run_ends_with_its_schedule_or_before():
    assert (
        load("bert_tiny").train.last_step == 1500
        and load("bert_tiny", ["train.stop_at_step=900"]).train.last_step == 900
    )


def test_an_unknown_configuration_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'bert_tiny'"):
        load("bert_tinny")


def test_a_file_without_a_run_is_refused(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("x = 1\n")
    with pytest.raises(ConfigError, match=r"defines config\(\) -> Run"):
        load(path)
    path.write_text("def config():\n    return 3\n")
    with pytest.raises(ConfigError, match="returned int, not a Run"):
        load(path)
    path.write_text(
        "from models.config.bert import BertConfig\nfrom pretrain.config import *\ndef config():\n    return Run(BertConfig(), Data(store=6))\n"
    )
    with pytest.raises(ConfigError, match="data.store: 6 is not text"):
        load(path)
    path.write_text(
        "from models.config.bert import BertConfig\nfrom pretrain.config import *\ndef config():\n    return Run(BertConfig(dpeth=6), Data())\n"
    )
    with pytest.raises(ConfigError, match="mine.py: .*dpeth"):
        load(path)


def test_a_file_that_imports_from_the_wheel_is_refused_with_what_to_write(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from cloze.models.config.bert import BertConfig\n")
    with pytest.raises(
        ConfigError, match=r"mine.py: No module named 'cloze': .*leave `cloze.` out"
    ):
        load(path)
    path.write_text("import cloze_of_others\n")
    with pytest.raises(ModuleNotFoundError, match="cloze_of_others"):
        load(path)


def test_json_loads_only_what_the_table_names():
    tree = json.loads(to_json(load("bert_tiny")))
    for change, message in (
        ({"type": "os:system"}, "unknown type 'os:system'"),
        ({"type": "Train"}, "Train has no"),
        ({"more": 1}, "Run has no more: written by another version"),
        ({"train": {"type": "Train", "steps": "3"}}, "steps: '3' is not an int"),
        ({"model": {"type": "AdamW"}}, "AdamW is not one of AlbertConfig or BartConfig or "),
    ):
        with pytest.raises(ConfigError) as caught:
            from_json(json.dumps(tree | change), where="here")
        assert message in str(caught.value)
    del tree["model"]
    with pytest.raises(ConfigError, match="missing 1 required"):
        from_json(json.dumps(tree))
    with pytest.raises(ConfigError, match="here: not JSON"):
        from_json("{", where="here")


def test_a_saved_configuration_is_a_configuration(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(to_json(load("bert_tiny")))
    with pytest.raises(ConfigError, match=r"Train.steps is 2147483648; it must be below 2\^31"):
        load(path, ["train.steps=2147483648"])
    assert load(path, ["train.seed=7"]) == override_run(load("bert_tiny"), ["train.seed=7"])


def test_difference_names_every_changed_leaf():
    old = load("bert_tiny")
    new = override_run(old, ["train.steps=5", "model.depth=3", "optimizer=adafactor"])
    assert [row[0] for row in list_differences(old, new)] == [
        "model.depth",
        "optimizer",
        "train.steps",
    ]
    assert list_differences(old, old) == []


def test_every_class_of_a_run_can_be_loaded():
    assert {Run, Train, Mesh, AdamW, Adafactor} <= set(SECTION_CLASSES.values())


def test_every_model_lists_its_objectives():
    from models.config import find_configs
    from pretrain.families.kinds import list_trained

    trained = list_trained()
    assert {*find_configs()} == trained.keys()


def test_a_misspelt_override_ends_the_command_before_jax_is_imported(root, tmp_path):
    words = ["train", "bert_tiny", "--workdir", "never", "model.detph=3"]
    done, modules = run_and_list_modules(words, root, tmp_path)
    assert done.returncode == 2 and "did you mean 'depth'" in done.stderr
    assert "Traceback" not in done.stderr and len(modules) < 700
    assert compare_start(words, root) < 3
    assert not pathlib.Path(root / "never").exists()


def test_a_head_and_its_objective_have_the_same_labels(runs):
    run = runs["classifier"]
    with pytest.raises(
        ConfigError,
        match=r"model.labels=\('a', 'b'\): Classification has labels, Regression has none",
    ):
        validate_run(override_run(run, ["data.objective=regression"]))
    with pytest.raises(
        ConfigError, match="class_weights=.*one for each of model.labels, which are a, b"
    ):
        validate_run(override_run(run, ["data.objective.class_weights=1,2,3"]))
    weighted = override_run(
        run,
        ["data.objective.class_weights=1,2", "evaluate.metrics=accuracy,f1", "checkpoint.best=f1"],
    )
    assert (
        weighted.data.objective.class_weights == (1.0, 2.0)
        and from_json(to_json(weighted)) == weighted
    )
    assert override_run(run, ["model.encoder.depth=3"]).model.encoder.depth == 3


@pytest.mark.parametrize(
    "override",
    ["model.vocab=1000000000000000", "model.width=4294967296", "data.batch_size=99999999999"],
)
def test_a_size_beyond_every_array_is_refused(override):
    key = override.partition("=")[0]
    with pytest.raises(ConfigError, match=f"{key}=.*: at most 2,147,483,647"):
        load("bert_tiny", [override])


def test_types_of_tuples_are_spelled_in_the_plural():
    assert format_type(tuple[int, ...]) == "a tuple of ints"
    assert format_type(tuple[tuple[int, ...], ...]) == "a tuple of tuples of ints"
    assert format_type(tuple[str, ...] | None) == "a tuple of texts or none"
    assert format_type(tuple[Literal["a", "b"], ...]) == "a tuple of one of 'a', 'b'"
