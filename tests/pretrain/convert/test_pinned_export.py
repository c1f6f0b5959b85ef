"""Every file of an export stays byte-identical: tensors, configuration and tokenizer of each family
and of each fine-tuned head.

The weights are given under their Hugging Face names (tests/given.py), so the digests do not depend
on the names of our own parameters. They pin names, shapes, layout and completeness; whether a
tensor means the same to our model is for logits to tell (test_export.py, test_import.py) and for
tests/net.py.
"""

import jax
import pytest
from safetensors.numpy import load_file

from data.objectives import AnswerSpan, CausalLm, MultipleChoice, Tagging
from models import build
from models.config.base import ImageConfig
from models.config.choice import ChoiceConfig
from models.config.gpt3 import Gpt3Config
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.convert import tokenizer
from pretrain.convert.pretrained import CONVERTERS
from pretrain.convert.read_write import find_converter, open_model, write_model
from pretrain.training.state import init_params
from tests import given
from tests.pinned import check_pinned, hash_files, make_vocabularies

HEADS = {
    "tagger": (lambda encoder: TaggerConfig(encoder=encoder, labels=("B-a", "I-a", "O"), dropout=0.0), Tagging(length=16)),
    "span_reader": (lambda encoder: SpanReaderConfig(encoder=encoder), AnswerSpan(length=32, question=4, stride=2)),
    "multiple_choice": (lambda encoder: ChoiceConfig(encoder=encoder, dropout=0.0), MultipleChoice(length=16, choices=2)),
}  # fmt: skip
# Every head on BERT; for other families one that differs from BERT's, or one without their pooler.
FINE_TUNED = [("bert", head) for head in HEADS] + [("roberta", "tagger"), ("albert", "span_reader")]
FINE_TUNED += [(name, "multiple_choice") for name in ("electra", "distilbert", "xlnet")]
FINE_TUNED += [("xlnet", "span_reader"), ("modernbert", "span_reader")]
KINDS = (
    "unigram", "bpe", "t5", "wordpiece", "byte_bpe", "word_bpe", "tokenizer_json",
    "albert_json",
)  # fmt: skip


@pytest.fixture(scope="module")
def made_vocabularies(tmp_path_factory):
    return make_vocabularies(tmp_path_factory.mktemp("vocabularies"))


@pytest.mark.parametrize("name", KINDS)
def test_tokenizer_files_are_unchanged(made_vocabularies, tmp_path, name):
    family, vocabulary = made_vocabularies[name]
    tokenizer.write_tokenizer(vocabulary, family, tmp_path, 64)
    check_pinned("tokenizer", name, hash_files(tmp_path))


@pytest.mark.held_by(4)
@pytest.mark.parametrize("name", given.MODELS)
def test_an_export_of_an_import_is_unchanged(tmp_path, name):
    opened = open_model(given.write_folder(name, tmp_path / "given"))
    run = make_starting_run(opened.config)
    params, missing, unused = opened.load_params(run.model, make_initializer(run))
    assert (missing, unused) == ((), ())
    write_model(tmp_path / "export", run.model, params, opened.vocabulary)
    before, after = (
        load_file(tmp_path / folder / "model.safetensors") for folder in ("given", "export")
    )
    assert before.keys() == after.keys() and all(
        before[key].tobytes() == after[key].tobytes() for key in before
    )
    check_pinned("export", name, hash_files(tmp_path / "export"))


def given_params(config, objective):
    """Return parameters whose export has the values of tests/given.py."""
    leaves, tree = jax.tree.flatten(
        jax.eval_shape(lambda: init_params(build(config), objective, 0))
    )
    export = find_converter(config).to_hf
    return tree.unflatten(
        given.fill_tensors(
            [leaf.shape for leaf in leaves], lambda arrays: export(config, tree.unflatten(arrays))
        )
    )


@pytest.mark.held_by(2)
@pytest.mark.parametrize(("encoder", "head"), FINE_TUNED)
def test_an_export_of_a_fine_tuned_model_is_unchanged(tmp_path, encoder, head):
    opened = open_model(given.write_folder(encoder, tmp_path / "given"))
    configure, objective = HEADS[head]
    config = configure(opened.config)
    write_model(tmp_path / "export", config, given_params(config, objective), opened.vocabulary)
    tensors = load_file(tmp_path / "export" / "model.safetensors")
    assert all(
        array.tobytes() == given.make_values(name, array.shape).tobytes()
        for name, array in tensors.items()
    )
    check_pinned("export", f"{encoder} {head}", hash_files(tmp_path / "export"))


def test_an_export_of_gpt3_is_unchanged(tmp_path):
    vocabulary = open_model(given.write_folder("gpt2", tmp_path / "given")).vocabulary
    config = Gpt3Config(
        vocab=264, length=48, width=16, depth=2, num_heads=2, mlp=24, window=48
    )  # narrower bands cannot be exported
    write_model(tmp_path / "export", config, given_params(config, CausalLm(length=32)), vocabulary)
    check_pinned("export", "gpt3", hash_files(tmp_path / "export"))


def test_every_family_is_pinned():
    """Models of images are pinned in test_images.py."""
    assert {parts[""]["config"]["model_type"] for parts in given.MODELS.values()} == {
        name for name, each in CONVERTERS.items() if not issubclass(each.family.config, ImageConfig)
    }
