"""A fine-tuning with LoRA from the command to the merged folder, and its adapter beside `peft`."""

from functools import partial

import jax
import numpy as np
import pytest

from models.layers.layer_layout import flatten_params
from pretrain import api
from pretrain.config import load
from pretrain.settings.overrides import ConfigError
from pretrain.training.startup import check_base
from pretrain.workdir.trained import Trained, open_trained
from pretrain.workdir.workdir import Workdir
from tests.pretrain.finetune.conftest import WORDS
from tests.pretrain.workdirs import write_json_lines

SETTINGS = [
    *("train.lora_rank=3", "train.lora_alpha=6", "train.lora_targets=attention,mlp"),
    *("data.batch_size=32", "optimizer.learning_rate=1e-2", "data.objective.length=10"),
    *("train.compute_dtype=float32", "train.steps=8", "data.feed=threads"),
    "train.lora_dropout=0.25",
]


def draw_rows(count, seed):
    """Return texts whose label is whether they mention a fox."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, 2 + int(rng.integers(3)))) for _ in range(count)]
    return [{"text": text, "label": str("fox" in text.split())} for text in texts]


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Return {train, heldout: files}."""
    folder = tmp_path_factory.mktemp("examples")
    parts = {"train": draw_rows(128, 1), "heldout": draw_rows(32, 2)}
    return {name: write_json_lines(folder / f"{name}.jsonl", rows) for name, rows in parts.items()}


@pytest.fixture(scope="module")
def tuned(untrained, examples, tmp_path_factory):
    """Return the workdir of a run with LoRA."""
    workdir = tmp_path_factory.mktemp("tuned") / "run"
    api.finetune(untrained, "classification", workdir, **examples, overrides=SETTINGS)
    return workdir


def test_a_run_opens_as_the_model_with_merged_kernels(tuned, untrained, examples):
    raw, merged, base = (
        open_trained(tuned, merge=False),
        open_trained(tuned),
        open_trained(untrained),
    )
    assert raw.run.train.lora_rank == 3 and merged.run.train.lora_rank is None
    assert raw.run.train.lora_dropout == 0.25 and not merged.run.train.lora_dropout
    before = {f"encoder/{path}": leaf for path, leaf in flatten_params(base.params).items()}
    saved, found = flatten_params(raw.params), flatten_params(merged.params)
    assert found.keys() == {path for path in saved if "lora" not in path}
    for path, kernel in found.items():
        product = 0.0
        if path.replace("kernel", "lora_b") in saved and path.endswith("kernel"):
            a, b = saved[path.replace("kernel", "lora_a")], saved[path.replace("kernel", "lora_b")]
            product = [x.reshape(-1, 3) @ y.reshape(3, -1) * 2 for x, y in zip(a, b)]
            product = np.stack(product).reshape(kernel.shape)
            assert np.abs(product).max() > 1e-3
        if path in before and "pooler" not in path:
            np.testing.assert_allclose(kernel, before[path] + product, atol=1e-6, err_msg=path)
    last = [row for row in merged.read_metrics() if "heldout_loss" in row][-1]
    scores = api.evaluate(tuned, dtype="float32")
    assert scores["loss"] == pytest.approx(last["heldout_loss"], abs=1e-5)
    [label] = api.predict(tuned, ["a fox runs"])
    assert label["label"] in ("True", "False")


@pytest.mark.more
def test_a_stopped_run_goes_on_with_the_same_bits(tuned, untrained, examples, tmp_path):
    for stop in (3, 0):
        overrides = [*SETTINGS, f"train.stop_at_step={stop}"]
        if stop:
            api.finetune(
                untrained, "classification", tmp_path / "w", **examples, overrides=overrides
            )
        else:
            api.train(tmp_path / "w" / "config.json", tmp_path / "w", ["train.stop_at_step=0"])
    again, once = (open_trained(folder, merge=False).params for folder in (tmp_path / "w", tuned))
    jax.tree.map(np.testing.assert_array_equal, again, once)


def test_a_random_model_is_not_frozen(untrained, examples, tmp_path):
    with pytest.raises(ValueError, match="train.lora_rank=3: all parameters of this BertConfig"):
        api.finetune(
            untrained, "classification", tmp_path / "w", **examples, overrides=SETTINGS, fresh="all"
        )
    run = load("bert_tiny", ["train.lora_rank=3"])
    with pytest.raises(ConfigError, match="has no model, whose parameters LoRA leaves"):
        check_base(run, Workdir.open(tmp_path / "new"))


def test_an_adapter_is_exported_and_begun_with(tuned, untrained, examples, tmp_path, monkeypatch):
    """The run that begins with it is the one that wrote it, head included."""
    sizes = api.export(tuned, tmp_path / "adapter", format="peft")
    assert sizes.keys() == {"adapter_config.json", "adapter_model.safetensors", "README.md"}
    options = {**examples, "adapter": str(tmp_path / "adapter")}
    rest = [setting for setting in SETTINGS if "lora" not in setting]
    rest += ["train.stop_at_step=1", "checkpoint.keep=9"]
    begin = partial(api.finetune, untrained, "classification", tmp_path / "w", **options)
    with pytest.raises(ValueError, match="train.lora_rank=5: the adapter .* has 3; leave it out"):
        begin(overrides=[*rest, "train.lora_rank=5"])
    monkeypatch.setattr(Trained, "read_origin", lambda trained: {"repository": "ann/base"})
    begin(overrides=rest)
    monkeypatch.undo()
    first, before = (open_trained(*place, merge=False) for place in ((tmp_path / "w", 0), (tuned,)))
    jax.tree.map(np.testing.assert_array_equal, first.params, before.params)
    assert (first.run.train.lora_alpha, first.run.train.lora_dropout) == (6, 0.25)
    origin = first.read_origin()
    assert (origin["fresh"], origin["base_repository"]) == ([], "ann/base")
    with pytest.raises(ConfigError, match="began with the adapter adapter, not with none"):
        api.finetune(untrained, "classification", tmp_path / "w", **examples, overrides=[
            *rest, "train.lora_rank=3", "train.lora_alpha=6", "train.lora_dropout=0.25",
            "train.lora_targets=key,out,query,value,down,up",
        ])  # fmt: skip
    with pytest.raises(ValueError, match="was trained without LoRA, so it has no adapter"):
        api.export(untrained, tmp_path / "none", format="peft")
    with pytest.raises(ValueError, match="is in no repository, and nobody can use .* --base-model"):
        api.push(tuned, "user/name", format="peft")
