"""The folder of an embedder: what is written is read again, and gives sentence-transformers the same
vectors.
"""

import dataclasses
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from data.config import Data
from models.config.embedder import EmbedderConfig
from models.config.gpt2 import Gpt2Config
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.config import Run
from pretrain.convert.read_write import open_model, write_model
from pretrain.convert.safe_folder import FolderError
from pretrain.finetune.encoders import make_head_objective
from pretrain.inference.vectors.embedding import TextEmbedder
from pretrain.workdir.trained import Trained
from tests.pretrain.finetune.encoders import (
    TEXT,
    draw_params,
    make_decoders,
    make_encoders,
    trained_vocabularies,
)

ENCODERS = make_encoders() | make_decoders()
TEXTS = [*TEXT, "A fox.", " ".join(["so on and on"] * 3)]


@pytest.fixture(scope="module")
def vocabularies():
    return trained_vocabularies()


def make_model(name, **settings):
    encoder = ENCODERS[name]
    pooling = "last" if isinstance(encoder, Gpt2Config) or name in ("gpt", "xlnet") else "mean"
    model = EmbedderConfig(encoder=encoder, **{"pooling": pooling, **settings})
    run = Run(model=model, data=Data(objective=make_head_objective(model)))
    return run, draw_params(run)


def write_folder(folder, name, vocabularies, **settings):
    run, params = make_model(name, **settings)
    write_model(folder, run.model, params, vocabularies[name])
    return run, params


def read_folder(folder):
    opened = open_model(folder)
    run = make_starting_run(opened.config)
    params, missing, unused = opened.load_params(run.model, make_initializer(run))
    return opened, run, params, missing, unused


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", ENCODERS)
def test_import_is_the_inverse_of_export(name, tmp_path, vocabularies):
    run, params = write_folder(tmp_path / "a", name, vocabularies, learn_temperature=True)
    opened, again, read, missing, unused = read_folder(tmp_path / "a")
    assert all("pooler" in tensor for tensor in missing) and unused == ()
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["architectures"][0].endswith("Model")
    assert again.model.pooling == run.model.pooling and again.model.normalize
    for keys, leaf in jax.tree_util.tree_leaves_with_path(read):
        path = jax.tree_util.keystr(keys)
        if "pooler" not in path:
            before = params
            for key in keys:
                before = before[key.key]
            np.testing.assert_array_equal(leaf, before, path)
    model = dataclasses.replace(again.model, encoder=run.model.encoder)
    write_model(tmp_path / "b", model, read, opened.vocabulary)
    for path in sorted((tmp_path / "a").rglob("*")):
        if path.is_file() and path.name != "config.json":
            assert (
                path.read_bytes()
                == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
            )


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_steps_are_written_and_read(pooling, normalize, tmp_path, vocabularies):
    write_folder(tmp_path / "a", "bert", vocabularies, pooling=pooling, normalize=normalize)
    modules = json.loads((tmp_path / "a" / "modules.json").read_text())
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    assert kinds == ["Transformer", "Pooling", "Normalize"][: 2 + normalize]
    keys = json.loads((tmp_path / "a" / "1_Pooling" / "config.json").read_text())
    assert [key for key, value in keys.items() if value is True] == [
        {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}.get(
            pooling, "pooling_mode_lasttoken"
        ),
        "include_prompt",
    ]
    assert keys["word_embedding_dimension"] == 16
    config = open_model(tmp_path / "a").config
    assert (config.pooling, config.normalize) == (pooling, normalize)


def test_a_released_folder_is_read(tmp_path, vocabularies):
    """Names without `bert.`, as of BertModel, and the words of version 6."""
    run, params = write_folder(tmp_path / "a", "bert", vocabularies, pooling="cls")
    weights = load_file(tmp_path / "a" / "model.safetensors")
    own = {name.removeprefix("bert."): array for name, array in weights.items()}
    pooler = {"pooler.dense.weight": np.zeros((16, 16)), "pooler.dense.bias": np.zeros(16)}
    own |= {name: array.astype(np.float32) for name, array in pooler.items()}
    save_file(own, tmp_path / "a" / "model.safetensors")
    pooling = {"embedding_dimension": 16, "pooling_mode": "cls", "include_prompt": True}
    (tmp_path / "a" / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    _, again, read, missing, unused = read_folder(tmp_path / "a")
    assert again.model.pooling == "cls" and not missing and not unused
    before, after = (
        {
            jax.tree_util.keystr(keys): leaf
            for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
        }
        for tree in (params, read)
    )
    assert before.keys() == after.keys()
    for path, leaf in before.items():
        if "pooler" not in path:
            np.testing.assert_array_equal(after[path], leaf, path)


def change_modules(folder, change):
    path = folder / "modules.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda modules: modules[:1], "the steps are Transformer; Cloze reads"),
        (lambda modules: [], "the steps are none"),
        (lambda modules: {"a": 1}, "holds dict, expected a list"),
        (lambda modules: [3, *modules[1:]], "3 names no class"),
        (lambda modules: [*modules[:2], {"type": "x.Dense"}], "Transformer, Pooling, Dense"),
        (lambda modules: [modules[0] | {"path": "0_T"}, *modules[1:]], "the model is in '0_T'"),
        (lambda modules: [modules[0], modules[1] | {"path": "../../x"}, modules[2]], "path of Pool"),
        (lambda modules: [modules[0], modules[1] | {"path": ".."}, modules[2]], "path of Pooling"),
        (lambda modules: [modules[0], modules[1] | {"path": ["a"]}, modules[2]], "path of Pooling"),
    ],
)  # fmt: skip
def test_other_steps_are_refused(change, message, tmp_path, vocabularies):
    write_folder(tmp_path / "a", "bert", vocabularies)
    change_modules(tmp_path / "a", change)
    with pytest.raises(FolderError, match=message):
        open_model(tmp_path / "a")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pooling_mode_max_tokens": True}, "the pooling is pooling_mode_max_tokens; Cloze has"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "pooling_mode_mean_tok"),
        ({"pooling_mode": "weightedmean"}, "the pooling is 'weightedmean'"),
        ({"pooling_mode": ["mean", "cls"]}, "the pooling is"),
        ({}, "the pooling is None"),
    ],
)  # fmt: skip
def test_other_poolings_are_refused(keys, message, tmp_path, vocabularies):
    write_folder(tmp_path / "a", "bert", vocabularies)
    (tmp_path / "a" / "1_Pooling" / "config.json").write_text(json.dumps(keys))
    with pytest.raises(FolderError, match=message):
        open_model(tmp_path / "a")


def test_an_entry_of_config_json_makes_no_embedder(tmp_path, vocabularies):
    write_folder(tmp_path / "a", "bert", vocabularies)
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    (tmp_path / "a" / "config.json").write_text(json.dumps(config | {"embedder": {"pooling": "x"}}))
    assert open_model(tmp_path / "a").config.pooling == "mean"
    (tmp_path / "a" / "modules.json").unlink()
    assert not isinstance(open_model(tmp_path / "a").config, EmbedderConfig)


def test_an_export_replaces_an_export_alone(tmp_path, vocabularies):
    run, params = make_model("bert")
    card = "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n"
    card += (
        "tags: [bert]\n---\n\n# A x\n\n| | |\n|-|-|\n| a | b |\n\n## Evaluation\n\nx\n\n## Use\n\n"
    )
    card += "```python\nx\n```\n\n## Limits\n\nx\n"
    for _ in range(2):
        write_model(
            tmp_path / "a", run.model, params, vocabularies["bert"], card=card, overwrite=True
        )
    (tmp_path / "a" / "1_Pooling" / "mine.txt").write_text("x")
    with pytest.raises(FileExistsError, match=r"1_Pooling/mine.txt, which no export writes"):
        write_model(
            tmp_path / "a", run.model, params, vocabularies["bert"], card=card, overwrite=True
        )


def embed_here(run, params, vocabulary):
    return TextEmbedder(Trained(None, run, 1, params, vocabulary))(TEXTS)


@pytest.mark.more
@pytest.mark.parametrize("name", ENCODERS)
def test_transformers_has_the_states(name, tmp_path, vocabularies):
    """Pooled by hand, they are our vectors within 1e-5."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    transformers.utils.logging.disable_progress_bar()
    run, params = write_folder(tmp_path / "a", name, vocabularies)
    model = transformers.AutoModel.from_pretrained(tmp_path / "a").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    for text, vector in zip(TEXTS, embed_here(run, params, vocabularies[name])):
        ids = tokenizer(text, return_tensors="pt", truncation=True)
        with torch.no_grad():
            states_LD = model(**ids).last_hidden_state[0].numpy()
        pooled = states_LD[-1] if run.model.pooling == "last" else states_LD.mean(axis=0)
        np.testing.assert_allclose(vector, pooled / np.linalg.norm(pooled), atol=1e-5)


@pytest.mark.more
@pytest.mark.parametrize("name", ENCODERS)
def test_sentence_transformers_opens_the_folder(name, tmp_path, vocabularies):
    library = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    run, params = write_folder(tmp_path / "a", name, vocabularies)
    theirs = library.SentenceTransformer(str(tmp_path / "a"), device="cpu").encode(TEXTS)
    ours = embed_here(run, params, vocabularies[name])
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
