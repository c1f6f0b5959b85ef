import os

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from data.vocabulary import sentencepiece
from data.vocabulary.base import NUM_SENTINELS
from data.vocabulary.load import load_vocabulary, read_vocabulary, train_vocabulary

SPECIALS = "[PAD] [UNK] [CLS] [SEP] [MASK] <pad> </s> <s> <mask> <extra_id_0> <extra_id_99> <|endoftext|> [unused1]"
NASTY = [
    "",
    "   ",
    "  two  blanks, and a\ttab ",
    "naïve café ½ ﬁ ① ＦＵＬＬ width",
    "東京は日本の首都です。",
    "Привет мир",
    "emoji 🙂👍🏽 and a zero\u200bwidth\u00a0blank",
    "a\u0301 combining, \x07 bell",
    "▁ literal mark ## and Ġ",
    "x" * 300,
]


def _train_again(texts, **options):
    return train_vocabulary(list(texts), 100, **options)


# ---- SentencePiece


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_berts_layout(texts, algorithm):
    vocabulary = _train_again(texts, algorithm=algorithm)
    assert vocabulary.pieces[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert (vocabulary.pad, vocabulary.unk, vocabulary.cls, vocabulary.sep, vocabulary.mask) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert (vocabulary.bos, vocabulary.eos, vocabulary.sentinels) == (None, None, ())
    assert vocabulary.size == len(vocabulary.pieces) == 100
    assert vocabulary.special.tolist() == [True] * 5 + [False] * 95


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_t5s_layout(texts, algorithm):
    vocabulary = train_vocabulary(texts, 180, layout="t5", algorithm=algorithm)
    assert vocabulary.pieces[:3] == ("<pad>", "</s>", "<unk>")
    assert (vocabulary.pad, vocabulary.eos, vocabulary.unk) == (0, 1, 2)
    assert (vocabulary.bos, vocabulary.cls, vocabulary.sep, vocabulary.mask) == (
        None,
        None,
        None,
        None,
    )
    assert vocabulary.size == 180 and len(vocabulary.sentinels) == NUM_SENTINELS
    assert [vocabulary.id_to_piece(i) for i in vocabulary.sentinels[:2]] == [
        "<extra_id_0>",
        "<extra_id_1>",
    ]
    assert vocabulary.sentinels == tuple(range(179, 79, -1))
    assert vocabulary.special.sum() == 3 + NUM_SENTINELS and vocabulary.special[80:].all()


def test_gpts_layout(texts):
    vocabulary = _train_again(texts, layout="gpt")
    assert vocabulary.pieces[:2] == ("<unk>", "<|endoftext|>")
    assert (vocabulary.unk, vocabulary.bos, vocabulary.eos) == (0, 1, 1)
    assert (
        vocabulary.pad,
        vocabulary.cls,
        vocabulary.sep,
        vocabulary.mask,
        vocabulary.sentinels,
    ) == (None, None, None, None, ())
    assert vocabulary.size == 100 and vocabulary.special.tolist() == [True] * 2 + [False] * 98


def test_training_is_repeatable_and_options_matter(texts):
    first = _train_again(texts)
    assert _train_again(texts).fingerprint == first.fingerprint
    assert _train_again(texts[:-9]).fingerprint != first.fingerprint
    folded = train_vocabulary(texts, 70, lowercase=True)
    assert folded.encode("WALKING Talked") == folded.encode("walking talked")
    assert first.encode("WALKING") != first.encode("walking")


@pytest.mark.parametrize(
    ("size", "layout", "message"),
    [
        (9000, "bert", r"at most (\d+): --vocab-size \1"),
        (20, "bert", r"needs at least \d+"),
        (110, "t5", r"needs at least 116 ids, not 110"),
        (9000, "xlnet", r"allowed are bert, t5, ul2, gpt"),
    ],
)
def test_training_reports_errors(texts, size, layout, message):
    with pytest.raises(ValueError, match=message):
        train_vocabulary(texts, size, layout=layout)


def test_the_largest_size_that_the_message_gives_works(texts):
    with pytest.raises(ValueError, match="at most") as caught:
        train_vocabulary(texts, 9000, layout="t5")
    most = int(str(caught.value).split()[-1])
    assert train_vocabulary(texts, most, layout="t5").size == most


def test_no_text_is_an_error():
    for nothing in ([], ["", "   "]):
        with pytest.raises(ValueError, match="no text|too small"):
            train_vocabulary(nothing, 100)
        with pytest.raises(ValueError, match="no text"):
            train_vocabulary(nothing, 100, algorithm="words")


def test_long_lines_are_cut_not_left_out(texts):
    """The library would silently drop a line of more than 4192 bytes; here all text is in one such
    line.
    """
    line = " ".join(texts)
    assert len(line) > 2 * 4192
    assert {"▁walk", "▁talk"} <= set(train_vocabulary([line], 96).pieces)


def test_sentences_are_encoded_together_as_they_are_alone(texts, vocabulary, t5_vocabulary):
    for words in (vocabulary, t5_vocabulary, _train_again(texts, algorithm="bpe")):
        sentences = [text.strip() for text in [*texts[:40], *NASTY, SPECIALS] if text.strip()] * 5
        text, starts = b"", []
        for sentence in sentences:
            starts.append(len(text))
            text += sentence.encode() + b"  \n"
        ends = [start + len(sentence.encode()) for start, sentence in zip(starts, sentences)]
        first = np.unique([0, 1, 2, 50, 51, len(sentences) - 1])
        ids, lengths = words.encode_spans(text, np.array(starts), np.array(ends), first)
        assert ids.dtype == np.int32 and lengths.sum() == len(ids)
        alone = words.encode_batch(sentences)
        assert [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] == alone


def test_the_reserved_character_cannot_confuse_sentences(vocabulary):
    text = "walk\ufdd0 talk".encode()
    ids, lengths = vocabulary.encode_spans(
        text, np.array([0]), np.array([len(text)]), np.array([0])
    )
    assert lengths.tolist() == [len(ids)] and ids.tolist() == vocabulary.encode("walk\ufdd0 talk")


def test_a_documents_ids_do_not_depend_on_its_neighbours(vocabulary, texts):
    def encode_documents(*documents):
        text, spans = b"", []
        for document in documents:
            spans.append((len(text), len(text) + len(document)))
            text += document + b"\n\n"
        starts, ends = np.array(spans).T
        return vocabulary.encode_spans(text, starts, ends, np.arange(len(documents)))

    one, other = "".join(texts[:60]).encode(), "".join(texts[60:200]).encode()
    both, lengths = encode_documents(one, other)
    assert both.tolist() == encode_documents(one)[0].tolist() + encode_documents(other)[0].tolist()


def test_sentences_are_joined_within_documents_and_bounds():
    text = b"".join(b"s%05d" % i for i in range(2000))
    starts = np.arange(0, len(text), 6)
    first = np.array([0, 1, 2, 1500])
    groups = sentencepiece._join_sentences(text, starts, starts + 6, first)
    joined = [group.split("\ufdd0 ".encode()) for group in groups]
    assert b"".join(sentence for group in joined for sentence in group) == text
    assert {int(group[0][1:]) for group in joined} >= set(first.tolist())
    assert 5 < len(groups) < 10 and all(
        len(group) <= sentencepiece.GROUP_BYTES / 6 + 1 for group in joined
    )


# ---- byte BPE


def test_robertas_layout(texts):
    vocabulary = train_vocabulary(texts, 300, layout="roberta", algorithm="byte_bpe")
    assert vocabulary.size == 300 and vocabulary.kind == "byte_bpe" and vocabulary.keeps_spaces
    assert (
        vocabulary.pieces[:4] == ("<s>", "<pad>", "</s>", "<unk>")
        and vocabulary.pieces[-1] == "<mask>"
    )
    assert (vocabulary.cls, vocabulary.pad, vocabulary.sep, vocabulary.unk, vocabulary.mask) == (
        0,
        1,
        2,
        3,
        299,
    )
    assert vocabulary.special.tolist() == [True] * 4 + [False] * 295 + [True]
    assert "Ġw" in vocabulary.pieces and vocabulary.starts_word[vocabulary.pieces.index("Ġw")]


def test_gpt2s_layout(texts):
    vocabulary = train_vocabulary(texts, 300, layout="gpt2", algorithm="byte_bpe")
    assert vocabulary.pieces[-1] == "<|endoftext|>" and vocabulary.eos == vocabulary.bos == 299
    assert (
        vocabulary.special.sum() == 1
        and vocabulary.mask is vocabulary.unk is vocabulary.pad is None
    )


def test_bytes_are_never_unknown_and_decode_to_the_text(texts):
    """Special names are text in a corpus and are never learned as tokens, however frequent."""
    named = [*texts, *(f"{SPECIALS}{name}" for name in SPECIALS.split() * 20)]
    vocabulary = train_vocabulary(named, 330, layout="roberta", algorithm="byte_bpe")
    for text in [*NASTY, SPECIALS, *texts[:20]]:
        ids = vocabulary.encode(text)
        assert not vocabulary.special[ids].any() and vocabulary.decode(ids) == text


def test_byte_training_is_repeatable_saved_and_loaded(texts, tmp_path, monkeypatch):
    first = train_vocabulary(texts, 320, layout="roberta", algorithm="byte_bpe")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    again = train_vocabulary(iter(texts), 320, layout="roberta", algorithm="byte_bpe")
    assert (
        again.export_files() == first.export_files()
        and os.environ["TOKENIZERS_PARALLELISM"] == "true"
    )
    assert train_vocabulary(texts[:-40], 320, layout="roberta", algorithm="byte_bpe") != first
    first.save(tmp_path / "saved")
    assert (
        load_vocabulary(tmp_path / "saved")
        == first
        == read_vocabulary(tmp_path / "saved" / "vocab.json")
    )
    assert load_vocabulary(tmp_path / "saved").encode_batch(NASTY) == first.encode_batch(NASTY)


def test_byte_training_reports_errors(texts):
    for size, options, message in (
        (300, dict(layout="bert"), "layout 'bert': byte_bpe has roberta, gpt2"),
        (260, dict(layout="roberta"), "needs at least 261 ids, not 260"),
        (300, dict(layout="roberta", lowercase=True), "byte_bpe does not fold case"),
    ):
        with pytest.raises(ValueError, match=message):
            train_vocabulary(texts, size, algorithm="byte_bpe", **options)
    with pytest.raises(ValueError, match=r"at most (\d+): --vocab-size \1") as caught:
        train_vocabulary(texts, 9000, layout="roberta", algorithm="byte_bpe")
    most = int(str(caught.value).split()[-1])
    assert train_vocabulary(texts, most, layout="roberta", algorithm="byte_bpe").size == most


# ---- what all kinds promise


@pytest.fixture(params=["bert", "t5", "bpe", "wordpiece", "byte_bpe", "tokenizer_json"])
def any_kind(request, texts, wordpiece, byte_bpe, tmp_path):
    if request.param == "wordpiece":
        return read_vocabulary(wordpiece)
    if request.param == "byte_bpe":
        return read_vocabulary(byte_bpe)
    if request.param == "tokenizer_json":
        pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] ▁ ▁walk ing [ ] M A S K ▁[ e r".split()
        model = models.Unigram(
            [(piece, 0.0 if i < 5 else -1.0 - i) for i, piece in enumerate(pieces)], unk_id=1
        )
        space = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.pre_tokenizer, tokenizer.decoder = space, decoders.Metaspace()
        tokenizer.add_special_tokens(pieces[:5])
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        return read_vocabulary(tmp_path / "tokenizer.json")
    options = {"t5": {"layout": "t5"}, "bpe": {"algorithm": "bpe"}, "bert": {}}[request.param]
    return (
        train_vocabulary(texts, 180, **options)
        if request.param == "t5"
        else _train_again(texts, **options)
    )


def test_special_names_in_text_are_text(any_kind):
    """Encoding text yields no special id except the unknown token's."""
    for text in [
        SPECIALS,
        *SPECIALS.split(),
        *(f"walk{name}walk" for name in SPECIALS.split()),
        *NASTY,
    ]:
        ids = np.array(any_kind.encode(text), int)
        assert not (any_kind.special[ids] & (ids != any_kind.unk)).any(), text


def test_save_and_load(any_kind, tmp_path):
    any_kind.save(tmp_path / "saved")
    loaded = load_vocabulary(tmp_path / "saved")
    assert loaded == any_kind and loaded.fingerprint == any_kind.fingerprint
    assert loaded.encode_batch([*NASTY, SPECIALS]) == any_kind.encode_batch([*NASTY, SPECIALS])
    for name in (
        "kind", "size", "pieces", "pad", "unk", "cls", "sep", "mask", "bos", "eos", "sentinels",
        "options",
    ):  # fmt: skip
        assert getattr(loaded, name) == getattr(any_kind, name)
    assert read_vocabulary(tmp_path / "saved") == any_kind


def test_masks_are_read_only_and_of_the_right_size(any_kind):
    for mask in (any_kind.special, any_kind.starts_word):
        assert mask.shape == (any_kind.size,) and mask.dtype == np.bool_
        with pytest.raises(ValueError, match="read-only"):
            mask[0] = True


def test_special_pieces_are_separate_tokens(any_kind):
    """All tokens begin a word, except that the unknown token may continue one."""
    known = np.arange(any_kind.size) != any_kind.unk
    assert any_kind.starts_word[any_kind.special & known].all()


def test_every_word_has_one_beginning(any_kind):
    """The token follows the first word, whose leading mark byte BPE lacks."""
    ids = any_kind.encode("walk walking walked walker")[1:]
    if any_kind.unk not in ids:
        assert any_kind.starts_word[ids].sum() == 3


def test_decode_is_the_text(texts, vocabulary, byte_bpe, wordpiece):
    for sentence in texts[:20]:
        assert vocabulary.decode(vocabulary.encode(sentence)) == sentence
    assert (
        read_vocabulary(byte_bpe).decode(read_vocabulary(byte_bpe).encode(" the\n½ end"))
        == " the\n½ end"
    )
    assert read_vocabulary(wordpiece).decode([9, 6, 7]) == "the walking"
    walk = vocabulary.encode("walk")
    assert vocabulary.decode([2, *walk, 4, *walk, 3, 0]) == "[CLS] walk [MASK] walk [SEP] [PAD]"
    assert vocabulary.decode(np.array([2, *walk], np.uint16)) == "[CLS] walk"


def test_fingerprint_is_of_the_vocabulary_not_of_the_file(wordpiece, tmp_path):
    text = wordpiece.read_text()
    crlf = tmp_path / "vocab.txt"
    crlf.write_bytes(text.replace("\n", "\r\n").encode())
    assert read_vocabulary(crlf).fingerprint == read_vocabulary(wordpiece).fingerprint
    crlf.write_text(text.replace("walk", "talk"))
    assert read_vocabulary(crlf).fingerprint != read_vocabulary(wordpiece).fingerprint
    crlf.write_text(text)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert read_vocabulary(crlf).fingerprint != read_vocabulary(wordpiece).fingerprint
