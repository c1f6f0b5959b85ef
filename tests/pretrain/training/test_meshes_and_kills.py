"""Each way to train: the same parameters and state on meshes and with micro-batches, and the same bits
after a kill.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from data.images.captioned_store import CaptionRequest, write_captioned_store
from data.images.codebook import Grid
from data.images.image_store import ImageRequest, write_image_store
from data.objectives import CausalLm, MaskedLm, PartitionedFields, PermutationLm
from data.objectives.image_classification import ImageClassification
from data.objectives.masked_patches import MaskedPatches
from data.objectives.words_and_pictures import WordsAndPictures
from data.pipeline import Stream
from models.config.bert import BertConfig
from models.config.deit import DeitConfig
from models.config.gpt2 import Gpt2Config
from models.config.linformer import LinformerConfig
from models.config.lstm_lm import LstmLmConfig
from models.config.modernbert_decoder import ModernBertDecoderConfig
from models.config.music_transformer import MusicTransformerConfig
from models.config.reformer import Hashing, LocalChunks, ReformerConfig
from models.config.sparse_transformer import SparseTransformerConfig
from models.config.transformer_xl import Clusters, TransformerXLConfig
from models.config.vit import VitConfig
from models.config.xlnet import XLNetConfig
from tests.article_store import prepare_articles
from tests.captioned_images import TINY_MODEL, write_captioned_images
from tests.image_files import write_class_folders
from tests.pretrain.training.recurrent_runs import check_killed_run, make_run, run_steps
from tests.pretrain.training.test_elmo import make_elmo_run, write_words

LANES = CausalLm(length=6, order="lanes", separate_documents=True)
PERMUTED = PermutationLm(length=12, partial=3, rows="windows", order="lanes")
IMAGES = ImageClassification(size=16, num_ops=1, erase_rate=0.2, mixup=0.8, cutmix=1.0)
SIZES = dict(vocab=256, width=16, depth=2, num_heads=2, mlp=32, dropout=0.1)
VIT = dict(image_size=16, patch_size=4, width=16, depth=2, num_heads=2, mlp=32, classes=3)
REFORMER = ReformerConfig(
    **dict(**SIZES, head_width=4, layers=("local", "lsh"), axial_shape=(4, 5)),
    hashing=Hashing(chunk=4, rounds=2, dropout=0.1),
    local=LocalChunks(chunk=4, dropout=0.1),
    axial_widths=(8, 8),
)
# Name: model, objective, store.
WAYS = {
    "lstm_lm": (LstmLmConfig(vocab=256, width=16, depth=2, dropout=0.1), LANES, "t5"),
    "transformer_xl": (
        TransformerXLConfig(**SIZES, head_width=4, memory=9, clusters=Clusters((32, 64), 2)),
        *(LANES, "t5"),
    ),
    "xlnet": (XLNetConfig(**SIZES, attention_dropout=0.0, memory=9), PERMUTED, "bert"),
    "vit": (VitConfig(**VIT, path_dropout=0.1), IMAGES, "images"),
    "deit": (DeitConfig(**VIT), IMAGES, "images"),
    "masked_patches": (
        VitConfig(**VIT, pooling="patches", dropout=0.1),
        *(MaskedPatches(size=16, patch_size=4), "images"),
    ),
    "partitioned_fields": (
        Gpt2Config(**SIZES | dict(vocab=312, length=64, num_heads=8)),
        *(PartitionedFields(length=40), "articles"),
    ),
    "words_and_pictures": (
        BertConfig(vocab=64, length=32, **TINY_MODEL),
        *(WordsAndPictures(length=32, max_predictions=16), "captions"),
    ),
    "linformer": (
        LinformerConfig(**SIZES, length=18, rank=4),
        *(MaskedLm(length=18, max_predictions=4, rows="documents"), "bert"),
    ),
    "modernbert_decoder": (
        ModernBertDecoderConfig(**SIZES | dict(depth=3), length=18, global_every=2, window=8),
        *(CausalLm(length=18), "t5"),
    ),
    "music_transformer": (
        MusicTransformerConfig(**SIZES, head_width=4, max_distance=6),
        *(CausalLm(length=18), "t5"),
    ),
    "reformer": (REFORMER, CausalLm(length=18), "t5"),
    "sparse_transformer": (
        SparseTransformerConfig(**SIZES, length=18, stride=4, summary=2, subblocks=1),
        *(CausalLm(length=18), "t5"),
    ),
}
# A kill of these only with CLOZE_BOARD=whole: the others have each kind of store and of state.
LIKE_OTHERS = ("linformer", "lstm_lm", "masked_patches", "modernbert_decoder", "music_transformer")
LIKE_OTHERS += ("sparse_transformer", "transformer_xl")
# Meshes of these are tested by test_step.py, without a state.
LONG_ROWS = ("linformer", "modernbert_decoder", "music_transformer", "reformer")
LONG_ROWS += ("sparse_transformer",)


@pytest.fixture(scope="module")
def find_run(stores, tmp_path_factory):
    """Return find_run(name): (a run of `WAYS` or of ELMo, its stream)."""
    root = tmp_path_factory.mktemp("stores")

    @functools.cache
    def write_store(name):
        if name == "articles":
            (root / name).mkdir()
            return prepare_articles(root / name)
        if name == "words":
            return write_words(root / name)
        pictures, folder = root / f"{name} read", root / name
        if name == "images":
            write_class_folders(pictures, count=40)
            return write_image_store(ImageRequest((str(pictures),), held_out=0.2), folder)
        write_captioned_images(pictures)
        request = CaptionRequest(str(pictures), Grid(16, 4, 1), clusters=24, held_out=0.2)
        return write_captioned_store(request, folder)

    def find(name):
        model, objective, kind = WAYS.get(name, (None, None, "words"))
        store = stores[kind] if kind in stores else write_store(kind)
        if name == "elmo":
            return make_elmo_run(store), Stream(store, make_elmo_run(store).data, seed=0)
        samples = {"xlnet": 1, "words_and_pictures": 2}.get(name, 0)
        run = make_run(model, objective, store.path, samples)
        return run, Stream(store, run.data, seed=0)

    return find


def check_state(name, variables):
    """Check that what is carried was written, where a model carries something."""
    if name == "elmo":
        layers = variables["carry"]["bilm"]
        names = {f"{way}_layer_{i}" for way in ("forward", "backward") for i in range(2)}
        assert {*layers} == names
        assert all(layer["cells"].shape == (8, 16) for layer in layers.values())
        assert min(np.abs(layer["output"]).max() for layer in layers.values()) > 1e-4
    elif name == "lstm_lm":
        layers = variables["carry"]["decoder"]["layers"]
        assert layers["cells"].shape == layers["output"].shape == (8, 2, 16)
        assert np.abs(layers["cells"]).max() > 0.01
    elif name in ("transformer_xl", "xlnet"):
        memory = variables["segment_memory"]
        (stack,) = memory.keys() & {"encoder", "decoder"}
        states = memory[stack]["layers"]["attention"]["states"]
        assert states.shape == (8, 2, 9, 16) and np.abs(states).max() > 0.1
        if name == "transformer_xl":
            assert memory["is_readable"].any() and not memory["is_readable"].all()
    else:
        assert not variables


@pytest.fixture(scope="module")
def run_alone(find_run):
    """Return run_alone(name): (run without dropout of any kind, stream, state on one device)."""

    @functools.cache
    def train(name):
        run, stream = find_run(name)
        changes = {"path_dropout": 0.0} if name in ("vit", "deit") else {}
        changes |= {"attention_dropout": 0.0} if name == "partitioned_fields" else {}
        run = dataclasses.replace(run, model=dataclasses.replace(run.model, **changes))
        state = run_steps(run, stream)
        check_state(name, state.variables)
        return run, stream, state

    return train


# test_state_variables.py holds the promise of a model with a state.
@pytest.mark.held_by("vit-split")
@pytest.mark.parametrize(
    ("mesh", "microbatches"),
    [({"data": 8}, 1), ({"data": 2, "fsdp": 2, "model": 2}, 1), (None, 4)],
    ids=["rows", "split", "parts"],
)
@pytest.mark.parametrize("name", ["elmo", *(name for name in WAYS if name not in LONG_ROWS)])
def test_meshes_and_micro_batches_keep_the_same(name, mesh, microbatches, run_alone):
    run, stream, alone = run_alone(name)
    found = run_steps(run, stream, mesh, microbatches)
    tolerance = {"elmo": 1e-5, "lstm_lm": 1e-5, "transformer_xl": 1e-5, "xlnet": 2e-5}
    tolerance |= {"partitioned_fields": 2e-5}
    leaves = (jax.tree.leaves((state.params, state.variables)) for state in (alone, found))
    for a, b in zip(*leaves, strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance.get(name, 2e-6), rtol=0)


@pytest.mark.more  # test_state_variables.py kills a run with a state in each tier
@pytest.mark.parametrize("name", ["elmo", *(name for name in WAYS if name != "deit")])
def test_a_run_that_is_killed_ends_with_the_same_bits(request, name, find_run, tmp_path):
    if name in LIKE_OTHERS:
        request.getfixturevalue("whole")
    run, _ = find_run(name)
    if name == "elmo":
        run = dataclasses.replace(run, model=dataclasses.replace(run.model, samples=7))
    check_killed_run(run, tmp_path)
