"""Encoders of words against torch, NumPy and the published hash: averages, convolutions over words
and recurrent networks. Special tokens and padding are never read.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.classifier import ClassifierConfig
from models.config.deep_averaging import DeepAveragingConfig
from models.config.recurrent_encoder import RecurrentEncoderConfig
from models.config.textcnn import TextCnnConfig
from models.deep_averaging import hash_bytes, hash_ngrams
from models.layers.layer_layout import flatten_params

PAD, CLS, SEP = 0, 2, 3
LENGTHS = (9, 5, 1)  # words of each row
ROWS = [np.random.default_rng(row).integers(4, 50, n) for row, n in enumerate(LENGTHS)]
CONFIGS = {
    "mean": DeepAveragingConfig(vocab=50, width=6, depth=2, hidden=8, activation="tanh"),
    "sum": DeepAveragingConfig(vocab=50, width=6, depth=0, combine="sum"),
    "ngrams": DeepAveragingConfig(vocab=50, width=6, depth=1, hidden=8, ngrams=3, buckets=37),
    "cnn": TextCnnConfig(vocab=50, width=6, windows=(2, 3, 4), filters=5),
    "tdnn": TextCnnConfig(vocab=50, width=6, depth=2, windows=(3,), filters=5, activation="tanh", pooling="mean"),
    "elman": RecurrentEncoderConfig(vocab=50, width=6, cell="elman", cells=5, depth=2),
    "lstm": RecurrentEncoderConfig(vocab=50, width=6, cells=5, pooling="max"),
    "bilstm": RecurrentEncoderConfig(vocab=50, width=6, cells=5, depth=2, bidirectional=True),
    "bielman": RecurrentEncoderConfig(vocab=50, width=6, cell="elman", cells=5, bidirectional=True, pooling="mean"),
}  # fmt: skip


def frame_rows(rows, length):
    """Return ids and mask of `[CLS] words [SEP]` with padding."""
    ids = np.full((len(rows), length), PAD, np.int32)
    for row, words in enumerate(rows):
        ids[row, : len(words) + 2] = [CLS, *words, SEP]
    return ids, ids != PAD


@functools.cache
def make_encoder(name):
    """Return (module, random parameters, none of them 0)."""
    model = build(CONFIGS[name])
    ids, mask = frame_rows(ROWS, 12)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), ids, mask))["params"]
    rng = np.random.default_rng(1)
    return model, jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(0, 0.4, leaf.shape), jnp.float32), shapes
    )


@functools.cache
def compile_encoder(name):
    model, params = make_encoder(name)
    return jax.jit(lambda ids, mask: model.apply({"params": params}, ids, mask))


def encode(name, rows, length=12):
    return jax.device_get(compile_encoder(name)(*frame_rows(rows, length)))


# ---- oracles -------------------------------------------------------------------


def hash_in_python(text):
    """Return FNV-1a as its authors publish it."""
    hashed = 2166136261
    for byte in text:
        hashed = (hashed ^ byte) * 16777619 % 2**32
    return hashed


def find_in_python(words, c):
    """Return the buckets of a text's n-grams."""
    return [
        hash_in_python(b"".join(int(word).to_bytes(4, "little") for word in words[i : i + n]))
        % c.buckets
        for n in range(2, c.ngrams + 1)
        for i in range(len(words) - n + 1)
    ]


def average_in_torch(c, params, words):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    bag = torch.nn.EmbeddingBag.from_pretrained(
        torch.tensor(params["embeddings/token_embedding/embedding"]), mode="sum"
    )
    z, count = bag(torch.tensor(words)[None])[0].numpy(), len(words)
    for bucket in find_in_python(words, c):
        z, count = z + params["ngram_embedding/embedding"][bucket], count + 1
    z = z / count if c.combine == "mean" else z
    for i in range(c.depth):
        z = z @ params[f"layer_{i}/kernel"] + params[f"layer_{i}/bias"]
        z = np.tanh(z) if c.activation == "tanh" else np.maximum(z, 0)
    return z


def convolve_in_torch(c, params, words):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    f = torch.tanh if c.activation == "tanh" else torch.relu
    x = torch.tensor(params["embeddings/token_embedding/embedding"][words]).T[None]  # [1, D, L]
    for i in range(c.depth):
        maps = []
        for h in c.windows:
            kernel = torch.tensor(params[f"layer_{i}/window_{h}/kernel"]).permute(2, 1, 0)
            bias = torch.tensor(params[f"layer_{i}/window_{h}/bias"])
            maps.append(f(torch.nn.functional.conv1d(x, kernel, bias, padding=h - 1))[0])
        if i + 1 < c.depth:  # odd windows: those around each word
            x = torch.cat([m[:, (h - 1) // 2 :][:, : len(words)] for m, h in zip(maps, c.windows)])
            x = x[None]
    pool = (lambda m: m.amax(1)) if c.pooling == "max" else (lambda m: m.mean(1))
    return torch.cat([pool(m) for m in maps]).numpy()


def recur_in_torch(c, params, words):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    kind = torch.nn.LSTM if c.cell == "lstm" else torch.nn.RNN
    net = kind(c.width, c.cells, c.depth, bidirectional=c.bidirectional, batch_first=True)
    with torch.no_grad():
        for i in range(c.depth):
            for side, end in (("forward", ""), ("backward", "_reverse"))[: 1 + c.bidirectional]:
                for ours, theirs in (("input", "ih"), ("recurrent", "hh")):
                    kernel = torch.tensor(params[f"layer_{i}/{side}/{ours}/kernel"]).T
                    getattr(net, f"weight_{theirs}_l{i}{end}").copy_(kernel)
                bias = torch.tensor(params[f"layer_{i}/{side}/input/bias"])
                getattr(net, f"bias_ih_l{i}{end}").copy_(bias)
                getattr(net, f"bias_hh_l{i}{end}").zero_()
        x = torch.tensor(params["embeddings/token_embedding/embedding"][words])[None]
        outputs, last = net(x)
    last = last[0] if c.cell == "lstm" else last
    sides = 1 + c.bidirectional
    pooled = {
        "last": torch.cat([*last[-sides:, 0]]),
        "mean": outputs[0].mean(0),
        "max": outputs[0].amax(0),
    }
    return pooled[c.pooling].numpy()


@pytest.mark.more
@pytest.mark.parametrize("name", CONFIGS)
def test_a_row_is_that_of_torch(name):
    c = CONFIGS[name]
    kinds = {DeepAveragingConfig: average_in_torch, TextCnnConfig: convolve_in_torch}
    compute = kinds.get(type(c), recur_in_torch)
    params = {key: np.asarray(leaf) for key, leaf in flatten_params(make_encoder(name)[1]).items()}
    _, pooled = encode(name, ROWS)
    for found, words in zip(pooled, ROWS, strict=True):
        np.testing.assert_allclose(found, compute(c, params, words), atol=2e-6)


def test_the_hash_is_the_published_one():
    """Test vectors of the authors' page (RFC 9923, appendix C)."""
    for text, expected in ((b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)):
        found = jax.jit(hash_bytes)(np.frombuffer(text, np.uint8))
        assert int(found) == expected == hash_in_python(text)


def test_ngrams_do_not_cross_what_is_not_a_word():
    ids = jnp.asarray([[7, 8, 9, 8, 9]])
    is_word = jnp.asarray([[True, True, False, True, True]])
    find = jax.jit(hash_ngrams, static_argnums=(2, 3))
    bucket, is_read = find(ids, is_word, 3, 1000)
    assert is_read.tolist() == [[True, False, False, True, False] + [False] * 5]
    assert bucket[0, 0] == hash_in_python(bytes([7, 0, 0, 0, 8, 0, 0, 0])) % 1000
    large = jnp.asarray([[70_000, 8]])  # all bytes of an id count
    expected = hash_in_python((70_000).to_bytes(4, "little") + (8).to_bytes(4, "little")) % 1000
    assert find(large, jnp.ones((1, 2), bool), 2, 1000)[0][0, 0] == expected


# ---- promises ------------------------------------------------------------------


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", CONFIGS)
def test_padding_and_special_tokens_are_never_read(name):
    """Rows are the same alone, with less and more padding, with other ids in it, and without [CLS]."""
    apply = compile_encoder(name)
    states, pooled = encode(name, ROWS)
    for row, words in enumerate(ROWS):
        alone_states, (alone,) = encode(name, [words], 11)  # 0, 4 and 8 positions of padding
        np.testing.assert_allclose(pooled[row], alone, atol=1e-6)
        np.testing.assert_allclose(
            states[row, 1:][: len(words)], alone_states[0, 1:][: len(words)], atol=1e-6
        )
    ids, mask = frame_rows(ROWS, 12)
    noisy = np.where(mask, ids, 17).astype(np.int32)
    np.testing.assert_array_equal(apply(noisy, mask)[1], pooled)
    words = ROWS[0][None].astype(np.int32)
    (bare,) = np.array(apply(words, np.ones_like(words, bool))[1])
    np.testing.assert_allclose(bare, pooled[0], atol=1e-6)


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", CONFIGS)
def test_each_word_counts_and_a_row_without_words_is_finite(name):
    _, pooled = encode(name, ROWS)
    for position in range(LENGTHS[1]):
        changed = [ROWS[0], ROWS[1].copy(), ROWS[2]]
        changed[1][position] = 4 + (changed[1][position] + 3) % 46
        difference = np.abs(encode(name, changed)[1] - pooled).max(-1)
        assert difference[1] > 1e-4 and not difference[[0, 2]].any()
    assert np.isfinite(encode(name, [np.array([], int)], 12)[1]).all()


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_reach_every_parameter_in_their_own_dtype(name):
    model, params = make_encoder(name)
    ids, mask = frame_rows(ROWS, 12)

    def compute_loss(params):
        return jnp.square(model.apply({"params": params}, ids, mask)[1].astype(jnp.float32)).sum()

    grads = jax.device_get(jax.jit(jax.grad(compute_loss))(params))
    assert min(float(abs(leaf).max()) for leaf in jax.tree.leaves(grads)) > 1e-5
    half = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), params)
    with jax.numpy_dtype_promotion("strict"):
        found, grads = jax.eval_shape(
            lambda params: (
                model.apply({"params": params}, ids, mask),
                jax.grad(compute_loss)(params),
            ),
            half,
        )
    assert {leaf.dtype for leaf in jax.tree.leaves((found, grads))} == {jnp.dtype(jnp.bfloat16)}


def test_words_are_left_out_in_training_and_the_others_averaged():
    """Section 3.1 of Iyyer et al.: each average is of a subset; about a third are left out."""
    c = dataclasses.replace(CONFIGS["mean"], depth=0, width=64, word_dropout=0.3)
    ids, mask = frame_rows([np.arange(4, 24)] * 200, 22)
    model, table = build(c), np.random.default_rng(0).normal(size=(50, 64)).astype(np.float32)
    params = {"embeddings": {"token_embedding": {"embedding": jnp.asarray(table)}}}
    run = jax.jit(model.apply, static_argnames="train")
    _, pooled = run({"params": params}, ids, mask, train=True, rngs={"dropout": jax.random.key(0)})
    # The weights of 20 independent words follow from their average.
    weights = np.linalg.lstsq(table[4:24].T, np.asarray(pooled).T, rcond=None)[0].T
    left = weights > 1e-3
    np.testing.assert_allclose(weights, left / left.sum(1, keepdims=True), atol=1e-4)
    assert abs(left.mean() - 0.7) < 0.03
    _, calm = run({"params": params}, ids, mask)
    np.testing.assert_allclose(np.array(calm)[0], table[4:24].mean(0), atol=1e-5)


@pytest.mark.parametrize("channels", ["static", "non-static", "multichannel"])
def test_static_channels_are_the_frozen_ones(channels):
    """Filters that are applied to both channels and added, as Kim's, read the sum of both."""
    c = dataclasses.replace(CONFIGS["cnn"], channels=channels)
    model, (ids, mask) = build(c), frame_rows(ROWS, 12)
    params = jax.device_get(jax.jit(model.init)(jax.random.key(0), ids, mask)["params"])
    tables = params["embeddings"]
    names = {"static": {"static_embedding"}, "non-static": {"token_embedding"}}
    assert tables.keys() == names.get(channels, {"static_embedding", "token_embedding"})
    whole = sum(table["embedding"] for table in tables.values())
    assert (
        abs(whole).max() <= 0.25 * len(tables)
        and abs(tables[min(tables)]["embedding"]).max() > 0.24
    )
    one = params | {"embeddings": {"token_embedding": {"embedding": whole}}}
    run = jax.jit(
        lambda model, params: model.apply({"params": params}, ids, mask)[1], static_argnums=0
    )
    expected = run(build(CONFIGS["cnn"]), one)
    np.testing.assert_allclose(run(model, params), expected, atol=1e-6)
    frozen = ClassifierConfig(encoder=c).frozen_params
    paths = [f"encoder/{path}" for path in flatten_params(params)]
    static = [path for path in paths if path.startswith(frozen)] if frozen else []
    assert static == [path for path in paths if "static_embedding" in path]


# ---- sizes ---------------------------------------------------------------------


def count(config):
    """Return the number of parameters without the word embeddings."""
    shapes = jax.eval_shape(lambda: build(config).init(jax.random.key(0), *frame_rows(ROWS, 12)))[
        "params"
    ]
    return sum(
        leaf.size for path, leaf in flatten_params(shapes).items() if "embeddings" not in path
    )


def test_sizes():
    """The LSTM is Tai et al.'s (2015, table 1): 315,840, with a second bias of each gate."""
    assert count(RecurrentEncoderConfig(vocab=50)) == 315_840 - 4 * 168
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    assert sum(p.numel() for p in torch.nn.LSTM(300, 168).parameters()) == 315_840
    assert count(TextCnnConfig(vocab=50)) == (3 + 4 + 5) * 300 * 100 + 300
    assert count(DeepAveragingConfig(vocab=50)) == 3 * (300 * 300 + 300)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (TextCnnConfig, {"windows": (3, 3)}, "windows are .* all different"),
        (TextCnnConfig, {"windows": ()}, "at least one"),
        (TextCnnConfig, {"depth": 0}, "depth is 0; it must be at least 1"),
        (RecurrentEncoderConfig, {"depth": 0}, "depth is 0; it must be at least 1"),
        (DeepAveragingConfig, {"depth": -1}, "depth is -1; it must be at least 0"),
        (DeepAveragingConfig, {"ngrams": 0}, "ngrams is 0; it must be at least 1"),
    ],
)
def test_sizes_that_are_not_possible_are_refused(kind, fields, message):
    with pytest.raises(ValueError, match=message):
        kind(vocab=50, **fields)
