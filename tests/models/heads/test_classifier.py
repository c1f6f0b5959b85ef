"""A head on each encoder: the encoder's parameters are the pretrained ones, and every new parameter
has an entry in the sharding table.
"""

import math
from functools import partial

import jax
import numpy as np
import pytest

from models import build
from models.config.albert import AlbertConfig
from models.config.bert import BertConfig
from models.config.classifier import ClassifierConfig
from models.config.distilbert import DistilBertConfig
from models.config.electra import ElectraConfig
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.gpt3 import Gpt3Config
from models.config.lstm_lm import LstmLmConfig
from models.config.roberta import RobertaConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from models.config.xlnet import XLNetConfig
from models.layers.dropout import Dropout
from models.layers.heads import ClassHead
from models.layers.layer_layout import match_layout
from pretrain.mesh.sharding import find_dimension_names, format_path

SIZES = dict(
    vocab=64, length=16, width=16, depth=2, num_heads=2, mlp=24, dropout=0.0, attention_dropout=0.0
)
ENCODERS = {
    "bert": BertConfig(**SIZES),
    "roberta": RobertaConfig(**SIZES),
    "albert": AlbertConfig(**SIZES, embedding=8),
    "electra": ElectraConfig(
        **SIZES, embedding=8, generator_width=8, generator_num_heads=2, generator_mlp=8
    ),
    "distilbert": DistilBertConfig(**SIZES, teacher_depth=None),
    "xlnet": XLNetConfig(**SIZES),
}
ACTIVATIONS = {
    "electra": lambda x: x * (0.5 + 0.5 * np.vectorize(math.erf)(x / 2**0.5)),
    "distilbert": lambda x: x * (x > 0),
    "xlnet": np.tanh,
}
IDS = np.random.default_rng(0).integers(5, 64, (3, 9)).astype(np.int32)
VALID = np.arange(9) < np.array([[9], [7], [4]])
SEGMENTS = (np.arange(9) > 3).astype(np.int32) * VALID


def draw_params(model, *inputs):
    """Return random parameters, none of them 0."""
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), *inputs))["params"]
    return jax.tree.map(lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(np.float32), shapes)


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_is_read_as_it_was_pretrained(name):
    encoder, config = (
        ENCODERS[name],
        ClassifierConfig(encoder=ENCODERS[name], labels=("a", "b", "c"), dropout=0.5),
    )
    whole, model = build(encoder), build(config)
    pretrained = draw_params(whole, IDS, VALID)
    params = draw_params(model, IDS, VALID)
    params = params | {"encoder": match_layout(pretrained, params["encoder"])}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        find_dimension_names(
            format_path(keys), leaf.shape
        )  # raises unless exactly one row of the table matches

    @jax.jit
    def apply_both(params, pretrained):
        _, pooled_BD = whole.apply(
            {"params": pretrained},
            IDS,
            VALID,
            SEGMENTS if encoder.segments > 1 else None,
            method="encode",
        )
        return model.apply({"params": params}, IDS, VALID, SEGMENTS), pooled_BD

    logits_BC, x_BD = jax.device_get(apply_both(params, pretrained))
    head = params["classifier"]
    if name in ACTIVATIONS:
        h_BD = x_BD @ head["transform"]["kernel"] + head["transform"]["bias"]
        x_BD, head = ACTIVATIONS[name](h_BD), head["scores"]
    np.testing.assert_allclose(
        logits_BC, x_BD @ head["out"]["kernel"] + head["out"]["bias"], atol=1e-5
    )
    assert logits_BC.shape == (3, 3) and logits_BC.dtype == np.float32


DECODERS = {
    "gpt": GptConfig(**SIZES),
    "gpt2": Gpt2Config(**SIZES),
    "gpt3": Gpt3Config(**SIZES, window=4),
    "lstm": LstmLmConfig(vocab=64, width=16, depth=2, dropout=0.0),
}


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_is_read_at_its_last_token(name):
    """The head has no bias, and neither padding nor its ids change the score."""
    decoder = DECODERS[name]
    config = ClassifierConfig(encoder=decoder, labels=("a", "b", "c"), dropout=0.5)
    whole, model = build(decoder), build(config)
    pretrained = draw_params(whole, IDS)
    params = draw_params(model, IDS, VALID)
    params = params | {"encoder": match_layout(pretrained, params["encoder"])}
    assert params["classifier"]["out"].keys() == {"kernel"}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        find_dimension_names(format_path(keys), leaf.shape)
    score = jax.jit(lambda ids: model.apply({"params": params}, ids, VALID, SEGMENTS))
    found_BC = jax.device_get(score(IDS))
    read = jax.jit(partial(whole.apply, method="compute_states"))
    for row, length in enumerate(VALID.sum(axis=1)):
        alone = np.zeros((1, 9), np.int32)  # what follows a token is not read
        alone[0, :length] = IDS[row, :length]
        states = np.array(read({"params": pretrained}, alone))
        expected_C = states[0, length - 1] @ params["classifier"]["out"]["kernel"]
        np.testing.assert_allclose(found_BC[row], expected_C, atol=1e-5)
    np.testing.assert_array_equal(found_BC, score(np.where(VALID, IDS, 7)))


def test_a_decoder_scores_no_single_token():
    for kind, what in ((TaggerConfig, "a tag"), (SpanReaderConfig, "an answer")):
        with pytest.raises(
            ValueError, match=f"a Gpt2Config reads from left to right: {what} at a token would not"
        ):
            kind(encoder=Gpt2Config(**SIZES))


def test_the_head_drops_what_it_reads():
    model = ClassHead(3, partial(Dropout, 0.5))
    params = draw_params(model, np.zeros((2, 8), np.float32))
    x_BD = np.ones((2, 8), np.float32)
    learn = jax.jit(
        lambda i: model.apply({"params": params}, x_BD, True, rngs={"dropout": jax.random.key(i)})
    )
    learning = [learn(i) for i in (1, 1, 2)]
    assert np.array_equal(learning[0], learning[1]) and not np.allclose(learning[0], learning[2])
    np.testing.assert_allclose(
        jax.jit(model.apply)({"params": params}, x_BD),
        x_BD @ params["out"]["kernel"] + params["out"]["bias"],
        atol=1e-5,
    )


def test_labels_are_several_or_none():
    for labels in (("a",), ("a", "b", "a")):
        with pytest.raises(
            ValueError, match="there must be at least two, all different, or none for a regression"
        ):
            ClassifierConfig(labels=labels)
    assert ClassifierConfig(labels=()).num_outputs == 1
