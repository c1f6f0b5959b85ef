"""The models equal `transformers` on random shapes, in both directions. Needs the extra `peers`."""

import dataclasses
import json
from functools import partial

import jax
import numpy as np
import pytest

from models import build
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.gpt3 import Gpt3Config
from models.layers.masks import Mask
from pretrain.convert import find_model_type
from pretrain.convert.pretrained import CONVERTERS, Converter
from pretrain.families import find_family
from pretrain.training.losses import find_loss
from tests.models.test_goldens import OBJECTIVES

pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
pytest.importorskip("transformers", reason="the extra `peers` is not installed: no transformers")

pytestmark = pytest.mark.more


def draw_settings(kind, seed):
    """Return a random small shape of a family, in transformers' names."""
    rng = np.random.default_rng(seed)
    heads, width = int(rng.integers(1, 5)), int(rng.integers(1, 5)) * 4
    if kind in ("bert", "roberta", "albert", "electra"):
        own = {"embedding_size": int(rng.integers(4, 12))} if kind in ("albert", "electra") else {}
        if kind == "electra":
            own["generator"] = dict(
                hidden_size=own["embedding_size"],
                num_attention_heads=1,
                intermediate_size=int(rng.integers(8, 40)),
            )
        return own | dict(
            vocab_size=int(rng.integers(30, 90)),
            hidden_size=heads * width,
            num_hidden_layers=int(rng.integers(1, 4)),
            num_attention_heads=heads,
            intermediate_size=int(rng.integers(8, 40)),
            max_position_embeddings=int(rng.integers(13, 40)) + 2 * (kind == "roberta"),
            type_vocab_size=int(rng.integers(2, 4)),
            layer_norm_eps=float(rng.choice([1e-12, 1e-5])),
        )
    if kind in ("openai-gpt", "gpt2"):
        inner = dict(n_inner=int(rng.integers(8, 40))) if kind == "gpt2" and seed else {}
        return inner | dict(
            vocab_size=int(rng.integers(30, 90)),
            n_embd=heads * width,
            n_layer=int(rng.integers(1, 4)),
            n_head=heads,
            n_positions=int(rng.integers(25, 50)),
            layer_norm_epsilon=float(rng.choice([1e-6, 1e-5])),
        )
    if kind == "distilbert":
        return dict(
            vocab_size=int(rng.integers(30, 90)),
            dim=heads * width,
            n_layers=int(rng.integers(1, 4)),
            n_heads=heads,
            hidden_dim=int(rng.integers(8, 40)),
            max_position_embeddings=int(rng.integers(13, 40)),
        )
    if kind in ("marian", "bart"):
        inner = int(rng.integers(8, 40))
        return dict(
            vocab_size=int(rng.integers(30, 90)),
            d_model=heads * width,
            encoder_layers=int(rng.integers(1, 4)),
            decoder_layers=int(rng.integers(1, 4)),
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=inner,
            decoder_ffn_dim=inner,
            max_position_embeddings=int(rng.integers(25, 50)),
            activation_function="relu" if kind == "marian" else "gelu",
            scale_embedding=kind == "marian",
            pad_token_id=0,
            forced_eos_token_id=None,
            decoder_start_token_id=0 if kind == "marian" else 2,
        )
    return dict(
        vocab_size=int(rng.integers(30, 90)),
        d_model=int(rng.integers(8, 30)),
        d_kv=width,
        d_ff=int(rng.integers(8, 40)),
        num_layers=int(rng.integers(1, 4)),
        num_decoder_layers=int(rng.integers(1, 4)),
        num_heads=heads,
        relative_attention_num_buckets=int(rng.choice([8, 16, 32])),
        relative_attention_max_distance=int(rng.choice([20, 64, 128])),
        feed_forward_proj=str(rng.choice(["relu", "gated-gelu"])),
        tie_word_embeddings=bool(rng.integers(2)),
        decoder_start_token_id=0,
    )


READ = {"token_ids", "attention_mask", "token_type_ids"}


def compute_outputs(model, params, loss, batch):
    """Return our (token logits, loss)."""

    def run_model(batch):
        inputs = loss.select_inputs(batch)
        sums, totals = loss.sum_batch(model, params, batch), loss.sum_weights(batch)
        if "masked_positions" in batch:
            everywhere = {key: inputs[key] for key in inputs.keys() & READ}
            outputs, _ = model.apply({"params": params}, **everywhere)
        else:
            outputs = model.apply({"params": params}, **inputs)
        return outputs, loss.compute_loss(
            {name: sums[name] / totals[name] for name in loss.loss_terms}
        )

    return jax.jit(run_model)(batch)


def compare_logits(words, expected, batch):
    """Return the logits, except those at padding."""
    there = batch["attention_mask"][..., None] if "attention_mask" in batch else True
    np.testing.assert_allclose(np.where(there, words, 0), np.where(there, expected, 0), atol=1e-4)


def make_params(model, loss, batch):
    """Return parameters of the right shapes in which a leaf that is not filled in stays NaN and is
    noticed.
    """
    shapes = jax.eval_shape(partial(model.init, jax.random.key(0), **loss.select_inputs(batch)))[
        "params"
    ]
    return jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype), shapes)


KINDS = ("bert", "roberta", "albert", "t5", "marian", "gpt2")
SEEDS = [
    *((kind, 0) for kind in KINDS), ("bert", 1), ("t5", 1), ("t5", 2), ("gpt2", 1),
    ("openai-gpt", 0), ("bart", 0), ("distilbert", 0), ("electra", 0),
]  # fmt: skip
MORE_SEEDS = [
    (kind, 1) for kind in ("roberta", "albert", "marian")
]  # CLOZE_BOARD=whole tries these too: another shape, unrolled


@pytest.mark.parametrize(("kind", "seed"), SEEDS + MORE_SEEDS)
def test_theirs_to_ours(request, goldens, kind, seed):
    if (kind, seed) in MORE_SEEDS:
        request.getfixturevalue("whole")
    config, weights, batch, expected = goldens.make_case(kind, draw_settings(kind, seed), seed)
    ours = dataclasses.replace(CONVERTERS[kind].from_hf_config(config), scan=seed % 2 == 0)
    model, loss = build(ours), find_loss(OBJECTIVES[kind])
    params, report = CONVERTERS[kind].from_hf(ours, weights, make_params(model, loss, batch))
    assert report.missing == report.unused == ()
    words, value = compute_outputs(model, params, loss, batch)
    compare_logits(words, expected["words"], batch)
    assert abs(value - expected["loss"]) < 1e-5 * max(1.0, expected["loss"])


GPT = dict(vocab=50, length=32, width=24, num_heads=3, depth=4, mlp=96)
OURS = {
    "openai-gpt": GptConfig(**GPT),
    "gpt2": Gpt2Config(**GPT | {"mlp": 40}),
    "gpt3": Gpt3Config(**GPT, window=32),
}
SCANNED = (
    "bert", "roberta", "albert", "t5", "t5_v1_1", "openai-gpt", "gpt3", "transformer", "bart",
    "distilbert",
)  # fmt: skip
OF_OURS = [*((kind, True) for kind in SCANNED), ("bert", False), ("t5", False), ("gpt2", False)]
MORE_OF_OURS = [
    (kind, False) for kind in ("roberta", "albert", "t5_v1_1")
]  # as MORE_SEEDS; in the suite test_goldens.py tests them unrolled, both ways


@pytest.mark.parametrize(("kind", "scan"), OF_OURS + MORE_OF_OURS)
def test_ours_to_theirs(request, goldens, tmp_path, make, tiny_configs, kind, scan):
    """A folder of ours loads without missing or unexpected keys or other shapes, and computes the
    same.
    """
    if (kind, scan) in MORE_OF_OURS:
        request.getfixturevalue("whole")
    import transformers
    from safetensors.numpy import save_file

    configs = (
        tiny_configs
        | OURS
        | {"t5_v1_1": dataclasses.replace(tiny_configs["t5"], gated=True, tied=False)}
    )
    config = dataclasses.replace(configs[kind], scan=scan)
    family, converter = find_model_type(config), Converter(find_family(config))
    model, params = make(config)
    vocabulary = type(
        "Vocabulary",
        (),
        dict(
            pad=1 if kind == "roberta" else 0, bos=0, eos=2 if kind == "bart" else 1, cls=0, sep=2
        ),
    )
    (tmp_path / "config.json").write_text(json.dumps(converter.to_hf_config(config, vocabulary)))
    save_file(
        converter.to_hf(config, params),
        tmp_path / "model.safetensors",
        metadata={"format": "pt"},
    )

    kinds = {
        "bert": transformers.BertForPreTraining,
        "roberta": transformers.RobertaForMaskedLM,
        "albert": transformers.AlbertForPreTraining,
        "t5": transformers.T5ForConditionalGeneration,
        "openai-gpt": transformers.OpenAIGPTLMHeadModel,
        "gpt2": transformers.GPT2LMHeadModel,
        "marian": transformers.MarianMTModel,
        "bart": transformers.BartForConditionalGeneration,
        "distilbert": transformers.DistilBertForMaskedLM,
    }
    theirs, info = kinds[family].from_pretrained(tmp_path, output_loading_info=True)
    pooler = {
        key for key in info["unexpected_keys"] if "roberta.pooler." in key
    }  # RobertaModel has it
    assert not any(set(found) - pooler for found in info.values()), info
    inputs, outputs = goldens.PARTS[family]
    batch = inputs(config.vocab)
    expected = outputs(theirs.eval(), batch)
    words, value = compute_outputs(model, params, find_loss(OBJECTIVES[family]), batch)
    compare_logits(words, expected["words"], batch)
    assert abs(value - expected["loss"]) < 1e-5


@pytest.mark.parametrize("local_attention", [1, 2, 3, 128])
def test_a_window_both_ways_is_modernberts_local_attention(local_attention):
    import torch
    import transformers
    from transformers.masking_utils import sliding_window_bidirectional_mask_function

    config = transformers.ModernBertConfig(local_attention=local_attention)
    may_read = sliding_window_bidirectional_mask_function(config.sliding_window)
    (ours_LM,) = Mask(window=local_attention).make_dense(150, 150)[0]
    position_L = torch.arange(150)
    theirs_LM = may_read(0, 0, position_L[:, None], position_L[None]).numpy()
    np.testing.assert_array_equal(ours_LM, theirs_LM)


def test_goldens_equal_what_the_script_writes(goldens, golden):
    """The committed files can be made again, by this or a later transformers."""
    for name, (kind, shape) in goldens.CASES.items():
        config, weights, batch, outputs = goldens.make_case(kind, shape)
        found = golden(name)
        shared = config.keys() & found.config.keys() - {"transformers_version"}
        assert {key: config[key] for key in shared} == {key: found.config[key] for key in shared}
        for part, expected in (("weights", weights), ("inputs", batch), ("outputs", outputs)):
            assert getattr(found, part).keys() == expected.keys()
            for key, value in expected.items():
                np.testing.assert_allclose(
                    getattr(found, part)[key], value, atol=1e-5, err_msg=f"{name} {key}"
                )
