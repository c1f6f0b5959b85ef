"""The tables map every parameter in both directions, and errors name what does not match."""

import dataclasses
import pathlib
import re
import types
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from models.config.albert import AlbertConfig
from models.config.bart import BartConfig
from models.config.bert import BertConfig
from models.config.deberta_v3 import DebertaV3Config
from models.config.distilbert import DistilBertConfig
from models.config.electra import ElectraConfig
from models.config.eurobert import EuroBertConfig
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.gpt3 import Gpt3Config
from models.config.gpt_bert import GptBertConfig
from models.config.linformer import LinformerConfig
from models.config.lstm_lm import LstmLmConfig
from models.config.modernbert import ModernBertConfig
from models.config.modernbert_decoder import ModernBertDecoderConfig
from models.config.music_transformer import MusicTransformerConfig
from models.config.neobert import NeoBertConfig
from models.config.reformer import Hashing, LocalChunks, ReformerConfig
from models.config.roberta import RobertaConfig
from models.config.sparse_transformer import SparseTransformerConfig
from models.config.t5 import T5Config
from models.config.t5gemma import T5GemmaConfig
from models.config.tagger import TaggerConfig
from models.config.transformer import TransformerConfig
from models.config.transformer_xl import Clusters, TransformerXLConfig
from models.config.xlnet import XLNetConfig
from models.layers.layer_layout import flatten_params, match_layout
from pretrain.convert import find_model_type, fine_tuned, name_map
from pretrain.convert.head_maps import HEAD_CONVERSIONS, list_unread_modules
from pretrain.convert.pretrained import CONVERTERS, Converter
from pretrain.convert.read_write import find_converter, open_model
from pretrain.families import FAMILIES, find_by_model_type, find_family
from pretrain.families.rules import JOINED, KERNEL, KERNEL_OUT, SAME
from tests.tiny import compute_shapes, fit_sizes

albert, bart, bert, distilbert, electra, gpt, gpt2, gpt3, roberta, t5, transformer, xl = (
    Converter(FAMILIES[name])
    for name in (
        *("albert", "bart", "bert", "distilbert", "electra", "gpt", "gpt2", "gpt3", "roberta"),
        *("t5", "transformer", "transformer_xl"),
    )
)

SIZES = dict(vocab=19, length=7, width=6, num_heads=3, depth=2, decoder_depth=3, mlp=5)


def make_tiny(kind, **settings):
    return fit_sizes(kind, SIZES, **settings)


BERT, GPT, GPT2 = make_tiny(BertConfig), make_tiny(GptConfig, mlp=24), make_tiny(Gpt2Config)
T5 = make_tiny(T5Config, num_heads=2, head_width=4, buckets=8, max_distance=20)
T5GEMMA = make_tiny(T5GemmaConfig, num_heads=4, num_key_heads=2, head_width=2, depth=4, window=3)
ALBERT = make_tiny(AlbertConfig, embedding=4, depth=3)
MODERNBERT = make_tiny(ModernBertConfig, depth=6)
TWIN = make_tiny(ModernBertDecoderConfig, depth=6)
EUROBERT = make_tiny(EuroBertConfig, width=8, num_heads=4, num_key_heads=2, depth=3)
NEOBERT = make_tiny(NeoBertConfig, width=12, depth=3, mlp=8)
ROBERTA, BART = make_tiny(RobertaConfig, first_position=1), make_tiny(BartConfig, start=1)
ELECTRA = make_tiny(
    ElectraConfig, embedding=4, generator_width=3, generator_num_heads=1, generator_mlp=2
)
DEBERTA_V3 = make_tiny(DebertaV3Config, depth=3, generator_depth=2, buckets=4, max_distance=8)
TRANSFORMER = make_tiny(TransformerConfig)
DISTILBERT = make_tiny(DistilBertConfig, teacher_depth=None)
GPT3 = make_tiny(Gpt3Config, depth=4, window=7)
GPT_BERT = make_tiny(GptBertConfig, buckets=4, max_distance=9)
LINFORMER, LSTM_LM = make_tiny(LinformerConfig, rank=4), make_tiny(LstmLmConfig)
MUSIC = make_tiny(MusicTransformerConfig, head_width=4, max_distance=5)
SPARSE = make_tiny(SparseTransformerConfig, stride=3, summary=1, subblocks=2)
XL = make_tiny(
    **dict(kind=TransformerXLConfig, width=8, head_width=4, memory=6, clamp_len=3),
    clusters=Clusters((5, 11), 2),
)
XLNET = make_tiny(XLNetConfig, length=512)
REFORMER = make_tiny(
    **dict(kind=ReformerConfig, depth=4, head_width=4, layers=("local", "lsh")),
    hashing=Hashing(8, 2, (4,), 0.1),
    local=LocalChunks(4, 0.1),
    axial_shape=(4, 3),
    axial_widths=(2, 4),
)
CASES = {
    **dict(albert=ALBERT, bart=BART, bert=BERT, distilbert=DISTILBERT, electra=ELECTRA),
    **dict(
        gpt=GPT,
        gpt2=GPT2,
        gpt_bert=GPT_BERT,
        modernbert=MODERNBERT,
        modernbert_decoder=TWIN,
        reformer=REFORMER,
        roberta=ROBERTA,
    ),
    **dict(deberta_v3=DEBERTA_V3, eurobert=EUROBERT, neobert=NEOBERT),
    **dict(linformer=LINFORMER, lstm_lm=LSTM_LM),
    **dict(music_transformer=MUSIC, sparse_transformer=SPARSE),
    "linformer unshared": dataclasses.replace(LINFORMER, sharing="none"),
    "lstm_lm tied": dataclasses.replace(LSTM_LM, tied=True, forget_bias=1.0),
    "sparse_transformer alternating": dataclasses.replace(SPARSE, depth=4, merged=False),
    **dict(t5=T5, t5gemma=T5GEMMA, transformer=TRANSFORMER, transformer_xl=XL, xlnet=XLNET),
    "t5 v1.1": dataclasses.replace(T5, gated=True, tied=False),
    "gpt2 embeddings": dataclasses.replace(GPT2, embedding_dropout=0.0),
    "transformer_xl one table": dataclasses.replace(XL, clusters=Clusters((5, 11))),
    "transformer_xl characters": dataclasses.replace(
        XL, clusters=None, untie_r=False, clamp_len=None
    ),
}
# What the unrolled case of a family has otherwise.
UNROLLED = {
    "electra": dict(embedding=6),
    "reformer": dict(layers=("lsh",), mlp_chunk=3, hashing=Hashing(8)),
    "transformer_xl": dict(same_length=True),
    "xlnet": dict(memory=7, clamp_len=4),
}
CASES |= {
    f"{name} unrolled": dataclasses.replace(config, scan=False, **UNROLLED.get(name, {}))
    for name, config in CASES.items()
    if name not in ("albert", "gpt_bert") and name in (*FAMILIES, "t5 v1.1")
}
# The tensors of an export that are no parameters of ours, or that it has twice.
ADDED = (
    r"^(final_logits_bias|lm_head\.bias|transformer\.pos_emb\.inv_freq"
    r"|layers\.\d\.bias_hh_l0|generator/electra\.embeddings\..*|transformer\.layers\.\d\.dec_attn\.r_[wr]_bias)$"
)
VOCABULARY = types.SimpleNamespace(pad=0, bos=2, eos=1, cls=2, sep=3, mask=4)


def random_params(config, seed=0):
    """Return multiples of 2**-10, whose sums are exact: a table may be another's and a difference."""
    _, shapes = compute_shapes(config)
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: np.round(rng.standard_normal(leaf.shape, np.float32) * 1024) / 1024, shapes
    )


def are_equal(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    return all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


def list_own_names(config):
    """Return the names of the tensors that the rules of a configuration name."""
    hf_map = find_family(config).hugging_face
    matches = name_map.expand_rules(hf_map.make_rules(config), hf_map.find_depths(config))
    return {name for match in matches for name in match.theirs}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def config(request):
    return request.param


# ---- there and back --------------------------------------------------------------


@pytest.mark.held_by(4)
def test_a_round_trip_is_the_identity(config):
    module, params = find_converter(config), random_params(config)
    tensors = module.to_hf(config, params)
    back, report = module.from_hf(config, tensors, random_params(config, seed=1))
    assert are_equal(back, params) and report == name_map.ImportReport((), ())
    assert all(
        tensor.dtype == np.float32 and tensor.flags.c_contiguous for tensor in tensors.values()
    )
    assert not tensors.get("final_logits_bias", np.zeros(1)).any()  # ours does not have it
    added = set(tensors) - list_own_names(config)  # in two folders, or of no parameter
    assert all(re.search(ADDED, name) for name in added)
    assert sum(tensors[name].size for name in tensors.keys() - added) == sum(
        leaf.size for leaf in jax.tree.leaves(params)
    )


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", ["bert", "t5", "t5 v1.1", "transformer", "roberta", "gpt2"])
def test_scanned_and_unrolled_have_the_same_tensors(name):
    scanned, unrolled = CASES[name], CASES[f"{name} unrolled"]
    module, params = find_converter(scanned), random_params(scanned)
    tensors = module.to_hf(scanned, params)
    other, _ = module.from_hf(unrolled, tensors, random_params(unrolled))
    inner = other.get(find_model_type(scanned), other)
    assert "layers" not in str(other.keys() | inner.get("encoder", inner.get("decoder")).keys())
    again = module.to_hf(unrolled, other)
    assert tensors.keys() == again.keys() and all(
        np.array_equal(tensors[name], again[name]) for name in tensors
    )
    assert are_equal(match_layout(params, other), other) and are_equal(
        match_layout(other, params), params
    )


def test_layouts_are_converted_as_requested():
    params = random_params(BERT)
    encoder = {"bert": params["bert"]}
    assert are_equal(match_layout(params | {"head": {"kernel": 1}}, encoder), encoder)
    with pytest.raises(KeyError, match="bert/embeddings/"):
        match_layout({"mlm_head": params["mlm_head"]}, random_params(CASES["bert unrolled"]))


@pytest.mark.held_by(6)
def test_a_configuration_comes_back(config):
    module = find_converter(config)
    described = module.to_hf_config(config, VOCABULARY)
    assert CONVERTERS[described["model_type"]] == module and len(described["architectures"]) == 1
    assert module.from_hf_config(described) == dataclasses.replace(config, scan=type(config).scan)


def test_families_are_those_of_the_folder():
    folder = pathlib.Path(__file__).parents[3] / "pretrain/families"
    others = {"__init__", "array_map", "family_record", "kinds", "labels"}
    others |= {"fine_tuning", "image_fit", "key_rules", "rules", "tensor_steps"}
    names = {path.stem for path in folder.glob("*.py")} - others
    assert FAMILIES.keys() == names and FAMILIES["gpt3"].config is Gpt3Config
    assert {
        name
        for name, each in FAMILIES.items()
        if each.config.__name__[:-6].lower() != name.replace("_", "")
    } == set()
    imported = {
        each.hugging_face.model_type: name
        for name, each in FAMILIES.items()
        if each.hugging_face and name not in ("gpt3", "deit_student")
    }
    assert imported == {kind: each.family.name for kind, each in CONVERTERS.items()}
    assert imported["openai-gpt"] == "gpt" and imported["marian"] == "transformer"
    assert find_model_type(Gpt3Config()) == "gpt2"
    for head in HEAD_CONVERSIONS:
        config = head(encoder=RobertaConfig())
        assert find_model_type(config) == "roberta" and find_converter(config) is fine_tuned
    with pytest.raises(
        ValueError, match="no family has a SimpleNamespace; .* BertConfig, DebertaV3Config, Deep"
    ):
        find_family(VOCABULARY)


def test_a_family_that_transformers_lacks_is_neither_exported_nor_imported(monkeypatch, tmp_path):
    family = dataclasses.replace(FAMILIES["bert"], hugging_face=None)
    monkeypatch.setattr("pretrain.families.bert.FAMILY", family)
    refusal = "transformers has no BERT encoder: a BertConfig can neither .* `export --format jax`"
    for config in (BERT, TaggerConfig(encoder=BERT)):
        with pytest.raises(ValueError, match=refusal):
            find_converter(config).to_hf_config(config, VOCABULARY)
        assert find_model_type(config) == "bert" and find_by_model_type("bert") is family
        assert list_unread_modules(config) == ()  # nothing is left out of a model's card
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="'bert': transformers has no such model"):
        open_model(tmp_path)


def test_layouts():
    """A kernel [in, out] is their matrix [out, in]; heads are the slow part of a joined dimension."""
    x = np.arange(24.0).reshape(2, 3, 4)
    theirs = KERNEL.theirs(x)  # [D = 2, H = 3, K = 4]
    assert theirs.shape == (12, 2) and theirs[1 * 4 + 2, 1] == x[1, 1, 2]
    theirs = KERNEL_OUT.theirs(x)  # [H = 2, K = 3, D = 4]
    assert theirs.shape == (4, 6) and theirs[3, 1 * 3 + 2] == x[1, 2, 3]
    assert JOINED.theirs(x[0]).tolist() == x[0].ravel().tolist()
    for layout in (SAME, KERNEL, KERNEL_OUT):
        np.testing.assert_array_equal(layout.ours(layout.theirs(x), x.shape), x)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float64, np.float32])
def test_float_types_are_read_as_float32(kind):
    tensors = {
        name: tensor.astype(kind) for name, tensor in bert.to_hf(BERT, random_params(BERT)).items()
    }
    params, _ = bert.from_hf(BERT, tensors, random_params(BERT, seed=1))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    words = tensors["bert.embeddings.word_embeddings.weight"].astype(np.float32)
    np.testing.assert_array_equal(
        params["bert"]["embeddings"]["token_embedding"]["embedding"], words
    )


def test_low_precision_parameters_are_exported_as_float32():
    low = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), random_params(BERT))
    tensors = bert.to_hf(BERT, low)
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}


def test_tensors_are_read_only_when_they_are_wanted():
    """Reading a name loads it from disk, so a head without a place here is not read."""
    tensors = bert.to_hf(BERT, random_params(BERT)) | {"classifier.weight": np.zeros(3, np.float32)}
    read = []

    class Lazy(Mapping):
        def __getitem__(self, name):
            read.append(name)
            return tensors[name]

        def __iter__(self):
            return iter(tensors)

        def __len__(self):
            return len(tensors)

    _, report = bert.from_hf(BERT, Lazy(), random_params(BERT))
    assert report.unused == ("classifier.weight",) and sorted(read) == sorted(
        tensors.keys() - {"classifier.weight"}
    )


# ---- names of other versions ---------------------------------------------------


@pytest.fixture
def tensors():
    return bert.to_hf(BERT, random_params(BERT))


def import_params(tensors):
    return bert.from_hf(BERT, tensors, random_params(BERT, seed=1))


def test_encoders_without_heads(tensors):
    """Pooler and heads keep their initial values, and are listed."""
    body = {
        name: tensor
        for name, tensor in tensors.items()
        if name.startswith("bert.") and "pooler" not in name
    }
    params, report = import_params(body)
    initial, whole = random_params(BERT, seed=1), random_params(BERT)
    assert set(report.missing) == tensors.keys() - body.keys() and report.unused == ()
    assert are_equal(params["bert"]["encoder"], whole["bert"]["encoder"])
    assert are_equal(params["bert"]["pooler"], initial["bert"]["pooler"])
    assert are_equal(params["mlm_head"], initial["mlm_head"]) and are_equal(
        params["next_sentence_head"], initial["next_sentence_head"]
    )
    bare = {name.removeprefix("bert."): tensor for name, tensor in body.items()}
    without_prefix, again = import_params(bare)
    assert are_equal(without_prefix, params) and again == report


def test_old_names_copies_and_buffers(tensors):
    """As in the first released files: gamma and beta, the output table once more, and the position
    ids.
    """
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma"): tensor
        for name, tensor in tensors.items()
    }
    old = {name.replace("LayerNorm.bias", "LayerNorm.beta"): tensor for name, tensor in old.items()}
    assert old.keys() != tensors.keys()
    old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].copy()
    old["cls.predictions.decoder.bias"] = old.pop("cls.predictions.bias")
    old["bert.embeddings.position_ids"] = np.arange(7)[None]
    params, report = import_params(old)
    assert are_equal(params, random_params(BERT)) and report == name_map.ImportReport(
        (), ("bert.embeddings.position_ids",)
    )


def test_roberta_as_others_have_it():
    """Three forms: without the pooler, as transformers saves it; a bare encoder; the release, with
    the table twice and buffers.
    """
    params, initial = random_params(ROBERTA), random_params(ROBERTA, seed=1)
    tensors = roberta.to_hf(ROBERTA, params)
    headless = {name: tensor for name, tensor in tensors.items() if not name.startswith("lm_head.")}
    for remaining, missing in (
        ({name: tensor for name, tensor in tensors.items() if "pooler" not in name}, ["roberta/pooler"]),
        (headless, ["mlm_head"]),
        ({name.removeprefix("roberta."): tensor for name, tensor in headless.items()}, ["mlm_head"]),
    ):  # fmt: skip
        found, report = roberta.from_hf(ROBERTA, remaining, initial)
        leaves, ours, fresh = (
            flatten_params(found),
            flatten_params(params),
            flatten_params(initial),
        )
        for path in leaves:
            assert leaves[path] is not None and are_equal(
                leaves[path], (fresh if path.startswith(tuple(missing)) else ours)[path]
            ), path
        assert (
            len(report.missing) == sum(path.startswith(tuple(missing)) for path in leaves)
            and not report.unused
        )
    old = tensors | {"lm_head.decoder.weight": tensors["roberta.embeddings.word_embeddings.weight"]}
    old |= {
        "lm_head.decoder.bias": tensors["lm_head.bias"],
        "roberta.embeddings.position_ids": np.arange(8)[None],
    }
    found, report = roberta.from_hf(ROBERTA, old, initial)
    assert are_equal(found, params) and report == name_map.ImportReport(
        (), ("roberta.embeddings.position_ids",)
    )


@pytest.mark.parametrize(
    ("left", "missing"),
    [
        ("sop_classifier", "sentence_order_head"),
        ("predictions", "mlm_head"),
        ("albert.pooler", "albert/pooler"),
    ],
)
def test_alberts_without_a_head(left, missing):
    """Released encoders lack some of them. Older files have the table twice, and buffers."""
    params, initial = random_params(ALBERT), random_params(ALBERT, seed=1)
    tensors = albert.to_hf(ALBERT, params)
    remaining = {name: tensor for name, tensor in tensors.items() if not name.startswith(left)}
    remaining |= {"predictions.decoder.weight": tensors["albert.embeddings.word_embeddings.weight"]}
    found, report = albert.from_hf(
        ALBERT, remaining | {"albert.embeddings.position_ids": np.arange(7)[None]}, initial
    )
    leaves, ours, fresh = (
        flatten_params(found),
        flatten_params(params),
        flatten_params(initial),
    )
    assert all(
        are_equal(leaves[path], (fresh if path.startswith(missing) else ours)[path])
        for path in leaves
    )
    assert all(name.startswith(left) for name in report.missing) and report.unused == (
        "albert.embeddings.position_ids",
    )


def test_robertas_positions_begin_after_the_padding_id():
    """The released settings: 514 rows of positions, of which a text uses 512."""
    released = {
        "model_type": "roberta",
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    }
    assert roberta.from_hf_config(released) == RobertaConfig()
    with pytest.raises(
        ValueError, match="That id is 1 in this vocabulary, but the model's positions begin at 1"
    ):
        roberta.to_hf_config(ROBERTA, types.SimpleNamespace(pad=1, cls=2, sep=3))


def test_t5_copies_of_its_words():
    params = random_params(T5)
    tensors = t5.to_hf(T5, params)
    words = tensors.pop("shared.weight")
    tensors |= {
        "encoder.embed_tokens.weight": words,
        "decoder.embed_tokens.weight": words,
        "lm_head.weight": words,
    }
    tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = np.zeros(
        (8, 2), np.float32
    )
    found, report = t5.from_hf(T5, tensors, random_params(T5, seed=1))
    assert are_equal(found, params) and len(report.unused) == 1 and not report.missing


def test_untied_t5_without_a_head_scores_by_its_words():
    """As transformers 5 computes such a folder."""
    config = CASES["t5 v1.1"]
    tensors = t5.to_hf(config, random_params(config))
    del tensors["lm_head.weight"]
    params, _ = t5.from_hf(config, tensors, random_params(config, seed=1))
    np.testing.assert_array_equal(
        params["lm_head"]["kernel"], params["token_embedding"]["embedding"].T
    )


@pytest.mark.parametrize(
    ("module", "config", "table"),
    [
        (gpt, GPT, "transformer.tokens_embed.weight"),
        (gpt2, GPT2, "transformer.wte.weight"),
    ],
)
def test_gpts_with_and_without_a_head(module, config, table):
    """As in the released files: no prefix, and the causal masks of each layer; or the table twice."""
    whole = random_params(config)
    tensors = module.to_hf(config, whole)
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    masks = {f"h.{i}.attn.bias": np.ones((1, 1, 7, 7), np.float32) for i in range(2)}
    params, report = module.from_hf(config, bare | masks, random_params(config, seed=1))
    assert are_equal(params, whole)
    unused = ("transformer.h.0.attn.bias", "transformer.h.1.attn.bias")
    assert report == name_map.ImportReport((), unused)
    twice = tensors | {
        "lm_head.weight": tensors[table],
        "score.weight": np.zeros((2, 6), np.float32),
    }
    params, report = module.from_hf(config, twice, random_params(config, seed=1))
    assert are_equal(params, whole) and report == name_map.ImportReport((), ("score.weight",))
    with pytest.raises(ValueError, match=rf"lm_head\.weight differs from {table}"):
        module.from_hf(config, tensors | {"lm_head.weight": -tensors[table]}, random_params(config))


def test_queries_keys_and_values_are_concatenated():
    """One matrix [in, 3 x heads x head width], in this order (OpenAI's released code)."""
    params = random_params(GPT2)
    joint = gpt2.to_hf(GPT2, params)["transformer.h.1.attn.c_attn.weight"]
    attention = jax.tree.map(lambda leaf: leaf[1], params["decoder"]["layers"]["attention"])
    x = np.random.default_rng(2).standard_normal(6).astype(np.float32)
    parts = [
        np.einsum("d,dhk->hk", x, attention[name]["kernel"]).ravel()
        for name in ("query", "key", "value")
    ]
    np.testing.assert_allclose(x @ joint, np.concatenate(parts), rtol=1e-5)
    biases = gpt2.to_hf(GPT2, params)["transformer.h.1.attn.c_attn.bias"]
    np.testing.assert_array_equal(biases[6:12], attention["key"]["bias"].ravel())


@pytest.mark.parametrize("scan", [True, False])
def test_gpt3_with_a_window_over_the_row_is_a_gpt2(scan):
    """Its pairs become layers 0, 1, 2, 3, dense ones first; with bands it is refused with the
    reason.
    """
    config = dataclasses.replace(GPT3, scan=scan)
    params = random_params(config)
    tensors = gpt3.to_hf(config, params)
    back, _ = gpt2.from_hf(
        Gpt2Config(**{**vars(GPT2), "depth": 4, "scan": False}),
        tensors,
        random_params(dataclasses.replace(GPT2, depth=4, scan=False)),
    )
    stack = params["decoder"]
    pairs = (
        [jax.tree.map(lambda leaf, i=i: leaf[i], stack["layers"]) for i in range(2)]
        if scan
        else [stack["layer_0"], stack["layer_1"]]
    )
    for i, (pair, kind) in enumerate(
        (pair, kind) for pair in pairs for kind in ("dense", "banded")
    ):
        assert are_equal(back["decoder"][f"layer_{i}"], pair[kind])
    assert (
        gpt3.to_hf_config(config, VOCABULARY)["architectures"] == ["GPT2LMHeadModel"]
        and find_model_type(config) == "gpt2"
    )
    banded = dataclasses.replace(config, window=6)
    for refused in (
        lambda: gpt3.to_hf(banded, params),
        lambda: gpt3.to_hf_config(banded, VOCABULARY),
    ):
        with pytest.raises(
            ValueError,
            match=r"bands of 6 positions \(model.window\) in rows of 7 cannot be exported: transformers has no",
        ):
            refused()


# ---- refusals --------------------------------------------------------------------


def test_a_missing_tensor_is_named(tensors):
    del tensors["bert.encoder.layer.1.output.dense.weight"]
    with pytest.raises(
        ValueError, match=r"missing bert\.encoder\.layer\.1\.output\.dense\.weight, which"
    ):
        import_params(tensors)


def test_half_a_head_is_no_head(tensors):
    """A head is complete or absent: a missing part means a damaged file."""
    del tensors["cls.predictions.transform.dense.bias"]
    with pytest.raises(ValueError, match=r"missing cls\.predictions\.transform\.dense\.bias"):
        import_params(tensors)


def test_t5_without_a_decoder_is_refused():
    whole = t5.to_hf(T5, random_params(T5))
    tensors = {name: tensor for name, tensor in whole.items() if not name.startswith("decoder")}
    with pytest.raises(ValueError, match=r"missing decoder\.block\.0.* and \d+ more"):
        t5.from_hf(T5, tensors, random_params(T5))


def test_a_layer_too_many_is_named(tensors):
    tensors["bert.encoder.layer.2.output.dense.bias"] = np.zeros(6, np.float32)
    with pytest.raises(
        ValueError, match=r"no place in the model for bert\.encoder\.layer\.2\.output\.dense\.bias"
    ):
        import_params(tensors)


def test_a_wrong_shape_is_named(tensors):
    name = "bert.encoder.layer.0.attention.self.query.weight"
    tensors[name] = np.zeros((6, 4), np.float32)
    with pytest.raises(
        ValueError, match=rf"{name} has shape \[6, 4\]; config.json makes it \[6, 6\]"
    ):
        import_params(tensors)


def test_a_wrong_joint_matrix_is_named():
    tensors = gpt2.to_hf(GPT2, random_params(GPT2))
    name = "transformer.h.0.attn.c_attn.weight"
    for shape in ((6, 15), (6, 17)):
        with pytest.raises(
            ValueError,
            match=r"c_attn\.weight has shape \[6, \d+\]; config.json makes it \[6, 18\]",
        ):
            gpt2.from_hf(GPT2, tensors | {name: np.zeros(shape, np.float32)}, random_params(GPT2))
    del tensors[name]
    with pytest.raises(ValueError, match=r"missing transformer\.h\.0\.attn\.c_attn\.weight, which"):
        gpt2.from_hf(GPT2, tensors, random_params(GPT2))


def test_a_gpt_of_another_mlp_is_refused():
    with pytest.raises(ValueError, match=r"model.mlp=5: an OpenAIGPTLMHeadModel has MLPs of 4 x 6"):
        gpt.to_hf_config(dataclasses.replace(GPT, mlp=5), VOCABULARY)


@pytest.mark.parametrize("kind", [np.int8, ml_dtypes.float8_e4m3fn])
def test_quantised_weights_are_refused(tensors, kind):
    tensors["bert.pooler.dense.bias"] = np.zeros(6, kind)
    with pytest.raises(
        ValueError,
        match=r"bert\.pooler\.dense\.bias is (int8|float8_e4m3fn); expected one of float16",
    ):
        import_params(tensors)


def test_two_tensors_for_one_place_are_named(tensors):
    tensors["bert.embeddings.LayerNorm.gamma"] = tensors["bert.embeddings.LayerNorm.weight"]
    with pytest.raises(
        ValueError,
        match=r"embeddings\.LayerNorm\.weight and bert\.embeddings\.LayerNorm\.gamma are two",
    ):
        import_params(tensors)


def test_a_tied_weight_that_differs_from_its_copy_is_named(tensors):
    tensors["cls.predictions.decoder.weight"] = (
        tensors["bert.embeddings.word_embeddings.weight"] + 1
    )
    with pytest.raises(
        ValueError, match=r"cls\.predictions\.decoder\.weight differs from bert\.embeddings\.word"
    ):
        import_params(tensors)
    tied = t5.to_hf(T5, random_params(T5))
    with pytest.raises(ValueError, match=r"lm_head\.weight differs from shared\.weight"):
        t5.from_hf(T5, tied | {"lm_head.weight": -tied["shared.weight"]}, random_params(T5))


def test_parameters_of_another_configuration_are_named():
    params = random_params(BERT)
    with pytest.raises(
        ValueError, match=r"bert/encoder/layers/\S+ has 2 layers; the configuration says 3"
    ):
        bert.to_hf(dataclasses.replace(BERT, depth=3), params)
    del params["next_sentence_head"]
    params["odd"] = {"kernel": np.zeros(1)}
    with pytest.raises(
        ValueError,
        match=r"next_sentence_head/bias, next_sentence_head/kernel missing, odd/kernel without a rule",
    ):
        bert.to_hf(BERT, params)
    with pytest.raises(ValueError, match=r"lm_head/kernel"):
        t5.to_hf(dataclasses.replace(T5, tied=False), random_params(T5))
    with pytest.raises(ValueError, match=r"initial parameters do not fit .*: lm_head/kernel"):
        t5.from_hf(T5, {}, random_params(dataclasses.replace(T5, tied=False)))


def test_two_rules_for_one_parameter_are_named():
    with pytest.raises(ValueError, match="two rules for our a: A and B"):
        name_map.expand_rules((("a", "A", SAME), ("a", "B", SAME)), {})
    with pytest.raises(ValueError, match="two rules for their A: a and b"):
        name_map.expand_rules((("a", "A", SAME), ("b", "A", SAME)), {})
    with pytest.raises(ValueError, match="s/layers/w <-> w: a path with `layers` needs {i} in"):
        name_map.expand_rules((("s/layers/w", "w", SAME),), {"s": 2})


@pytest.mark.held_by(8)
@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("bert", "hidden_act", "relu"),
        ("bert", "hidden_act", "gelu_new"),
        ("bert", "hidden_act", ["gelu_python"]),
        ("bert", "hidden_act", "gelu_pytorch_tanh"),
        ("bert", "position_embedding_type", "relative_key"),
        ("bert", "is_decoder", True),
        ("bert", "add_cross_attention", True),
        ("bert", "tie_word_embeddings", False),
        ("bert", "model_type", "roberta"),
        ("bert", "hidden_size", "768"),
        ("bert", "num_hidden_layers", 2.5),
        ("bert", "vocab_size", 0),
        ("bert", "hidden_dropout_prob", 1.5),
        ("bert", "quantization_config", {"bits": 4}),
        ("albert", "hidden_act", "gelu"),
        ("albert", "num_hidden_groups", 2),
        ("albert", "inner_group_num", 2),
        ("electra", "hidden_act", "gelu_new"),
        ("electra", "num_hidden_layers", 3),
        ("electra", "embedding_size", 5),
        ("roberta", "hidden_act", "gelu_new"),
        ("roberta", "model_type", "xlm-roberta"),
        ("roberta", "max_position_embeddings", 1),
        ("t5", "feed_forward_proj", "gated-silu"),
        ("t5", "is_encoder_decoder", False),
        ("t5", "decoder_start_token_id", 3),
        ("t5", "pad_token_id", 5),
        ("t5", "num_layers", True),
        ("t5", "model_type", "umt5"),
        ("openai-gpt", "afn", "relu"),
        ("openai-gpt", "embd_pdrop", "x"),
        ("openai-gpt", "afn", "gelu_python"),
        ("gpt2", "activation_function", "gelu"),
        ("gpt2", "scale_attn_weights", False),
        ("gpt2", "scale_attn_by_inverse_layer_idx", True),
        ("gpt2", "add_cross_attention", True),
        ("gpt2", "embd_pdrop", True),
        ("gpt2", "activation_function", "gelu_python"),
        ("gpt2", "n_inner", "5"),
        ("marian", "activation_function", "swish"),
        ("marian", "scale_embedding", False),
        ("marian", "normalize_before", True),
        ("marian", "decoder_start_token_id", 58100),
    ],
)
def test_settings_that_are_not_supported_are_named(family, key, value):
    config = CASES[CONVERTERS[family].family.name]
    described = CONVERTERS[family].to_hf_config(config, VOCABULARY) | {key: value}
    supported = {
        "vocab_size": "vocab",
        "hidden_dropout_prob": "dropout",
        "max_position_embeddings": "length",
    }.get(key, key)
    with pytest.raises(ValueError, match=supported):
        CONVERTERS[family].from_hf_config(described)


def test_absent_and_null_settings_are_the_families_defaults():
    assert (
        bert.from_hf_config({"model_type": "bert", "position_embedding_type": None}) == BertConfig()
    )
    small = t5.from_hf_config({"model_type": "t5", "num_decoder_layers": None})
    assert small == T5Config(width=512, depth=6, decoder_depth=6, num_heads=8, mlp=2048)
    assert t5.from_hf_config({"model_type": "t5", "num_layers": 4}).decoder_depth == 4
    assert bert.from_hf_config({"hidden_dropout_prob": 0}).dropout == 0.0


def test_gpts_absent_settings_are_the_papers():
    assert gpt2.from_hf_config({"model_type": "gpt2", "n_inner": None}) == Gpt2Config()
    assert gpt2.from_hf_config({"n_embd": 12, "resid_pdrop": 0.0, "embd_pdrop": 0.0}).mlp == 48
    assert gpt.from_hf_config({"model_type": "openai-gpt"}) == GptConfig()


@pytest.mark.parametrize(
    ("described", "tied"),
    [
        ({}, True),
        ({"tie_word_embeddings": True}, True),
        ({"tie_word_embeddings": False}, False),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, False),
        ({"tie_word_embeddings": True, "scale_decoder_outputs": True}, True),
    ],
)
def test_t5_tied_in_the_words_of_transformers_4_and_5(described, tied):
    assert t5.from_hf_config({"model_type": "t5"} | described).tied == tied


def test_a_transformers_bias_and_sinusoids():
    """Released translators have a bias on their logits; older files have sinusoids, and the table
    under each of its names.
    """
    params = random_params(TRANSFORMER)
    hf_map, tensors = transformer.family.hugging_face, transformer.to_hf(TRANSFORMER, params)
    names = "lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens"
    table = tensors["model.shared.weight"]
    copies = {f"{name}.weight": table for name in names} | dict.fromkeys(
        hf_map.buffers, np.ones((9, 6), np.float32)
    )
    found, report = transformer.from_hf(
        TRANSFORMER, tensors | copies, random_params(TRANSFORMER, seed=1)
    )
    assert are_equal(found, params)
    assert report == name_map.ImportReport((), tuple(sorted(hf_map.buffers)))
    with pytest.raises(ValueError, match="final_logits_bias is not 0: this model adds a bias"):
        transformer.from_hf(
            TRANSFORMER,
            tensors | {"final_logits_bias": np.ones((1, 19), np.float32)},
            random_params(TRANSFORMER),
        )
    with pytest.raises(
        ValueError, match="model.epsilon=1e-06 cannot be exported: MarianMTModel has 1e-05"
    ):
        transformer.to_hf_config(dataclasses.replace(TRANSFORMER, epsilon=1e-6), VOCABULARY)
    for key, value in (
        ("decoder_ffn_dim", 7),
        ("decoder_attention_heads", 2),
        ("decoder_vocab_size", 20),
    ):
        with pytest.raises(
            ValueError, match=f"{key} is {value} and .* TransformerConfig has one for both"
        ):
            transformer.from_hf_config(
                transformer.to_hf_config(TRANSFORMER, VOCABULARY) | {key: value}
            )


def test_t5_needs_padding_to_be_id_0():
    with pytest.raises(ValueError, match="this vocabulary's is 3"):
        t5.to_hf_config(T5, types.SimpleNamespace(pad=3, eos=1))


def test_other_frequencies_of_sinusoids_are_refused():
    tensors = xl.to_hf(XL, random_params(XL))
    name = "transformer.pos_emb.inv_freq"
    for wrong in (tensors[name] * 2, tensors[name][1:]):
        with pytest.raises(ValueError, match=rf"{name} is \[\d\] from .* constant \[4\] from 1 to"):
            xl.from_hf(XL, tensors | {name: wrong}, random_params(XL))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cutoffs", 5, "cutoffs is 5; expected a list of int"),
        ("cutoffs", [], "div_val is 2 without cutoffs; it must be 1"),
        ("clamp_len", "9", "clamp_len is '9'; expected int"),
        ("d_embed", 4, "d_embed is 4 and d_model 8"),
        ("attn_type", 1, "attn_type is 1; TransformerXLConfig knows only 0"),
    ],
)
def test_settings_of_another_transformer_xl_are_refused(key, value, message):
    described = xl.to_hf_config(XL, VOCABULARY) | {key: value}
    with pytest.raises(ValueError, match=message):
        xl.from_hf_config(described)
