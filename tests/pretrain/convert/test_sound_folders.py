"""Folders that lack what a model can do without, or say the same in another way, are imported."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from models import build
from models.config.bart import BartConfig
from models.config.distilbert import DistilBertConfig
from models.config.electra import ElectraConfig
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.transformer import TransformerConfig
from models.layers.mlp import gelu, gelu_tanh
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.convert.read_write import open_model, write_model
from pretrain.families.key_rules import EXACT_GELU, TANH_GELU
from tests.pretrain.finetune.encoders import draw_params, trained_vocabularies

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
SIZES = dict(vocab=72, width=16, depth=2, num_heads=2, mlp=24)
BART = BartConfig(**SIZES | {"vocab": 290}, length=24, decoder_depth=2)
TRANSFORMER = TransformerConfig(**SIZES, decoder_depth=2)
DISTILBERT = DistilBertConfig(**SIZES, length=24, teacher_depth=None)
ELECTRA = ElectraConfig(**SIZES | {"num_heads": 4}, length=24, embedding=8)


@pytest.fixture(scope="module")
def vocabularies():
    return trained_vocabularies()


def import_params(folder):
    opened = open_model(folder)
    run = make_starting_run(opened.config)
    return run, *opened.load_params(run.model, make_initializer(run))


def rewrite_folder(folder, change, **settings):
    """Change the tensors and the settings of a folder."""
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors")
    described = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(described))


def remove_prefix(prefix):
    return lambda tensors: {
        name.removeprefix(prefix): array
        for name, array in tensors.items()
        if name.startswith(prefix)
    }


# ---- bare models ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "vocabulary", "prefix", "name", "num_missing"),
    [
        (DISTILBERT, "bert", "distilbert.", "DistilBertModel", 5),
        (BART, "roberta", "model.", "BartModel", 0),
    ],
)
def test_a_bare_model_is_imported(
    model, vocabulary, prefix, name, num_missing, vocabularies, tmp_path
):
    """As `transformers` saves the models without a head; BART's head is its embeddings."""
    params = draw_params(make_starting_run(model))
    write_model(tmp_path / "theirs", model, params, vocabularies[vocabulary])
    rewrite_folder(tmp_path / "theirs", remove_prefix(prefix), architectures=[name])
    run, found, missing, unused = import_params(tmp_path / "theirs")
    assert run.model == model and len(missing) == num_missing and unused == ()
    if not num_missing:
        jax.tree.map(np.testing.assert_array_equal, found, params)
    else:
        jax.tree.map(
            np.testing.assert_array_equal,
            found["student"]["encoder"],
            params["student"]["encoder"],
        )


def test_a_bare_marian_is_imported(vocabularies, tmp_path):
    """The vocabulary is trained for BERT, which the Transformer does not read: config.json alone."""
    from pretrain.convert.pretrained import CONVERTERS

    params = draw_params(make_starting_run(TRANSFORMER))
    tensors = CONVERTERS["marian"].to_hf(TRANSFORMER, params)
    bare = remove_prefix("model.")(tensors)
    found, report = CONVERTERS["marian"].from_hf(TRANSFORMER, bare, params)
    assert report.missing == report.unused == () and bare.keys() < {
        name.removeprefix("model.") for name in tensors
    }
    jax.tree.map(np.testing.assert_array_equal, found, params)


@pytest.mark.more
@pytest.mark.parametrize("name", ["DistilBertModel", "BartModel"])
def test_a_bare_model_that_transformers_saved_computes_the_same(name, vocabularies, tmp_path):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    transformers.utils.logging.disable_progress_bar()
    model, vocabulary = {
        "DistilBertModel": (DISTILBERT, "bert"),
        "BartModel": (BART, "roberta"),
    }[name]
    params = draw_params(make_starting_run(model))
    write_model(tmp_path / "whole", model, params, vocabularies[vocabulary])
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "whole").eval()
    shutil.copytree(tmp_path / "whole", tmp_path / "bare")
    (tmp_path / "bare" / "model.safetensors").unlink()
    theirs.save_pretrained(tmp_path / "bare")
    run, found, *_ = import_params(tmp_path / "bare")
    ids = np.random.default_rng(0).integers(5, 70, (2, 9)).astype(np.int32)
    valid = np.ones_like(ids, bool)
    tokens = torch.tensor(ids.astype(np.int64))
    with torch.no_grad():
        if name == "BartModel":
            shifted = torch.nn.functional.pad(tokens, (1, 0), value=model.start)[:, :-1]
            output = theirs(input_ids=tokens, decoder_input_ids=shifted)
        else:
            output = theirs(input_ids=tokens)
    arguments, method = (
        ((ids, valid, ids), "compute_states") if name == "BartModel" else ((ids, valid), "encode")
    )
    states = build(run.model).apply({"params": found}, *arguments, method=method)
    states = states if name == "BartModel" else states[0]
    np.testing.assert_allclose(states, output.last_hidden_state.numpy(), atol=1e-4)


# ---- ELECTRA's discriminator without its generator -----------------------------------------------


@pytest.fixture
def discriminator(vocabularies, tmp_path):
    """(the whole model's parameters, a folder of the discriminator alone)."""
    params = draw_params(make_starting_run(ELECTRA))
    write_model(tmp_path / "theirs", ELECTRA, params, vocabularies["electra"])
    shutil.rmtree(tmp_path / "theirs" / "generator")
    return params, tmp_path / "theirs"


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("sizes", "generator"),
    [  # width, heads and MLP of the discriminator and of its generator: table 6 of the paper
        ((256, 4, 1024), (64, 1, 256)),
        ((768, 12, 3072), (256, 4, 1024)),
        ((1024, 16, 4096), (256, 4, 1024)),
        ((10, 5, 20), (2, 1, 4)),
        ((16, 1, 24), (16, 1, 24)),
    ],
)
def test_a_missing_generator_has_the_papers_sizes(sizes, generator):
    from pretrain.convert.pretrained import CONVERTERS

    width, heads, mlp = sizes
    found = CONVERTERS["electra"].from_hf_config(
        {
            "model_type": "electra",
            "hidden_size": width,
            "num_attention_heads": heads,
            "intermediate_size": mlp,
        }
    )
    assert (found.width, found.num_heads, found.mlp) == sizes
    assert (found.generator_width, found.generator_num_heads, found.generator_mlp) == generator


def test_a_discriminator_alone_is_imported_and_its_generator_refused(
    discriminator, tmp_path, capsys
):
    params, folder = discriminator
    w, out = str(tmp_path / "w"), str(tmp_path / "out")
    assert main(["import", str(folder), "--workdir", w, "train.compute_dtype=float32"]) == 0
    output = capsys.readouterr().out
    assert "not in the folder, initialized at random (train.seed=0): generator/electra." in output
    run, found, missing, unused = import_params(folder)
    assert unused == () and missing and all(name.startswith("generator/") for name in missing)
    for name in ("embeddings", "discriminator", "discriminator_head"):
        jax.tree.map(np.testing.assert_array_equal, found[name], params[name])
    texts = tmp_path / "texts"
    texts.write_text("The fox\n")
    words = ["--input", str(texts), "--output", str(tmp_path / "f.npz")]
    assert main(["features", "--workdir", w, *words]) == 0
    for verb, more in (("predict", ["a [MASK] b"]), ("export", ["--output", out])):
        capsys.readouterr()
        assert main([verb, "--workdir", w, *more]) == 2
        assert "were not in the folder that was imported" in capsys.readouterr().err
    assert main(["export", "--workdir", w, "--output", out, "--allow-random-head"]) == 0
    before, after = (load_file(pathlib.Path(path, "model.safetensors")) for path in (folder, out))
    assert before.keys() == after.keys()
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)


def test_half_a_generator_is_refused(vocabularies, tmp_path):
    folder = tmp_path / "theirs"
    params = draw_params(make_starting_run(ELECTRA))
    write_model(folder, ELECTRA, params, vocabularies["electra"])
    rewrite_folder(
        folder / "generator",
        lambda tensors: {
            name: array for name, array in tensors.items() if "layer.1.output.dense" not in name
        },
    )
    with pytest.raises(ValueError, match=r"missing generator/electra\.encoder\.layer\.1\.output"):
        import_params(folder)


# ---- the same function under another name --------------------------------------------------------

ACTIVATIONS = [
    *(("hf_bert", "hidden_act", name) for name in EXACT_GELU),
    *(("hf_roberta", "hidden_act", name) for name in EXACT_GELU),
    *(("hf_albert", "hidden_act", name) for name in TANH_GELU),
    *(("hf_gpt2", "activation_function", name) for name in TANH_GELU),
]


@pytest.mark.held_by(2)
@pytest.mark.parametrize(("name", "key", "value"), ACTIVATIONS)
def test_an_activation_may_have_another_name(name, key, value, tmp_path):
    shutil.copytree(GOLDENS / name, tmp_path / "theirs")
    rewrite_folder(tmp_path / "theirs", dict, **{key: value})
    assert open_model(tmp_path / "theirs").config == open_model(GOLDENS / name).config


@pytest.mark.more
@pytest.mark.parametrize(
    ("names", "ours"), [(EXACT_GELU, gelu), (TANH_GELU, gelu_tanh)], ids=["exact", "tanh"]
)
def test_these_activations_are_the_same_function(names, ours):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    activations = pytest.importorskip(
        "transformers.activations", reason="the extra `peers` is not installed"
    )
    x = np.linspace(-8, 8, 4001, dtype=np.float32)
    for name in names:
        theirs = activations.ACT2FN[name](torch.tensor(x)).numpy()
        np.testing.assert_allclose(np.asarray(ours(x)), theirs, atol=2e-6)


# ---- dropout of the embeddings -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hf_gpt", "hf_gpt2"])
def test_the_embeddings_may_have_a_dropout_of_their_own(name, tmp_path):
    shutil.copytree(GOLDENS / name, tmp_path / "theirs")
    rewrite_folder(tmp_path / "theirs", dict, embd_pdrop=0.3, resid_pdrop=0.2)
    opened = open_model(tmp_path / "theirs")
    assert (opened.config.embedding_dropout, opened.config.dropout) == (0.3, 0.2)
    run = make_starting_run(opened.config)
    params, *_ = opened.load_params(run.model, make_initializer(run))
    write_model(tmp_path / "again", run.model, params, opened.vocabulary)
    described = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (described["embd_pdrop"], described["resid_pdrop"]) == (0.3, 0.2)
    before, after = (
        load_file(tmp_path / part / "model.safetensors") for part in ("theirs", "again")
    )
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)


@pytest.mark.parametrize("kind", [GptConfig, Gpt2Config])
def test_only_the_embeddings_use_it(kind):
    """Half of the embeddings are dropped, and nothing after them."""
    config = kind(**SIZES, length=24, dropout=0.0, attention_dropout=0.0, embedding_dropout=0.5)
    params = draw_params(make_starting_run(config))
    ids = np.random.default_rng(0).integers(0, 70, (4, 20)).astype(np.int32)

    def embed(model, ids):
        return model.embeddings(ids, True)

    rngs = {"dropout": jax.random.key(0)}
    embedded = build(config).apply({"params": params}, ids, method=embed, rngs=rngs)
    assert 0.4 < np.mean(np.asarray(embedded) == 0) < 0.6
    assert kind(**SIZES).embedding_dropout_rate == kind(**SIZES).dropout
    with pytest.raises(ValueError, match="embedding_dropout is 1.5"):
        kind(**SIZES, embedding_dropout=1.5)
