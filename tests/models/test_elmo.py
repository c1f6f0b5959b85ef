"""ELMo as in its paper: published sizes, an independent computation, the state, mix and samples."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.activations import capture_activations
from models.config.elmo import ElmoConfig
from models.elmo import init_characters
from models.layers.cache import CARRY
from models.layers.layer_layout import unflatten_params
from pretrain.convert.hdf5_folder import open_hdf5_model
from pretrain.families import FAMILIES
from tests import elmo_numpy

SENTENCES = ["<S> the cat sat . </S>".split(), "<S> überlongwordwithmanybytes </S>".split()]
WIDTH = elmo_numpy.OPTIONS["char_cnn"]["max_characters_per_token"]
TARGETS = 40


@pytest.fixture(scope="module")
def datasets():
    return elmo_numpy.make_datasets()


@pytest.fixture(scope="module")
def config():
    fields = FAMILIES["elmo"].hdf5.read_options(elmo_numpy.OPTIONS)
    return ElmoConfig(vocab=TARGETS, dropout=0.0, **fields)


@pytest.fixture(scope="module")
def model(config):
    return build(config)


@pytest.fixture(scope="module")
def params(config, datasets):
    """Return the parameters of the datasets; the others are random."""
    rng, given = np.random.default_rng(1), FAMILIES["elmo"].hdf5.fill_params(config, datasets)
    others = {
        "mix/weights": rng.standard_normal(3),
        "mix/scale": rng.standard_normal(()),
        "lm_head/bias": rng.standard_normal(TARGETS),
        "target_embedding/embedding": rng.standard_normal((TARGETS, config.width)),
    }
    return unflatten_params({name: np.float32(leaf) for name, leaf in (given | others).items()})


def lay_out(sentences, length):
    """Return the characters [B, L, C] of sentences, 0 after them, and their mask."""
    characters = np.zeros((len(sentences), length, WIDTH), np.int32)
    mask = np.zeros((len(sentences), length), bool)
    for b, words in enumerate(sentences):
        characters[b, : len(words)] = [elmo_numpy.spell(word, WIDTH) for word in words]
        mask[b, : len(words)] = True
    return characters, mask


def log_softmax(scores):
    """Return the logarithms of the probabilities in float64."""
    scores = np.float64(scores)
    largest = scores.max(axis=-1, keepdims=True)
    return scores - largest - np.log(np.exp(scores - largest).sum(axis=-1, keepdims=True))


# ---- sizes -----------------------------------------------------------------------


# ---- an independent computation --------------------------------------------------


def test_layers_and_mix_are_those_of_numpy(model, params, datasets):
    """Of sentences of two lengths, with a word that is longer than what is read of it."""
    characters, mask = lay_out(SENTENCES, 8)
    seen = jax.jit(partial(capture_activations, model, method="encode"))(params, characters, mask)
    mixed, mean = seen.output
    weights = np.exp(np.float64(params["mix"]["weights"]))
    shares = weights / weights.sum() * params["mix"]["scale"]
    clipped = 0
    for b, words in enumerate(SENTENCES):
        layers, (states, _) = elmo_numpy.read_sentence(words, datasets)
        clipped += sum((np.abs(c) == 3).sum() for c, _ in states)
        for found, expected in zip(seen.hidden_states, layers, strict=True):
            np.testing.assert_allclose(found[b, : len(words)], expected, atol=2e-5)
        expected = np.tensordot(shares, layers, 1)
        np.testing.assert_allclose(mixed[b, : len(words)], expected, atol=2e-5)
        np.testing.assert_allclose(mean[b], expected[1:-1].mean(axis=0), atol=2e-5)
    assert clipped


def test_states_are_carried_in_both_directions(model, params, datasets):
    """Each direction begins where the same one ended in the row before, as the released code."""
    first, second = SENTENCES
    (_, states) = elmo_numpy.read_sentence(first, datasets)
    layers, _ = elmo_numpy.read_sentence(second, datasets, states=states)
    read = jax.jit(partial(model.apply, method="encode", mutable=[CARRY, "intermediates"]))
    characters, mask = lay_out([first], 8)
    _, behind = read({"params": params}, characters, mask)
    characters, mask = lay_out([second], 3)
    _, seen = read({"params": params, CARRY: behind[CARRY]}, characters, mask)
    for found, expected in zip(
        seen["intermediates"]["bilm"]["hidden_states"][0], layers, strict=True
    ):
        np.testing.assert_allclose(np.array(found)[0], expected, atol=2e-5)


def test_logits_of_both_directions(model, params, datasets):
    """The backward direction reads a row of its own from the end, and shares the softmax."""
    characters, _ = lay_out([SENTENCES[0]], 6)
    other = characters[:, [0, 3, 1, 4, 2, 5]]
    forward, backward, _ = jax.jit(model.apply)({"params": params}, characters, other)
    words = [SENTENCES[0][i] for i in (0, 3, 1, 4, 2, 5)]
    D, table = model.config.width, np.float64(params["target_embedding"]["embedding"])
    for found, sentence, half in (
        (forward, SENTENCES[0], slice(0, D)),
        (backward, words, slice(D, 2 * D)),
    ):
        layers, _ = elmo_numpy.read_sentence(sentence, datasets)
        expected = layers[-1][:, half] @ table.T + params["lm_head"]["bias"]
        np.testing.assert_allclose(np.array(found)[0], expected, atol=2e-5)


# ---- targets ---------------------------------------------------------------------


def test_words_without_a_target_count_as_unknown(model, params):
    characters, _ = lay_out([SENTENCES[0]], 6)
    labels = np.array([[0, 39, 40, 41, 10**6, 5]])
    read = jax.jit(partial(model.apply, method="compute_states"))
    states = read({"params": params}, characters, characters, labels, labels[:, ::-1])
    assert states.forward_labels_BL.tolist() == [[0, 39, 1, 1, 1, 5]]
    assert states.backward_labels_BL.tolist() == [[5, 1, 1, 1, 39, 0]]
    assert states.forward_scores is None


def test_a_softmax_of_many_samples_is_that_of_all_targets(config, params):
    """All words are among so many draws; few samples are far from it."""
    characters, _ = lay_out([SENTENCES[0]], 6)
    labels = np.array([[0, 39, 4, 2, 17, 5]])

    @partial(jax.jit, static_argnums=(1, 2))
    def read(params, samples, train):
        return build(dataclasses.replace(config, samples=samples)).apply(
            {"params": params},
            *(characters, characters, labels, labels),
            train=train,
            rngs={"dropout": jax.random.key(3)},
            method="compute_states",
        )

    logits, _, _ = jax.jit(build(config).apply)({"params": params}, characters)
    scores_V = log_softmax(logits)
    expected = np.take_along_axis(np.asarray(scores_V), labels[..., None], -1)[..., 0]
    many = log_softmax(read(params, 200_000, True).forward_scores)[..., 0]
    np.testing.assert_allclose(many, expected, atol=1e-3)
    few = log_softmax(read(params, 3, True).forward_scores)[..., 0]
    assert np.abs(few - expected).max() > 0.1
    assert read(params, 3, False).forward_scores is None


def test_samples_teach_the_probabilities_of_all_targets(config, params):
    """Where the logits are the true probabilities, the mean gradient of the sampled loss is 0
    within 10 % of each probability, also of rare words; half a nat away it is not.
    """
    V = 8
    model = build(dataclasses.replace(config, vocab=V, samples=3))
    true_V = jax.nn.softmax(jnp.linspace(2.0, -2.0, V))
    table = {"embedding": jnp.zeros((V, config.width))}

    def compute_loss(bias_V, key):
        variables = params | {"target_embedding": table, "lm_head": {"bias": bias_V}}
        x_BLD, labels = jnp.zeros((1, V, config.width)), jnp.arange(V)[None]
        scores = model.apply(
            {"params": variables}, x_BLD, labels, rngs={"dropout": key}, method="score_samples"
        )
        return -(true_V * jax.nn.log_softmax(scores)[0, :, 0]).sum()

    keys = jax.random.split(jax.random.key(0), 20_000)
    gradient = jax.jit(jax.vmap(jax.grad(compute_loss), in_axes=(None, 0)))
    bias_V = jnp.log(true_V)
    assert np.abs(gradient(bias_V, keys).mean(axis=0) / true_V).max() < 0.1
    for word in (0, V - 1):
        other = gradient(bias_V.at[word].add(0.5), keys).mean(axis=0) / true_V
        assert other[word] > 0.15


# ---- configurations --------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"character_filters": ((2, 3), (2, 4))}, "each window once"),
        ({"character_filters": ()}, "pairs of a window and a number"),
        ({"characters": 6}, "a window of 7 is wider than the 6 characters"),
        ({"clip": 0.0}, "clip is 0.0; it must be positive"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ElmoConfig(**change)


def test_only_the_mix_is_learned_unless_asked(config):
    frozen = config.as_encoder().frozen_params
    assert frozen == ("words/", "bilm/") and not config.frozen_params


def test_representations_of_a_frozen_model_have_no_dropout(config, params):
    """In training too (Peters et al. 2018, section 3.3): what drops is the head that reads them."""
    encoder = build(dataclasses.replace(config, dropout=0.5).as_encoder())
    characters, mask = lay_out(SENTENCES, 6)

    @jax.jit
    def encode(seed):
        return encoder.apply(
            {"params": params},
            *(characters, mask, None),
            train=True,
            method="encode",
            rngs={"dropout": jax.random.key(seed)},
        )[0]

    np.testing.assert_array_equal(encode(0), encode(1))


def test_characters_begin_on_both_sides_of_0():
    drawn = np.array(jax.jit(lambda: init_characters(jax.random.key(0), (261, 16)))())
    assert -1 <= drawn.min() < -0.99 and 0.99 < drawn.max() <= 1 and abs(drawn.mean()) < 0.05


# ---- the released file -----------------------------------------------------------


def test_published_outputs(corpora):
    """The tiny checkpoint of the released code, whose outputs are of batches of three sentences
    with the states between them.
    """
    import json

    import h5py

    folder = corpora / "golden_elmo_bilm" / "model"
    opened = open_hdf5_model(folder)
    model = build(opened.config)
    characters = np.ones((1, 2, 50), np.int32)
    init = partial(model.init, jax.random.key(0), characters)
    params, missing, _ = opened.load_params(opened.config, lambda: init()["params"])
    assert set(missing) == {
        *("lm_head/bias", "target_embedding/embedding", "mix/scale", "mix/weights")
    }
    read = jax.jit(partial(model.apply, method="encode", mutable=[CARRY, "intermediates"]))
    sentences = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    state, difference, largest = {}, 0.0, 0.0
    with (
        h5py.File(folder / "lm_embeddings_0.hdf5") as first,
        h5py.File(folder / "lm_embeddings_1.hdf5") as second,
        h5py.File(folder / "lm_embeddings_2.hdf5") as third,
    ):
        for i in range(10):
            rows = [["<S>", *part[i].split(), "</S>"] for part in sentences]
            characters = np.zeros((3, 64, 50), np.int32)
            for b, row in enumerate(rows):
                characters[b, : len(row)] = [elmo_numpy.spell(word, 50) for word in row]
            _, seen = read({"params": params} | state, characters, characters[..., 0] > 0)
            state = {CARRY: seen[CARRY]}
            top = np.asarray(seen["intermediates"]["bilm"]["hidden_states"][0][-1])
            for b, file in enumerate((first, second, third)):
                expected = np.concatenate(np.asarray(file[str(i)]), axis=-1)
                found = top[b, 1 : len(expected) + 1]
                assert len(expected) == len(rows[b]) - 2
                difference = max(difference, np.abs(found - expected).max())
                largest = max(largest, np.abs(expected).max())
    assert difference < 1e-5 < largest
