"""LoRA's factors as a folder of `peft`: by NumPy for every family, and beside `peft` itself."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from models import build
from models.config.bert import BertConfig
from models.config.classifier import ClassifierConfig
from models.config.gpt2 import Gpt2Config
from models.config.modernbert import ModernBertConfig
from models.config.roberta import RobertaConfig
from models.config.span_reader import SpanReaderConfig
from models.config.t5 import T5Config
from models.config.tagger import TaggerConfig
from models.config.xlnet import XLNetConfig
from models.layers.layer_layout import flatten_params
from models.layers.lora import merge_factors
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.config import override_run
from pretrain.convert.adapter_folder import (
    CONFIG,
    WEIGHTS,
    export_adapter,
    fill_adapter,
    find_adapter_targets,
    open_adapter,
    write_adapter,
)
from pretrain.convert.read_write import find_converter
from pretrain.convert.safe_folder import FolderError
from pretrain.families import FAMILIES
from pretrain.training.optimizers.factors import add_factors
from tests.pretrain.conftest import RUNS, make_tiny

RANK, ALPHA = 3, 6.0
ALL = ("attention", "mlp")
MODELS = {
    family.name: dataclasses.replace(run.model, teacher_depth=None)
    if family.name == "distilbert"
    else run.model
    for run in RUNS.values()
    if (family := FAMILIES.get(run.model.__class__.__name__.removesuffix("Config").lower()))
    and family.is_imported
}


def draw(shapes, seed):
    """Return random leaves around 0, the scales of norms around 1."""
    rng = np.random.default_rng(seed)
    return jax.tree_util.tree_map_with_path(
        lambda keys, leaf: rng.normal(keys[-1].key == "scale", 0.3, leaf.shape).astype(np.float32),
        shapes,
    )


def adapt(model, targets=ALL, seed=0, rank=RANK):
    """Return (run with LoRA, random parameters, the same with random factors and another head)."""
    run = override_run(
        make_starting_run(model),
        [f"train.lora_rank={rank}", f"train.lora_alpha={ALPHA}", f"train.lora_targets={','.join(targets)}"],
    )  # fmt: skip
    base = draw(jax.eval_shape(make_initializer(run)), seed)
    adapted = draw(jax.eval_shape(lambda: add_factors(run, base)), seed + 1)
    head = {
        name: part
        for name, part in adapted.items()
        if name != "encoder" and model is not model.backbone
    }
    return run, base, put_base(adapted, base) | head


def put_base(adapted, base):
    """Return the adapted parameters with the leaves of `base` for all but factors."""
    if not isinstance(adapted, dict):
        return base
    return {
        name: part if "lora" in name else put_base(part, base[name])
        for name, part in adapted.items()
    }


def merge(params):
    return merge_factors(params, ALPHA / RANK)


@pytest.mark.held_by("bert", "modernbert", "gpt2", "t5", "neobert")
@pytest.mark.parametrize("name", sorted(set(MODELS) - {"xlnet"}))
def test_every_matrix_of_transformers_is_its_own_and_b_a(name):
    """The merged folder is the base's plus scale * B A, as `peft` merges; and what is read again is
    what was written.
    """
    model = MODELS[name]
    run, base, adapted = adapt(model)
    tensors, settings = export_adapter(model, adapted, ALPHA)
    before, after = (
        find_converter(model).to_hf(model, params)
        for params in (base, jax.device_get(merge(adapted)))
    )
    modules = settings["target_modules"]
    assert len(tensors) == 2 * len(modules) and settings["r"] == RANK
    for module in modules:
        a, b = (tensors[f"base_model.model.{module}.lora_{part}.weight"] for part in "AB")
        delta = (b @ a) * (ALPHA / RANK)
        delta = delta.T if settings["fan_in_fan_out"] else delta
        np.testing.assert_allclose(
            after[f"{module}.weight"], before[f"{module}.weight"] + delta, atol=2e-6
        )
        assert np.abs(delta).max() > 0.01
    for tensor in before.keys() - {f"{module}.weight" for module in modules}:
        np.testing.assert_array_equal(after[tensor], before[tensor], err_msg=tensor)
    adapter = SimpleNamespace(
        folder=None, rank=RANK, modules=modules,
        tensors={name.removeprefix("base_model.model."): array for name, array in tensors.items()},
    )  # fmt: skip
    fresh = draw(jax.eval_shape(lambda: add_factors(run, base)), 9)
    again, has_head = fill_adapter(adapter, model, put_base(fresh, base))
    assert not has_head and {*find_adapter_targets(adapter, model)} <= {
        *"query key value out gate up down".split()
    }
    jax.tree.map(np.testing.assert_array_equal, again, adapted)


def test_a_part_of_a_fused_matrix_gets_zeros():
    """Query and value of GPT-2's `c_attn`: the key's rows of B are 0, and the whole is read again."""
    model = make_tiny(Gpt2Config)
    run, base, adapted = adapt(model, ("query", "value"))
    tensors, settings = export_adapter(model, adapted, ALPHA)
    assert settings["target_modules"] == [f"transformer.h.{i}.attn.c_attn" for i in range(2)]
    b = tensors["base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"]
    assert b.shape == (96, RANK) and not b[32:64].any() and b[:32].all() and b[64:].all()


def test_tensors_that_are_no_linear_layers_are_refused():
    model = make_tiny(XLNetConfig)
    with pytest.raises(
        ValueError, match="transformers computes transformer.layer.0.rel_attn.* by no linear layer"
    ):
        export_adapter(model, adapt(model)[2], ALPHA)


# ---- bad folders -----------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return (classifier, parameters with factors, folder of its adapter)."""
    model = ClassifierConfig(encoder=make_tiny(BertConfig), labels=("a", "b", "c"))
    adapted = adapt(model, ("query", "value"))[2]
    folder = tmp_path_factory.mktemp("adapter") / "folder"
    sizes = write_adapter(folder, model, adapted, ALPHA, dropout=0.25)
    assert sizes.keys() == {CONFIG, WEIGHTS}
    return model, adapted, folder


def test_a_folder_has_the_head_and_is_read(written):
    model, adapted, folder = written
    settings, tensors = json.loads((folder / CONFIG).read_text()), load_file(folder / WEIGHTS)
    assert settings["modules_to_save"] == ["bert.pooler.dense", "classifier"]
    assert settings["task_type"] == "SEQ_CLS" and not settings["fan_in_fan_out"]
    assert {name for name in tensors if "lora" not in name} == {
        f"base_model.model.{module}.{part}"
        for module in ("bert.pooler.dense", "classifier")
        for part in ("weight", "bias")
    }
    adapter = open_adapter(folder)
    assert (adapter.rank, adapter.alpha, adapter.dropout) == (RANK, ALPHA, 0.25)
    assert find_adapter_targets(adapter, model) == ("query", "value")
    fresh = draw(adapted, 5)
    again, has_head = fill_adapter(adapter, model, fresh)
    assert has_head
    for path, leaf in flatten_params(again).items():
        is_read = "lora" in path or "pooler" in path or "classifier" in path
        np.testing.assert_array_equal(leaf, flatten_params(adapted if is_read else fresh)[path])


CHANGES = {
    "peft_type": ("LOHA", "peft_type is 'LOHA'; Cloze reads 'LORA' alone"),
    "use_dora": (True, "use_dora is True; Cloze reads False alone"),
    "rank_pattern": ({"query": 4}, "rank_pattern is {'query': 4}; Cloze reads {} alone"),
    "r": (0, "r is 0; expected a whole number from 1"),
    "lora_alpha": ("8", "lora_alpha is '8'; expected a number"),
    "lora_dropout": (1, "lora_dropout is 1; expected a number from 0, below 1"),
}


@pytest.mark.parametrize("key", CHANGES)
def test_settings_that_are_not_computed_are_refused(written, tmp_path, key):
    *_, folder = written
    shutil.copytree(folder, tmp_path / "a")
    value, message = CHANGES[key]
    settings = json.loads((folder / CONFIG).read_text()) | {key: value}
    (tmp_path / "a" / CONFIG).write_text(json.dumps(settings))
    with pytest.raises(FolderError) as error:
        open_adapter(tmp_path / "a")
    assert message in str(error.value)


def test_adapters_of_another_model_are_refused_by_the_tensor(written, tmp_path):
    model, adapted, folder = written
    adapter, name = open_adapter(folder), "bert.encoder.layer.1.attention.self.value"
    deeper = dataclasses.replace(model, encoder=dataclasses.replace(model.encoder, depth=1))
    with pytest.raises(FolderError, match=f"is for another model: .* no .*{name}"):
        find_adapter_targets(adapter, deeper)
    wide = dataclasses.replace(model, encoder=dataclasses.replace(model.encoder, width=64))
    with pytest.raises(
        FolderError,
        match=r"query.lora_A.weight is float32 \[3, 32\]; this model makes it \[3, 64\]",
    ):
        fill_adapter(adapter, wide, adapt(wide, ("query", "value"))[2])
    other = dataclasses.replace(model, labels=("a", "b"))
    with pytest.raises(
        FolderError, match=r"classifier.\w+ is float32 \[3.*\]; this model makes it \[2"
    ):
        fill_adapter(adapter, other, adapt(other, ("query", "value"))[2])
    with pytest.raises(FolderError, match="no place for .*self.query.lora_A.weight"):
        fill_adapter(adapter, model, adapt(model, ("value",))[2])
    with pytest.raises(
        FolderError, match=r"lacks base_model.model.bert.encoder.layer.0.attention.self.key.lora_A"
    ):
        fill_adapter(adapter, model, adapt(model)[2])
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    tensors = load_file(damaged / WEIGHTS)
    (damaged / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-9])
    with pytest.raises(FolderError, match="not a whole .safetensors file"):
        open_adapter(damaged)
    save_file(tensors | {"odd": np.zeros(1, np.float32)}, damaged / WEIGHTS)
    with pytest.raises(FolderError, match="odd does not begin with base_model.model."):
        open_adapter(damaged)
    (damaged / WEIGHTS).rename(damaged / "adapter_model.bin")
    with pytest.raises(FolderError, match="no adapter_model.safetensors"):
        open_adapter(damaged)


# ---- beside peft -----------------------------------------------------------------

VOCABULARY = SimpleNamespace(pad=0, unk=1, cls=2, sep=3, mask=4, eos=1, bos=2, size=128)
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
PEERS = {
    "bert": ClassifierConfig(encoder=make_tiny(BertConfig), labels=("a", "b", "c")),
    "modernbert": ClassifierConfig(
        encoder=make_tiny(ModernBertConfig, depth=5, window=8), labels=("a", "b", "c")
    ),
    "gpt2": ClassifierConfig(encoder=make_tiny(Gpt2Config), labels=("a", "b", "c")),
    "t5": make_tiny(T5Config),
    "roberta": ClassifierConfig(encoder=make_tiny(RobertaConfig), labels=("a", "b", "c")),
    "bert tagger": TaggerConfig(encoder=make_tiny(BertConfig), labels=("O", "B-A", "I-A")),
    "bert spans": SpanReaderConfig(encoder=make_tiny(BertConfig)),
}  # fmt: skip
TARGETS = {  # in a LoraConfig of `peft`
    "bert": ["query", "value", "intermediate.dense"],
    "modernbert": ["Wqkv", "Wo", "Wi"],
    "gpt2": ["c_attn", "c_fc"],
    "t5": ["q", "v", "wi"],
    "roberta": ["query", "key"],
}


def make_peer(name, params):
    """Return the model of `transformers` with these parameters."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    model = PEERS[name]
    converter = find_converter(model)
    vocabulary = SimpleNamespace(**vars(VOCABULARY) | {"pad": int(name == "roberta")})
    settings = converter.to_hf_config(model, vocabulary)
    kind = getattr(transformers, settings["architectures"][0])
    peer = kind(transformers.AutoConfig.for_model(**settings))
    tensors = {key: torch.tensor(array) for key, array in converter.to_hf(model, params).items()}
    lost = peer.load_state_dict(tensors, strict=False)
    assert not lost.unexpected_keys
    assert all("embed_tokens" in key or "lm_head" in key for key in lost.missing_keys), lost
    return peer.eval()


def make_inputs(name):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 128, (3, 16))
    mask = np.arange(16) < np.array([[16], [9], [4]])
    return np.where(mask, ids, int(name == "roberta")), mask, rng.integers(5, 128, (3, 6))


def score(name, params):
    """Return our logits, without padding."""
    ids, mask, labels = make_inputs(name)
    given = (ids, mask, labels) if name == "t5" else (ids, mask)
    logits = build(PEERS[name]).apply({"params": params}, *given)
    return clean(name, np.asarray(logits), mask)


def score_peer(name, peer):
    """Return the logits of `transformers`, without padding."""
    import torch

    ids, mask, labels = make_inputs(name)
    given = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask.astype(int))}
    if name == "t5":
        given["labels"] = torch.tensor(labels)
    with torch.no_grad():
        output = peer(**given)
    if "spans" in name:
        return clean(name, torch.stack([output.start_logits, output.end_logits], -1).numpy(), mask)
    return clean(name, output.logits.numpy(), mask)


def clean(name, logits, mask):
    return logits[mask] if "tagger" in name or "spans" in name else logits


@pytest.mark.more
@pytest.mark.parametrize("name", PEERS)
def test_peft_computes_the_same_logits(name, tmp_path):
    """Kept beside the base and merged, by `peft` and by the merged folder."""
    peft = pytest.importorskip("peft", reason="the extra `peers` is not installed")
    model = PEERS[name]
    _, base, adapted = adapt(model)
    ours = score(name, merge(adapted))
    write_adapter(tmp_path / "adapter", model, adapted, ALPHA, dropout=0.25)
    beside = peft.PeftModel.from_pretrained(make_peer(name, base), tmp_path / "adapter")
    assert beside.peft_config["default"].lora_dropout == 0.25
    np.testing.assert_allclose(score_peer(name, beside), ours, atol=1e-4)
    assert np.abs(ours - score(name, base)).max() > 0.01
    np.testing.assert_allclose(score_peer(name, beside.merge_and_unload()), ours, atol=1e-4)
    whole = make_peer(name, jax.device_get(merge(adapted)))
    np.testing.assert_allclose(score_peer(name, whole), ours, atol=1e-4)


@pytest.mark.more
@pytest.mark.parametrize("uses_rslora", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_an_adapter_of_peft_is_read(name, uses_rslora, tmp_path):
    """With its own default of what is saved: the head, and not the pooler."""
    peft = pytest.importorskip("peft", reason="the extra `peers` is not installed")
    model = PEERS[name]
    base = adapt(model)[1]
    settings = peft.LoraConfig(
        task_type=None if name == "t5" else "SEQ_CLS",
        r=4, lora_alpha=10, lora_dropout=0.125, target_modules=TARGETS[name], init_lora_weights=False,
        use_rslora=uses_rslora, fan_in_fan_out=name == "gpt2",
    )  # fmt: skip
    theirs = peft.get_peft_model(make_peer(name, base), settings)
    theirs.save_pretrained(tmp_path)
    adapter = open_adapter(tmp_path)
    assert adapter.dropout == 0.125
    targets = find_adapter_targets(adapter, model)
    run, *_ = adapt(model, targets, rank=4)
    fresh = draw(jax.eval_shape(lambda: add_factors(run, base)), 9)
    filled, has_head = fill_adapter(adapter, model, put_base(fresh, base))
    assert has_head == (name != "t5")
    ours = score(name, merge_factors(filled, adapter.alpha / adapter.rank))
    np.testing.assert_allclose(score_peer(name, theirs.eval()), ours, atol=1e-4)
