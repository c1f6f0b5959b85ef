"""The vocabulary's size follows the store, unless it is given."""

import json

import pytest

from pretrain.__main__ import main
from pretrain.api.store_vocabulary import follow_store, pad_vocabulary
from pretrain.config import ConfigError, load, to_json


@pytest.fixture
def store(tmp_path, stores):
    """Write the manifest of a store, as `prepare` does, whose vocabulary has a given size."""
    manifest = dict(stores["bert"].manifest)

    def write(size):
        folder = tmp_path / f"store{size}"
        folder.mkdir()
        manifest["vocabulary"] = manifest["vocabulary"] | {"size": size}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return str(folder)

    return write


def follow(config, store, *arguments, **options):
    arguments = [f"data.store={store}", *arguments]
    lines = []
    run = follow_store(load(config, arguments), config, arguments, report=lines.append, **options)
    return run.model.vocab, lines


@pytest.mark.parametrize(
    ("config", "size", "vocab"),
    [
        ("bert_base", 32_000, 32_000),
        ("bert_base", 30_522, 30_522),  # the configuration's, although it is no whole tile
        ("bert_base", 400, 400),
        ("bert_base", 50_257, 50_304),
        ("t5_small", 32_100, 32_128),  # the configuration's own padding
        ("bert_tiny", 4096, 4096),
        ("electra_small", 8000, 8064),
        ("gpt2", 50_257, 50_257),
    ],
)
def test_it_is_the_size_of_the_store(config, size, vocab, store):
    before = load(config).model.vocab
    found, lines = follow(config, store(size))
    assert found == vocab and len(lines) == (before != vocab)
    assert all(f"model.vocab={vocab} follows" in line and f"{size:,} ids" in line for line in lines)


def test_a_given_size_stays(store):
    assert follow("bert_base", store(400), "model.vocab=512") == (512, [])


def test_rows_of_the_embeddings_can_be_sharded(store):
    assert follow("bert_base", store(403), "mesh.model=8")[0] == 408
    assert pad_vocabulary(50_257, 24) % 24 == 0


@pytest.mark.parametrize("config", ["elmo", "vit_base", "distilbert_tiny"])
def test_models_without_ids_of_their_own_stay(config, store):
    """Characters, images, and a student whose teacher has the vocabulary."""
    run = load(config, [f"data.store={store(401)}"])
    assert follow_store(run, config, []) == run


def test_without_a_store_it_is_the_configurations(tmp_path):
    assert follow("bert_base", tmp_path / "none") == (30_522, [])


def test_a_run_keeps_the_size_with_which_it_began(store, tmp_path):
    (tmp_path / "w").mkdir()
    run = load("bert_base", ["model.vocab=999"])
    (tmp_path / "w/config.json").write_text(to_json(run))
    assert follow("bert_base", store(400), workdir=tmp_path / "w") == (999, [])


def test_a_saved_configuration_stays(store, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(to_json(load("bert_base", [f"data.store={store(400)}"])))
    assert follow(str(path), store(401)) == (30_522, [])


def test_describe_shows_it(store, capsys):
    assert main(["describe", "bert_base", f"data.store={store(32_000)}", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["run"]["model"]["vocab"] == 32_000
    assert "model.vocab=32000 follows" in printed.err


def test_a_broken_store_is_named(tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises((ValueError, ConfigError), match=r"manifest\.json is broken"):
        follow("bert_base", tmp_path)


def test_sizes_that_need_a_larger_vocabulary_keep_it(store):
    """Transformer-XL's clusters end at 2,048 ids."""
    assert follow("transformer_xl_tiny", store(600)) == (4096, [])
    assert follow("transformer_xl_tiny", store(5000))[0] == 5120


def test_a_store_in_a_bucket_is_not_asked_where_nothing_is_trained():
    run = load("bert_base", ["data.store=gs://no-such-bucket-anywhere/store"])
    assert follow_store(run, "bert_base", []) == run
