"""transformers loads what `export` writes: every key, the same logits, the same loss, the same
text.
"""

import dataclasses
import functools
import json
import os
import re
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from data.vocabulary.load import train_vocabulary
from models import build
from models.config.albert import AlbertConfig
from models.config.bert import BertConfig
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.roberta import RobertaConfig
from models.config.t5 import T5Config
from models.config.transformer import TransformerConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.convert import find_model_type, read_write
from pretrain.convert.export_folder import write_tensors
from pretrain.convert.read_write import write_model
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.workdir import Workdir
from tests.pretrain.workdirs import draw_params

BERT = BertConfig(vocab=256, length=40, width=16, depth=3, num_heads=2, mlp=24)
T5 = T5Config(vocab=320, width=16, depth=2, decoder_depth=2, num_heads=2, head_width=6, mlp=24)
ALBERT = AlbertConfig(vocab=256, length=40, embedding=8, width=16, depth=3, num_heads=2, mlp=24)
ROBERTA = RobertaConfig(vocab=320, length=40, width=16, depth=3, num_heads=2, mlp=24)
# {case: (family, scanned)}; for T5 every kind of MLP and of output table: v1.0 is plain and tied, v1.1
# gated and untied
CONFIGS = {
    "bert": BERT,
    "bert_unrolled": dataclasses.replace(BERT, scan=False),
    "t5": T5,
    "t5_unrolled": dataclasses.replace(T5, scan=False),
    "t5_v1_1": dataclasses.replace(T5, gated=True, tied=False),
    "t5_v1_1_unrolled": dataclasses.replace(T5, gated=True, tied=False, scan=False, decoder_depth=3),
    "t5_gated_tied": dataclasses.replace(T5, gated=True),
    "t5_untied": dataclasses.replace(T5, tied=False),
    "roberta": ROBERTA,
    "albert": ALBERT,
    "transformer": TransformerConfig(vocab=256, width=16, depth=2, decoder_depth=3, num_heads=2, mlp=24),
    "gpt": GptConfig(vocab=256, length=40, width=16, depth=2, num_heads=2, mlp=64),
    "gpt2_unrolled": Gpt2Config(vocab=256, length=40, width=16, depth=2, num_heads=2, mlp=24, scan=False),
}  # fmt: skip
PAIR = {
    "bert": ("next_sentence_label", "seq_relationship_logits"),
    "albert": ("sentence_order_label", "sop_logits"),
}
LEFT = "roberta.pooler."  # RobertaForMaskedLM has none
TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "A cloze is a test in which words are left out of a text, and the reader fills the gaps.",
    "Whoever reads the words before a gap and behind it can often tell what stood there.",
    "the reader, the writer, the text and the words: 1, 2, 3, 10, 100, 1000",
] * 5


@pytest.fixture(scope="module")
def vocabularies():
    gpt = train_vocabulary(TEXT, 72, layout="gpt")
    return {
        "bert": train_vocabulary(TEXT, 72),
        "t5": train_vocabulary(TEXT, 170, layout="t5"),
        "albert": train_vocabulary(TEXT, 74),
        "marian": train_vocabulary(TEXT, 74, layout="transformer", algorithm="bpe"),
        "roberta": train_vocabulary(TEXT, 290, layout="roberta", algorithm="byte_bpe"),
        "openai-gpt": gpt,
        "gpt2": gpt,
    }


# Biases and norms differ too, so that none can be confused with another.
make_noisy_params = functools.partial(draw_params, width=0.3, scale=1.0)


@pytest.fixture(scope="module", params=CONFIGS)
def exported(request, vocabularies, tmp_path_factory):
    """Return (config, params, vocabulary, folder)."""
    config = CONFIGS[request.param]
    vocabulary = vocabularies[find_model_type(config)]
    folder = tmp_path_factory.mktemp("exported") / request.param
    params = make_noisy_params(config)
    write_model(folder, config, params, vocabulary, card="# card\n")
    return config, params, vocabulary, folder


def make_rows(size, pad=0, B=3, L=12):
    """Return ids [B, L] in which row b has L - 3 b tokens."""
    valid = np.arange(L) < L - 3 * np.arange(B)[:, None]
    ids = np.random.default_rng(1).integers(5, size, (B, L))
    return np.where(valid, ids, pad).astype(np.int32), valid


# ---- without torch ------------------------------------------------------------


@pytest.mark.held_by(3)
def test_files(exported):
    config, params, vocabulary, folder = exported
    common = {
        "README.md", "config.json", "model.safetensors", "special_tokens_map.json",
        "tokenizer.json", *vocabulary.export_files(),
    }  # fmt: skip
    common |= {"tokenizer_config.json"} | (
        {"generation_config.json"} if isinstance(config, (T5Config, TransformerConfig)) else set()
    )
    assert {path.name for path in folder.iterdir()} == common
    with safe_open(folder / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}
    tensors = load_file(folder / "model.safetensors")
    assert all(array.dtype == np.float32 for array in tensors.values())
    bias = tensors.pop("final_logits_bias", np.zeros(0))  # ours does not have it
    assert (
        sum(array.size for array in tensors.values())
        == sum(leaf.size for leaf in jax.tree.leaves(params))
        and not bias.any()
    )
    mode = os.stat(folder / "model.safetensors").st_mode & 0o777
    assert (
        mode == os.stat(folder / "config.json").st_mode & 0o777
    )  # files may be readable by others if weights may
    if "generation_config.json" in common:
        generation = json.loads((folder / "generation_config.json").read_text())
        assert generation == {
            "decoder_start_token_id": 0,
            "eos_token_id": vocabulary.eos,
            "pad_token_id": 0,
        }


def test_the_order_of_layers_does_not_depend_on_scan(vocabularies, tmp_path):
    for name in ("bert", "t5"):
        params = make_noisy_params(CONFIGS[name])
        write_model(tmp_path / name, CONFIGS[name], params, vocabularies[name])
        rolled = load_file(tmp_path / name / "model.safetensors")
        opened = read_write.open_model(tmp_path / name)
        flat = CONFIGS[f"{name}_unrolled"]
        again, *_ = opened.load_params(flat, make_initializer(make_starting_run(flat)))
        write_model(tmp_path / f"{name}_unrolled", flat, again, vocabularies[name])
        unrolled = load_file(tmp_path / f"{name}_unrolled" / "model.safetensors")
        assert rolled.keys() == unrolled.keys() and all(
            rolled[key].tobytes() == unrolled[key].tobytes() for key in rolled
        )


def test_a_model_smaller_than_its_vocabulary_is_refused(vocabularies, tmp_path):
    config = dataclasses.replace(BERT, vocab=71)
    with pytest.raises(ValueError, match="vocabulary has 72 ids, the model only 71 rows"):
        write_model(tmp_path / "x", config, make_noisy_params(config), vocabularies["bert"])
    with pytest.raises(ValueError, match="cls_token"):
        write_model(tmp_path / "x", BERT, make_noisy_params(BERT), vocabularies["t5"])
    assert list(tmp_path.iterdir()) == []


# ---- the verb ----------------------------------------------------------------


@pytest.fixture(scope="module")
def workdir(vocabularies, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "w"
    start_workdir(path, make_starting_run(BERT), make_noisy_params(BERT), vocabularies["bert"])
    row = {"step": 0, "loss": 5.0, "heldout_loss": 4.25, "heldout_masked_lm_accuracy": 0.125}
    (path / "metrics.jsonl").write_text(
        json.dumps(row) + "\n" + json.dumps(row | {"step": 9, "heldout_loss": 1.0}) + "\n"
    )
    return path


def test_the_verb_prints_what_it_wrote_and_how_to_load_it(workdir, tmp_path, capsys):
    assert main(["export", "--workdir", str(workdir), "--output", str(tmp_path / "out")]) == 0
    output = capsys.readouterr().out
    for path in (tmp_path / "out").iterdir():
        assert re.search(rf"{re.escape(path.name)} +{path.stat().st_size:,} bytes", output), path
    assert f'AutoModelForPreTraining.from_pretrained("{tmp_path / "out"}")' in output
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: fill-mask\n")
    size = sum(leaf.size for leaf in jax.tree.leaves(make_noisy_params(BERT)))
    assert f"| parameters | {size:,} |" in card
    assert (
        "| loss | 4.25 |" in card and "| masked lm accuracy | 0.125 |" in card
    )  # not step 9's, which is another checkpoint
    assert "72 pieces" in card and "at step 0:" in card

    assert main(["export", "--workdir", str(workdir), "--output", str(tmp_path / "out")]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (
        main(
            ["export", "--workdir", str(workdir), "--output", str(tmp_path / "out"), "--overwrite"]
        )
        == 0
    )
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_verb_refuses(workdir, vocabularies, tmp_path, capsys):
    out = ["--output", str(tmp_path / "out")]
    for words, message in (
        (["--workdir", str(tmp_path / "absent"), *out], "not a workdir"),
        (["--workdir", str(workdir), "--step", "7", *out], "no checkpoint of step 7"),
        (["--workdir", str(workdir), "--output", "gs://bucket/out"], "a folder on this machine"),
    ):
        assert main(["export", *words]) == 2
        assert message in capsys.readouterr().err
    shutil.copytree(workdir, tmp_path / "other")
    shutil.rmtree(tmp_path / "other" / "vocabulary")
    train_vocabulary(TEXT, 71).save(tmp_path / "other" / "vocabulary")
    assert main(["export", "--workdir", str(tmp_path / "other"), *out]) == 2
    assert "is not the vocabulary that checkpoint 0 was trained with" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# ---- with torch -----------------------------------------------------------------


@pytest.fixture
def transformers():
    pytest.importorskip("torch", reason="the extra `peers` is not installed")
    module = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    module.utils.logging.disable_progress_bar()
    return module


def load_model(kind, folder, left="nothing"):
    """Load a model of transformers; no parameter may be missing, and no name left over unless it
    begins with `left`.
    """
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    info["unexpected_keys"] = [key for key in info["unexpected_keys"] if not key.startswith(left)]
    assert not any(info.values()), info
    return model.eval()


def make_torch_tensors(**arrays):
    import torch

    return {
        name: torch.tensor(np.asarray(array).astype(np.int64)) for name, array in arrays.items()
    }


@pytest.mark.more
def test_logits_and_loss_are_those_of_transformers(exported, transformers):
    import torch

    config, params, vocabulary, folder = exported
    ids, valid = make_rows(config.vocab, vocabulary.pad or 0)  # GPTs have no padding token
    targets = np.roll(ids, 3, axis=1)
    if find_model_type(config) in ("openai-gpt", "gpt2"):
        model = load_model(transformers.AutoModelForCausalLM, folder)
        with torch.no_grad():
            theirs = model(
                **make_torch_tensors(input_ids=ids, labels=ids)
            )  # padding is on the right, where no token attends to it
        ours = build(config).apply({"params": params}, ids)
        np.testing.assert_allclose(ours, theirs.logits, atol=1e-4)
        nats = -jnp.take_along_axis(jax.nn.log_softmax(ours[:, :-1]), ids[:, 1:, None], -1)
        np.testing.assert_allclose(nats.mean(), theirs.loss, atol=1e-5)
        return
    if isinstance(config, (T5Config, TransformerConfig)):
        model = load_model(transformers.AutoModelForSeq2SeqLM, folder)
        with torch.no_grad():
            theirs = model(
                **make_torch_tensors(
                    input_ids=ids, attention_mask=valid, labels=np.where(targets, targets, -100)
                )
            )
        ours = build(config).apply({"params": params}, ids, valid, targets)
        np.testing.assert_allclose(ours, theirs.logits, atol=1e-4)
        nats = -jnp.take_along_axis(jax.nn.log_softmax(ours), targets[..., None], -1)[..., 0]
        np.testing.assert_allclose(np.asarray(nats)[targets > 0].mean(), theirs.loss, atol=1e-5)
        assert getattr(model.config, "scale_decoder_outputs", True) == getattr(config, "tied", True)
        return
    if isinstance(config, RobertaConfig):
        model, labels = (
            load_model(transformers.RobertaForMaskedLM, folder, LEFT),
            np.where(valid, targets, -100),
        )
        with torch.no_grad():
            theirs = model(**make_torch_tensors(input_ids=ids, attention_mask=valid, labels=labels))
            of_row = model.roberta.from_pretrained(folder)(
                **make_torch_tensors(input_ids=ids, attention_mask=valid)
            ).pooler_output
        words, pooled = build(config).apply({"params": params}, ids, valid)
        np.testing.assert_allclose(
            np.where(valid[..., None], words - theirs.logits.numpy(), 0), 0, atol=1e-4
        )
        np.testing.assert_allclose(pooled, of_row, atol=1e-5)
        nats = -jnp.take_along_axis(jax.nn.log_softmax(words), targets[..., None], -1)[..., 0]
        np.testing.assert_allclose(np.asarray(nats)[valid].mean(), theirs.loss, atol=1e-5)
        return
    kind = (
        transformers.BertForPreTraining
        if isinstance(config, BertConfig)
        else transformers.AlbertForPreTraining
    )
    model, label, of_row = load_model(kind, folder), *PAIR[find_model_type(config)]
    segments, masked, follows = (
        (np.arange(12) > 5) * valid,
        (np.arange(12) % 3 == 1) & valid,
        np.array([0, 1, 0]),
    )
    with torch.no_grad():
        theirs = model(
            **make_torch_tensors(
                input_ids=ids,
                attention_mask=valid,
                token_type_ids=segments,
                labels=np.where(masked, targets, -100),
            ),
            **make_torch_tensors(**{label: follows}),
        )
    words, following = build(config).apply(
        {"params": params}, ids, valid, segments.astype(np.int32)
    )
    np.testing.assert_allclose(
        np.where(valid[..., None], words - theirs.prediction_logits.numpy(), 0), 0, atol=1e-4
    )
    np.testing.assert_allclose(following, theirs[of_row], atol=1e-4)
    nats = -jnp.take_along_axis(jax.nn.log_softmax(words), targets[..., None], -1)[..., 0]
    loss = (
        np.asarray(nats)[masked].mean()
        - np.asarray(jax.nn.log_softmax(following))[np.arange(3), follows].mean()
    )
    np.testing.assert_allclose(loss, theirs.loss, atol=1e-5)


@pytest.mark.more
def test_the_other_classes_of_bert(vocabularies, transformers, tmp_path):
    """A class with fewer parts loads its own; the unused names are whole heads, and none is
    missing.
    """
    write_model(tmp_path / "x", BERT, make_noisy_params(BERT), vocabularies["bert"])
    for kind, left in (
        (transformers.BertForMaskedLM, ("bert.pooler.", "cls.seq_relationship.")),
        (transformers.BertModel, ("cls.",)),
    ):
        model, info = kind.from_pretrained(tmp_path / "x", output_loading_info=True)
        assert not info["missing_keys"] and not info["mismatched_keys"] and not info["error_msgs"]
        assert all(key.startswith(left) for key in info["unexpected_keys"]), info
    assert (
        type(transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "x")).__name__
        == "BertForPreTraining"
    )


@pytest.mark.more
def test_a_folder_saved_again_by_transformers_is_imported(exported, transformers, tmp_path):
    config, params, vocabulary, folder = exported
    kinds = {
        "bert": transformers.BertForPreTraining,
        "t5": transformers.T5ForConditionalGeneration,
        "marian": transformers.MarianMTModel,
        "roberta": transformers.RobertaForMaskedLM,
        "albert": transformers.AlbertForPreTraining,
    }
    load_model(
        kinds.get(find_model_type(config), transformers.AutoModelForCausalLM), folder, LEFT
    ).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    opened = read_write.open_model(tmp_path)
    expected = dataclasses.asdict(config) | {"scan": True}
    assert dataclasses.asdict(opened.config) == expected
    again, missing, unused = opened.load_params(config, make_initializer(make_starting_run(config)))
    assert unused == () and all(name.startswith(LEFT) for name in missing)
    if missing:  # so it is random
        again["roberta"]["pooler"] = params["roberta"]["pooler"]
    jax.tree.map(np.testing.assert_array_equal, again, params)
    assert opened.vocabulary.pieces == vocabulary.pieces


@pytest.mark.more
def test_in_parts(vocabularies, transformers, tmp_path, monkeypatch):
    monkeypatch.setattr(read_write, "write_tensors", partial(write_tensors, limit=9000))
    write_model(tmp_path / "x", BERT, make_noisy_params(BERT), vocabularies["bert"])
    assert len(list((tmp_path / "x").glob("model-*.safetensors"))) > 2
    load_model(transformers.BertForPreTraining, tmp_path / "x")


@pytest.mark.more
@pytest.mark.parametrize("name", ["bert", "roberta", "albert"])
def test_fill_mask(vocabularies, transformers, tmp_path, name):
    vocabulary = vocabularies[name]
    write_model(tmp_path / "x", CONFIGS[name], make_noisy_params(CONFIGS[name]), vocabulary)
    fill = transformers.pipeline("fill-mask", model=str(tmp_path / "x"), device="cpu", top_k=3)
    answers = fill(f"The quick {vocabulary.pieces[vocabulary.mask]} fox.")
    assert len(answers) == 3 and all(answer["token"] < CONFIGS[name].vocab for answer in answers)


@pytest.mark.more
def test_generate(vocabularies, transformers, tmp_path):
    from models.generation.decoding import generate

    for name in ("t5", "t5_v1_1"):
        config, vocabulary = CONFIGS[name], vocabularies["t5"]
        params = make_noisy_params(config, seed=3)
        write_model(tmp_path / name, config, params, vocabulary)
        model = load_model(transformers.T5ForConditionalGeneration, tmp_path / name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        batch = tokenizer(
            ["The <extra_id_0> fox jumps.", "a text"], padding=True, return_tensors="pt"
        )
        theirs = model.generate(**batch, max_new_tokens=8, do_sample=False)[:, 1:].numpy()
        ids, valid = (
            batch["input_ids"].numpy().astype(np.int32),
            batch["attention_mask"].numpy().astype(bool),
        )
        ours = np.asarray(generate(build(config), params, ids, valid, length=8))
        np.testing.assert_array_equal(ours[:, : theirs.shape[1]], theirs)
        assert (ours[:, theirs.shape[1] :] == 0).all()


@pytest.mark.more
def test_a_text_is_translated_as_transformers_does(vocabularies, transformers, tmp_path):
    """`predict` generates the same in rows of different lengths: the tokenizer of the folder ends
    each text.
    """
    from pretrain.inference import text_generation as write
    from pretrain.workdir.trained import Trained

    config, vocabulary = (
        dataclasses.replace(CONFIGS["transformer"], vocab=74),
        vocabularies["marian"],
    )
    params = jax.tree.map(lambda leaf: 4 * leaf, make_noisy_params(config, seed=5))
    write_model(tmp_path / "x", config, params, vocabulary)
    model, tokenizer = (
        load_model(transformers.MarianMTModel, tmp_path / "x"),
        transformers.AutoTokenizer.from_pretrained(tmp_path / "x"),
    )
    texts = ["The quick", "a reader of the text", "words"]
    translate = write.TranslationWriter(
        Trained(Workdir.open(tmp_path), make_starting_run(config), 0, params, vocabulary), 8, 4
    )
    answers = translate(texts, [None] * 3)
    for text, answer in zip(texts, answers):
        written = model.generate(
            **tokenizer(text, return_tensors="pt"),
            max_new_tokens=8,
            do_sample=False,
            num_beams=1,
            forced_eos_token_id=None,
        )
        assert answer["written"].replace(" ⁇ ", "") == tokenizer.decode(
            written[0], skip_special_tokens=True
        )
    assert len({answer["written"] for answer in answers}) > 1
    with pytest.raises(ValueError, match="text 2: there is nothing to translate in ' '"):
        translate(["a", " "], [None] * 2)
    rows = translate.encode_texts(texts)
    assert rows == tokenizer(texts)["input_ids"] and all(row[-1] == vocabulary.eos for row in rows)


@pytest.mark.more
def test_a_text_is_continued_as_transformers_does(vocabularies, transformers, tmp_path):
    """GPT and GPT-2, with the tokenizer of the folder and by `predict`; both leave out ids without
    a token.
    """
    from pretrain.inference import text_generation as write
    from pretrain.workdir.trained import Trained

    for name in ("gpt", "gpt2_unrolled"):
        config = dataclasses.replace(CONFIGS[name], vocab=72)
        vocabulary, params = vocabularies["gpt2"], make_noisy_params(config, seed=5)
        write_model(tmp_path / name, config, params, vocabulary)
        model, tokenizer = (
            load_model(transformers.AutoModelForCausalLM, tmp_path / name),
            transformers.AutoTokenizer.from_pretrained(tmp_path / name),
        )
        ours = write.ContinuationWriter(
            Trained(Workdir.open(tmp_path), make_starting_run(config), 0, params, vocabulary), 8, 4
        )
        texts = ["The quick", "a reader of the text", "words"]
        for text, answer in zip(texts, ours(texts, [None] * 3)):
            batch = tokenizer(text, return_tensors="pt")
            written = model.generate(
                **batch,
                max_new_tokens=8,
                do_sample=False,
                eos_token_id=vocabulary.eos,
                pad_token_id=vocabulary.eos,
            )
            theirs = tokenizer.decode(written[0], skip_special_tokens=True)
            assert (
                answer["filled"].replace(" ⁇ ", "") == theirs and answer["written"]
            )  # they leave out an unknown token
