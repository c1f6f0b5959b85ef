"""`attention`: the page and the images show the model's weights, no text is executed, and nothing
is fetched.
"""

import base64
import dataclasses
import json
import re
from argparse import Namespace
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.vocabulary.load import train_vocabulary
from models import build
from models.activations import capture_activations
from models.config.base import ImageConfig
from models.config.bert import BertConfig
from models.config.classifier import ClassifierConfig
from models.config.electra import ElectraConfig
from models.config.gpt2 import Gpt2Config
from models.config.t5 import T5Config
from models.config.textcnn import TextCnnConfig
from models.layers.encoder_decoder import shift_right
from pretrain.__main__ import main
from pretrain.api.pictures import check_layers_and_heads
from pretrain.cli.attention import write_images
from pretrain.config import Mesh
from pretrain.convert import tokenizer as tokenizers
from pretrain.inference.attention_maps import Panel, Token, compute_attention_maps, make_page_data
from pretrain.mesh.sharding import make_mesh
from pretrain.reporting.html import render_html
from pretrain.training.new_workdir import start_workdir
from tests.pretrain.workdirs import make_trained

TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "A cloze is a test in which words are left out of a text.",
] * 12
BERT = BertConfig(vocab=128, length=40, width=16, depth=2, num_heads=2, mlp=24)
ELECTRA = ElectraConfig(
    vocab=128, length=40, embedding=8, width=16, depth=2, num_heads=2, mlp=24,
    generator_width=8, generator_num_heads=1, generator_mlp=8,
)  # fmt: skip
GPT2 = Gpt2Config(vocab=128, length=40, width=16, depth=2, num_heads=2, mlp=24)
T5 = T5Config(vocab=256, width=16, depth=2, decoder_depth=2, num_heads=2, head_width=6, mlp=24)
EVIL = 'the </script><script>alert("fox")</script> & \u2028'


def make_tiny(config, size, **vocabulary):
    return make_trained(config, train_vocabulary(TEXT, size, algorithm="bpe", **vocabulary))


@pytest.fixture(scope="module")
def t5():
    return make_tiny(T5, 200, layout="t5")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    bert, path = make_tiny(BERT, 110), tmp_path_factory.mktemp("attention") / "w"
    start_workdir(path, bert.run, bert.params, bert.vocabulary)
    return path


def compute_maps(trained, texts, **kw):
    mesh = make_mesh(Mesh(data=1), jax.devices()[:1])
    with jax.set_mesh(mesh):
        return compute_attention_maps(trained, mesh, texts, **kw)


def read_page_data(text):
    """Return the data of a page."""
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    )


def read_weights(panel):
    shape = len(panel["layers"]), panel["heads"], len(panel["readers"]), len(panel["read"])
    return np.frombuffer(base64.b64decode(panel["weights"]), "<u2").reshape(shape) / 65535


def test_an_encoder_decoder_has_three_kinds(t5):
    """With a target, and with generated text; the page has the same numbers."""
    texts = [("text 1", "the quick fox", "a lazy dog"), ("text 2", "the quick fox", None)]
    found = compute_maps(t5, texts, length=8)
    data = read_page_data(render_html("attention", make_page_data("T5", texts, found, layers=[2])))
    for panels, shown in zip(found, data["texts"]):
        assert [panel.name for panel in panels] == ["encoder", "decoder", "cross"]
        encoder, decoder, cross = panels
        assert (
            cross.query_tokens == decoder.query_tokens == decoder.key_tokens
            and cross.key_tokens == encoder.key_tokens
            and decoder.query_tokens[0].text == "(start)"
        )
        for panel, drawn in zip(panels, shown["panels"]):
            assert panel.weights_NHLM.shape == (
                2,
                2,
                len(panel.query_tokens),
                len(panel.key_tokens),
            )
            np.testing.assert_allclose(panel.weights_NHLM.sum(axis=-1), 1, atol=1e-5)
            np.testing.assert_allclose(read_weights(drawn)[0], panel.weights_NHLM[1], atol=1e-5)
        assert not np.triu(decoder.weights_NHLM, 1).any() and np.triu(encoder.weights_NHLM, 1).any()
    first = found[0][2]
    assert [token.text for token in first.key_tokens if not token.joins_previous][
        -1
    ] == "</s>" and "".join(token.text for token in first.key_tokens) == "thequickfox</s>"
    assert "".join(token.text for token in first.query_tokens) == "(start)alazydog"
    assert len(found[1][2].query_tokens) <= 8
    tokenizer, model = tokenizers.build_tokenizer(t5.vocabulary, "t5"), build(T5)
    inputs_BM, targets_BL = (jnp.asarray([tokenizer.encode(text).ids]) for text in texts[0][1:])
    memory_BMD = model.apply({"params": t5.params}, inputs_BM, inputs_BM >= 0, method="encode")
    seen = capture_activations(
        model, t5.params, memory_BMD, inputs_BM >= 0, shift_right(targets_BL), method="decode"
    )
    np.testing.assert_allclose(
        first.weights_NHLM, np.stack(seen.attention_weights["cross"])[:, 0], atol=1e-5
    )


def test_a_fine_tuned_model_shows_its_encoder(tmp_path, capsys):
    tuned, path = make_tiny(ClassifierConfig(encoder=ELECTRA), 110), tmp_path / "a.html"
    start_workdir(tmp_path / "w", tuned.run, tuned.params, tuned.vocabulary)
    say = ["attention", "--workdir", str(tmp_path / "w"), "--output", str(path), "the quick fox"]
    assert (
        main([*say, "--layers", "3"]) == 2
        and "--layers 3: the model has layers 1 to 2" in capsys.readouterr().err
    )
    assert main(say) == 0
    data, tokenizer = (
        read_page_data(path.read_text(encoding="utf-8")),
        tokenizers.build_tokenizer(tuned.vocabulary, "electra"),
    )
    tokens_BL = jnp.asarray([tokenizer.encode("the quick fox").ids])
    seen = jax.jit(partial(capture_activations, build(ELECTRA), method="encode"))(
        tuned.params["encoder"], tokens_BL, tokens_BL >= 0
    )
    (panel,) = data["texts"][0]["panels"]
    np.testing.assert_allclose(
        read_weights(panel), np.stack(seen.attention_weights["attention"])[:, 0], atol=1e-5
    )
    assert data["title"] == "Classifier, step 0 of w" and panel["name"] == "encoder"


def test_a_decoder_alone_reads_only_what_comes_before():
    gpt2 = make_tiny(GPT2, 110, layout="gpt")
    ((panel,),) = compute_maps(gpt2, [("text 1", "the quick fox", None)])
    assert (
        panel.name == "decoder"
        and panel.query_tokens == panel.key_tokens
        and "".join(token.text for token in panel.key_tokens) == "thequickfox"
    )
    tokens_BL = jnp.asarray(
        [tokenizers.build_tokenizer(gpt2.vocabulary, "gpt2").encode("the quick fox").ids]
    )
    seen = jax.jit(partial(capture_activations, build(GPT2), method="compute_states"))(
        gpt2.params, tokens_BL
    )
    np.testing.assert_allclose(
        panel.weights_NHLM, np.stack(seen.attention_weights["attention"])[:, 0], atol=1e-5
    )
    assert not np.triu(panel.weights_NHLM, 1).any() and panel.weights_NHLM.shape[:2] == (2, 2)


def test_a_page_executes_no_text_and_fetches_nothing(workdir, tmp_path, capsys):
    assert (
        main(["attention", "--workdir", str(workdir), "--output", str(tmp_path / "a.html"), EVIL])
        == 0
    )
    assert "a.html: 1 texts, " in capsys.readouterr().out
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert (
        "alert(" in text
        and "<script>alert" not in text
        and "\u2028" not in text
        and text.count("<script") == text.count("</script") == 2
    )
    data = read_page_data(text)
    assert data["texts"][0]["text"] == EVIL and data["title"] == "Bert, step 0 of w"
    (panel,) = data["texts"][0]["panels"]
    assert (
        panel["name"] == "encoder"
        and panel["layers"] == [1, 2]
        and panel["read"][0] == ["[CLS]", False]
    )
    np.testing.assert_allclose(read_weights(panel).sum(axis=-1), 1, atol=1e-3)
    assert "default-src 'none'" in text and not re.search(
        r"https?:|\bsrc=|\bhref=|url\(|@import|\bimport\(|fetch\(", text
    )


def make_panel(*texts):
    """Return weights of an encoder with three layers of two heads, all uniform."""
    tokens = [Token(text, False) for text in texts]
    return Panel(
        "encoder",
        tokens,
        tokens,
        np.full((3, 2, len(texts), len(texts)), 1 / len(texts), np.float32),
    )


def test_pictures(tmp_path, spied):
    imshow = spied(pytest.importorskip("matplotlib.axes").Axes, "imshow")
    args = Namespace(
        images=tmp_path / "png", layers=[2], heads=[2, 1], overwrite=False, input=None, texts=[]
    )
    weights_NHLM = np.random.default_rng(0).dirichlet(np.ones(2), size=(3, 2, 2)).astype(np.float32)
    panels = [
        [make_panel("the", "$\\nothing{$")._replace(weights_NHLM=weights_NHLM)]
    ]  # not a formula
    ((picture, missing),) = write_images(args, panels)
    assert (picture, missing) == (
        tmp_path / "png" / "text_1_encoder_layer_2.png",
        [],
    ) and picture.read_bytes().startswith(b"\x89PNG")
    for call, head, on in zip(imshow.call_args_list, (1, 0), "21", strict=True):
        np.testing.assert_array_equal(call.args[1], weights_NHLM[1, head])
        assert call.args[0].get_title() == f"encoder, layer 2, head {on}" and (
            call.kwargs["vmin"],
            call.kwargs["vmax"],
        ) == (0, 1)
        assert [mark.get_text() for mark in call.args[0].get_xticklabels()] == [
            "the",
            "$\\nothing{$",
        ]
    with pytest.raises(
        FileExistsError,
        match="text_1_encoder_layer_2.png exists; name another --images, or add --overwrite",
    ):
        [*write_images(args, panels)]
    args.layers = [1, 2, 1]
    with pytest.raises(FileExistsError, match="layer_2.png exists"):
        [*write_images(args, panels)]
    assert [*args.images.iterdir()] == [picture]  # nothing is drawn before all names are free
    picture.unlink()
    assert len([*write_images(args, panels)]) == 2


def test_no_page_is_written_where_an_image_exists(workdir, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    page, taken = tmp_path / "a.html", tmp_path / "png" / "text_1_encoder_layer_2.png"
    taken.parent.mkdir()
    taken.touch()
    words = ["the fox", "--output", str(page), "--images", str(taken.parent)]
    assert main(["attention", "--workdir", str(workdir), *words]) == 2
    assert f"{taken} exists" in capsys.readouterr().err and not page.exists()
    assert [*taken.parent.iterdir()] == [taken]


def test_weights_that_are_no_numbers_are_refused(t5):
    params = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), t5.params)
    with pytest.raises(
        ValueError, match="f:1: an attention weight is not a number.*another --step"
    ):
        compute_maps(dataclasses.replace(t5, params=params), [("f:1", "the fox", "a")])


@pytest.mark.held_by(4)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give either texts"),
        (("the fox", "--output", "a.htm"), "the name must end in .html"),
        (("the fox", "--output", "none/a.html"), "none: the folder of --output does not exist"),
        (("the fox", "--layers", "3"), "--layers 3: the model has layers 1 to 2"),
        (("the fox", "--layers", "0"), "--layers 0: the model has layers 1 to 2"),
        (("the fox", "--heads", "3", "--images", "x"), "--heads 3: the model has heads 1 to 2"),
        (("the fox", "--heads", "1"), "--heads needs --images"),
        (("the fox " * 30,), "text 1: a text of more than the model's 40 tokens: 'the fox the"),
        (("--input", "picture.png"), "picture.png: it is a picture, not text"),
        (("--input", "pictures"), "pictures"),
        (("--input", "empty.txt"), "empty.txt: no text in it"),
        (
            ("--input", "pair.jsonl"),
            "pair.jsonl:2: a target is for models that read one text and write another; this is a BertConfig",
        ),
        (("--input", "bad.jsonl"), "bad.jsonl:1: the field target is a string"),
        (
            ("--input", "no_text.jsonl"),
            "no_text.jsonl:2: expected an object with the field text, a string",
        ),
        (
            ("the \udcff fox",),
            "text 1: the field text has half of a character in it, '\\udcff'",
        ),  # a byte of the command line that is not UTF-8
    ],
)
def test_bad_input(workdir, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pair.jsonl").write_text('{"text": "a"}\n{"text": "a", "target": "b"}\n')
    (tmp_path / "no_text.jsonl").write_text('{"text": "a"}\n{"txt": "a"}\n')
    (tmp_path / "bad.jsonl").write_text('{"text": "a", "target": 3}\n')
    assert main(["attention", "--workdir", str(workdir), "--output", "a.html", *words]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "a.html").exists()


def test_a_model_without_attention_is_refused():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class LenetConfig(ImageConfig):
        has_attention: ClassVar[bool] = False

    with pytest.raises(ValueError, match="a LenetConfig has no attention$"):
        check_layers_and_heads(LenetConfig(), None, None)
    with pytest.raises(ValueError, match="a TextCnnConfig has no attention. `features` has"):
        check_layers_and_heads(TextCnnConfig(), None, None)


def test_a_page_has_a_size(monkeypatch):
    texts = [("text 1", "the quick fox", None)]
    monkeypatch.setattr("pretrain.inference.attention_maps.MAX_PAGE_BYTES", 100)
    assert (
        len(
            make_page_data("T5", texts, [[make_panel("the", "quick", "fox")]], layers=[1, 3])[
                "texts"
            ]
        )
        == 1
    )  # 2 x 2 x 3 x 3 x 2 bytes, as base64: 96
    with pytest.raises(ValueError, match="give fewer or shorter texts"):
        make_page_data("T5", texts, [[make_panel("the", "quick", "fox")]])
