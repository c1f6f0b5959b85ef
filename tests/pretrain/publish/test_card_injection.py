"""A model card shows foreign names as text: they are no Markdown, no HTML, no YAML and no code."""

import ast
import dataclasses
import json
import types

import pytest
from markdown_it import MarkdownIt

from data.config import Data
from data.objectives import Classification
from models.config.bert import BertConfig
from models.config.classifier import ClassifierConfig
from pretrain.config import Run
from pretrain.publish.cards.card_texts import format_code, format_literal
from pretrain.publish.cards.loading_lines import make_loading_lines
from pretrain.publish.cards.model_card import make_card

pytestmark = pytest.mark.fast
HOSTILE = (
    '<img src=x onerror="alert(1)">',
    "`</code><script>alert(1)</script>`",
    "[a link](https://example.org)",
    "a | b |\n| c",
    "\n\n---\nlicense: mit\n---\n# heading",
    "\n```\n# out of the code",
    '")\nimport os; os.mkdir("x")  #',
    "\\",
    '"',
    "{gap}",
    "\x1b[31m\x9b\u202e",
    "https://example.org",
    "",
)
SIZES = dict(vocab=128, length=32, width=16, depth=1, num_heads=2, mlp=16)


def make_trained(hostile):
    """A fine-tuned classifier whose labels, pieces, data and origin have a hostile name."""
    pieces = ["[PAD]", f"[MASK]{hostile}"]
    vocabulary = types.SimpleNamespace(
        pieces=pieces, mask=1, eos=None, unk=None, size=2, kind="wordpiece"
    )
    model = ClassifierConfig(encoder=BertConfig(**SIZES), labels=("no", f"yes{hostile}"))
    source = {"name": hostile, "rate": 1.0}
    splits = {"train": {"tokens": 1, "documents": 1}}
    return types.SimpleNamespace(
        run=Run(model=model, data=Data(objective=Classification(length=16), store=hostile)),
        step=3,
        params={},
        parameters="raw",
        encoding=vocabulary,
        vocabulary=vocabulary,
        read_metrics=lambda: [{"step": 3, "heldout_loss": 1.0, f"heldout_{hostile}": 2.0}],
        read_origin=lambda: {"folder": f"a{hostile}", "pretrained_step": 1},
        read_manifest=lambda: {"sources": [source], "splits": splits},
    )


def list_structure(card):
    """The kinds of all blocks and inlines of a card, as a renderer sees it."""
    tokens = MarkdownIt("commonmark").enable("table").parse(card)
    return [
        (token.type, token.tag)
        for block in tokens
        for token in (block, *(block.children or ()))
        if token.type != "text"
    ]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("pretrained", [False, True])
def test_foreign_names_change_nothing_in_a_card_but_texts(hostile, pretrained):
    def render(name):
        trained = make_trained(name)
        if pretrained:
            run = dataclasses.replace(trained.run, model=trained.run.model.encoder)
            trained.run = run
        return make_card(trained)

    card, plain = render(hostile), render("a-name")
    assert list_structure(card) == list_structure(plain) or not hostile
    rendered = MarkdownIt("commonmark").enable("table").render(card)
    assert "<img" not in rendered and "<script" not in rendered and "href" not in rendered
    assert card.split("---")[1] == plain.split("---")[1]
    assert not any(sign in card for sign in "\x1b\x9b\u202e")
    code = card.split("```python\n")[1].split("\n```")[0]
    assert not any(isinstance(node, ast.Import) for node in ast.walk(ast.parse(code)))


def test_a_card_names_data_without_paths_of_the_machine():
    trained = make_trained("a")
    names = [
        "/home/me/news/a.txt",
        "/home/me/books/a.txt",
        "C:\\corpora\\web.jsonl",
        "tfds:wiki/en:train",
    ]
    splits = {"train": {"tokens": 1, "documents": 1}}
    sources = [{"name": name, "rate": 0.25} for name in names]
    scores = {f"heldout_loss/{name}": 2.0 for name in names}
    trained.read_metrics = lambda: [{"step": 3, "heldout_loss": 1.0, **scores}]
    trained.run = dataclasses.replace(
        trained.run, data=dataclasses.replace(trained.run.data, store="/home/me/stores/news")
    )
    for manifest in ({"sources": sources, "splits": splits}, None):
        trained.read_manifest = lambda manifest=manifest: manifest
        card = make_card(trained)
        assert "/home" not in card and "corpora" not in card
        for name in ("news/a.txt", "books/a.txt", "web.jsonl", "tfds:wiki/en:train"):
            assert f"| `loss/{name}` | 2 |" in card
            assert (f"`{name}` (25%)" in card) == (manifest is not None)
    assert "a token store that no longer exists (`news`)" in card


@pytest.mark.parametrize("hostile", HOSTILE)
def test_the_lines_that_load_an_export_keep_its_name(hostile):
    trained = make_trained(hostile)
    run = dataclasses.replace(trained.run, model=trained.run.model.encoder)
    code = ast.parse("\n".join(make_loading_lines(run, trained.vocabulary, f"out/{hostile}")))
    texts = [node.value for node in ast.walk(code) if isinstance(node, ast.Constant)]
    assert texts.count(f"out/{hostile}") >= 2
    assert any(f"[MASK]{hostile}" in text for text in texts if isinstance(text, str))


def test_readable_names_stay_readable():
    assert format_code("fr → 数学") == "`fr → 数学`"
    assert format_code("<extra_id_0>") == "`<extra_id_0>`"
    assert json.loads(f'"{format_literal("naïve 数学")}"') == "naïve 数学"
