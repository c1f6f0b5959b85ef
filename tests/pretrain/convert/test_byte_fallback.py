"""Vocabularies that spell rare characters by bytes have the same ids in `transformers`."""

import json
import random

import hypothesis
import pytest
from hypothesis import strategies

from data.vocabulary.load import read_vocabulary, train_vocabulary
from pretrain.convert.tokenizer import write_tokenizer
from tests.data.vocabulary.test_characters import draw_words

transformers = pytest.importorskip("transformers")

# Characters of all of Unicode, with many that normalizations treat differently. A mark follows a plain
# letter: test_tokenizer_conversion.py has the cases that the two libraries compose differently.
ODD = "\u200b\u200d\ufeff\u00ad\u3000\u2581\ufffd\x07\t\n\r ﬁ①½ßİſ№ｶﾞ각Å🙂👩🏽🇫🇷<0x41>[]東京éz7Ω…"
LETTERS = strategies.one_of(
    strategies.sampled_from(ODD),
    strategies.characters(exclude_categories=["Cs", "Cn", "Mn", "Mc", "Me"]),
    strategies.sampled_from(["<0x41>", "<0xE6>", " the ", "walks", "1984", "é", "e\u0301"]),
)
TEXTS = strategies.lists(LETTERS, max_size=12).map("".join)
KINDS = [
    (algorithm, byte_fallback, lowercase, layout)
    for algorithm in ("unigram", "bpe")
    for byte_fallback in (False, True)
    for lowercase, layout in ((False, "bert"), (True, "bert"), (False, "t5"))
]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: "-".join(map(str, kind)))
def both(request, tmp_path_factory):
    """Return a vocabulary and its exported tokenizer in `transformers`."""
    algorithm, byte_fallback, lowercase, layout = request.param
    texts = draw_words(400) + ["é ½ 1 2 3 東京 ☃"] * 5
    size = 700 + 100 * (layout == "t5")
    vocabulary = train_vocabulary(
        texts, size, layout, algorithm, lowercase,
        byte_fallback=byte_fallback, split_digits=lowercase,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("exported")
    family = "t5" if layout == "t5" else "bert"
    write_tokenizer(vocabulary, family, folder, 128)
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    return vocabulary, transformers.AutoTokenizer.from_pretrained(folder), folder


@hypothesis.settings(max_examples=300, deadline=None, derandomize=True, database=None)
@hypothesis.given(text=TEXTS)
def test_any_text_has_the_same_ids(both, text):
    vocabulary, theirs, _ = both
    hypothesis.assume("\ufdd0" not in text and "\ufdd1" not in text)
    assert theirs.encode(text, add_special_tokens=False) == vocabulary.encode(text)


def test_a_text_comes_back(both):
    vocabulary, theirs, folder = both
    text = "the 東京 ☃ walks 1984 🙂 <0x41>"
    ids = vocabulary.encode(text)
    has_bytes = "<0x00>" in vocabulary.pieces
    assert (vocabulary.unk in ids) != has_bytes
    if has_bytes:
        assert theirs.decode(ids) == vocabulary.decode(ids) == text
    again = read_vocabulary(folder)
    texts = ["".join(random.Random(i).choices(ODD, k=8)) for i in range(200)]
    assert again.pieces == vocabulary.pieces
    assert again.encode_batch([text, *texts]) == vocabulary.encode_batch([text, *texts])
