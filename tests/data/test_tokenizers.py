import json

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from data.tokenizers import load_vocabulary, read_vocabulary, train_vocabulary
from data.vocabulary import SENTINELS

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


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory):
    """A WordPiece vocabulary small enough to know its ids by heart."""
    pieces = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "walk", "##ing", "##ed", "the", "[", "]", "mask", "un"]
    path = tmp_path_factory.mktemp("wordpiece") / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n")
    return path


@pytest.fixture(scope="module")
def byte_bpe(tmp_path_factory):
    """A byte BPE of RoBERTa's form: special pieces, 256 bytes, three merges."""
    folder = tmp_path_factory.mktemp("bpe")
    names = ["<s>", "<pad>", "</s>", "<unk>"] + sorted(pre_tokenizers.ByteLevel.alphabet()) + ["Ġt", "Ġth", "he", "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\nĠ t\nĠt h\nh e\n")
    return folder


def whole_file(path, model, **parts):
    """Write a tokenizer.json."""
    tokenizer = tokenizers.Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.save(str(path))


# ---- SentencePiece


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_berts_layout(texts, algorithm):
    vocabulary = _train_again(texts, algorithm=algorithm)
    assert vocabulary.pieces[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert (vocabulary.pad, vocabulary.unk, vocabulary.cls, vocabulary.sep, vocabulary.mask) == (0, 1, 2, 3, 4)
    assert (vocabulary.bos, vocabulary.eos, vocabulary.sentinels) == (None, None, ())
    assert vocabulary.size == len(vocabulary.pieces) == 100
    assert vocabulary.special.tolist() == [True] * 5 + [False] * 95


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_t5s_layout(texts, algorithm):
    vocabulary = train_vocabulary(texts, 180, layout="t5", algorithm=algorithm)
    assert vocabulary.pieces[:3] == ("<pad>", "</s>", "<unk>")
    assert (vocabulary.pad, vocabulary.eos, vocabulary.unk) == (0, 1, 2)
    assert (vocabulary.bos, vocabulary.cls, vocabulary.sep, vocabulary.mask) == (None, None, None, None)
    assert vocabulary.size == 180 and len(vocabulary.sentinels) == SENTINELS
    assert [vocabulary.piece(i) for i in vocabulary.sentinels[:2]] == ["<extra_id_0>", "<extra_id_1>"]
    assert vocabulary.sentinels == tuple(range(179, 79, -1))
    assert vocabulary.special.sum() == 3 + SENTINELS and vocabulary.special[80:].all()


def test_training_is_repeatable_and_options_matter(texts):
    first = _train_again(texts)
    assert _train_again(texts).fingerprint == first.fingerprint
    assert _train_again(texts[:-9]).fingerprint != first.fingerprint
    folded = train_vocabulary(texts, 70, lowercase=True)
    assert folded.encode("WALKING Talked") == folded.encode("walking talked")
    assert first.encode("WALKING") != first.encode("walking")


@pytest.mark.parametrize(
    "size, layout, message",
    [
        (9000, "bert", r"at most (\d+): --vocab-size \1"),
        (20, "bert", r"takes at least \d+"),
        (110, "t5", r"needs at least 116 ids, not 110"),
        (9000, "gpt", r"one of bert, t5"),
    ],
)
def test_training_says_what_is_wrong(texts, size, layout, message):
    with pytest.raises(ValueError, match=message):
        train_vocabulary(texts, size, layout=layout)


def test_the_largest_size_that_the_message_gives_works(texts):
    with pytest.raises(ValueError) as caught:
        train_vocabulary(texts, 9000, layout="t5")
    most = int(str(caught.value).split()[-1])
    assert train_vocabulary(texts, most, layout="t5").size == most


def test_no_text_is_an_error():
    for nothing in ([], ["", "   "]):
        with pytest.raises(ValueError, match="no text|too small"):
            train_vocabulary(nothing, 100)


def test_long_lines_are_cut_not_left_out(texts):
    """The library would drop a line of more than 4192 bytes without a word; here all text is in such a line."""
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
    ids, lengths = vocabulary.encode_spans(text, np.array([0]), np.array([len(text)]), np.array([0]))
    assert lengths.tolist() == [len(ids)] and ids.tolist() == vocabulary.encode("walk\ufdd0 talk")


def test_a_documents_ids_do_not_depend_on_its_neighbours(vocabulary, texts):
    def ids(*documents):
        text, spans = b"", []
        for document in documents:
            spans.append((len(text), len(text) + len(document)))
            text += document + b"\n\n"
        starts, ends = np.array(spans).T
        return vocabulary.encode_spans(text, starts, ends, np.arange(len(documents)))

    one, other = "".join(texts[:60]).encode(), "".join(texts[60:200]).encode()
    both, lengths = ids(one, other)
    assert both.tolist() == ids(one)[0].tolist() + ids(other)[0].tolist()


# ---- what all kinds promise


@pytest.fixture(params=["bert", "t5", "bpe", "wordpiece", "byte_bpe", "tokenizer_json"])
def any_kind(request, texts, wordpiece, byte_bpe, tmp_path):
    if request.param == "wordpiece":
        return read_vocabulary(wordpiece)
    if request.param == "byte_bpe":
        return read_vocabulary(byte_bpe)
    if request.param == "tokenizer_json":
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁", "▁walk", "ing", "[", "]", "M", "A", "S", "K", "▁[", "e", "r"]
        model = models.Unigram([(piece, 0.0 if i < 5 else -1.0 - i) for i, piece in enumerate(pieces)], unk_id=1)
        space = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
        whole_file(tmp_path / "tokenizer.json", model, pre_tokenizer=space, decoder=decoders.Metaspace())
        return read_vocabulary(tmp_path / "tokenizer.json")
    options = {"t5": {"layout": "t5"}, "bpe": {"algorithm": "bpe"}, "bert": {}}[request.param]
    return train_vocabulary(texts, 180, **options) if request.param == "t5" else _train_again(texts, **options)


def test_special_names_in_text_are_text(any_kind):
    """But for the unknown piece, no special id comes out of any text."""
    for text in [SPECIALS, *SPECIALS.split(), *(f"walk{name}walk" for name in SPECIALS.split()), *NASTY]:
        ids = np.array(any_kind.encode(text), int)
        assert not (any_kind.special[ids] & (ids != any_kind.unk)).any(), text


def test_save_and_load(any_kind, tmp_path):
    any_kind.save(tmp_path / "saved")
    loaded = load_vocabulary(tmp_path / "saved")
    assert loaded == any_kind and loaded.fingerprint == any_kind.fingerprint
    assert loaded.encode_batch([*NASTY, SPECIALS]) == any_kind.encode_batch([*NASTY, SPECIALS])
    for name in ("kind", "size", "pieces", "pad", "unk", "cls", "sep", "mask", "bos", "eos", "sentinels", "options"):
        assert getattr(loaded, name) == getattr(any_kind, name)
    assert read_vocabulary(tmp_path / "saved") == any_kind


def test_masks_are_read_only_and_of_the_right_size(any_kind):
    for mask in (any_kind.special, any_kind.starts_word):
        assert mask.shape == (any_kind.size,) and mask.dtype == np.bool_
        with pytest.raises(ValueError, match="read-only"):
            mask[0] = True


def test_every_word_has_one_beginning(any_kind):
    """Behind the first word, whose mark byte BPE lacks."""
    ids = any_kind.encode("walk walking walked walker")[1:]
    if any_kind.unk not in ids:
        assert any_kind.starts_word[ids].sum() == 3


def test_decode_is_the_text(texts, vocabulary, byte_bpe, wordpiece):
    for sentence in texts[:20]:
        assert vocabulary.decode(vocabulary.encode(sentence)) == sentence
    assert read_vocabulary(byte_bpe).decode(read_vocabulary(byte_bpe).encode(" the\n½ end")) == " the\n½ end"
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


# ---- released forms


def test_wordpiece(wordpiece):
    vocabulary = read_vocabulary(wordpiece)
    assert vocabulary.kind == "wordpiece" and vocabulary.options["lowercase"] is True
    assert vocabulary.encode("The WALKING, walked [MASK]") == [9, 6, 7, 2, 6, 8, 10, 12, 11]
    assert (vocabulary.pad, vocabulary.unk, vocabulary.cls, vocabulary.sep, vocabulary.mask) == (0, 2, 3, 4, 5)
    assert vocabulary.special.tolist() == [True] * 6 + [False] * 8
    assert np.flatnonzero(~vocabulary.starts_word).tolist() == [7, 8]


def test_wordpiece_case_is_told_by_its_pieces_or_by_the_settings_beside_it(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\nParis\nparis\n")
    assert read_vocabulary(path).encode("Paris PARIS paris") == [2, 1, 3]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert read_vocabulary(path).encode("Paris PARIS paris") == [3, 3, 3]


def test_byte_bpe(byte_bpe):
    vocabulary = read_vocabulary(byte_bpe)
    assert vocabulary.kind == "byte_bpe" and vocabulary.keeps_spaces
    ids = vocabulary.encode("he the then")
    assert [vocabulary.piece(i) for i in ids] == ["he", "Ġth", "e", "Ġth", "e", "n"]
    assert vocabulary.starts_word[ids].tolist() == [False, True, False, True, False, False]
    assert vocabulary.starts_word[[vocabulary.encode(mark)[0] for mark in "\n\t\r "]].all()
    names = {role: getattr(vocabulary, role) for role in ("cls", "pad", "sep", "unk", "mask", "bos", "eos")}
    assert [vocabulary.piece(i) for i in names.values()] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<s>", "</s>"]
    assert vocabulary.special.sum() == 5


def test_byte_bpe_sentences_keep_the_blanks_between_them(byte_bpe):
    vocabulary = read_vocabulary(byte_bpe)
    text = "One. Two.\n\nThree."
    raw = text.encode()
    starts, ends = np.array([0, 4, 9]), np.array([4, 9, len(raw)])
    ids, lengths = vocabulary.encode_spans(raw, starts, ends, np.array([0]))
    assert ids.tolist() == vocabulary.encode(text) and vocabulary.decode(ids) == text and len(lengths) == 3


def test_gpt2s_names_of_the_files(byte_bpe, tmp_path):
    (tmp_path / "encoder.json").write_bytes((byte_bpe / "vocab.json").read_bytes())
    (tmp_path / "vocab.bpe").write_bytes((byte_bpe / "merges.txt").read_bytes())
    for name in ("encoder.json", "vocab.bpe", ""):
        assert read_vocabulary(tmp_path / name) == read_vocabulary(byte_bpe)


def test_a_folder_gives_the_plain_form_if_tokenizer_json_agrees(wordpiece, tmp_path):
    pieces = wordpiece.read_text().split("\n")[:-1]
    (tmp_path / "vocab.txt").write_text(wordpiece.read_text())
    model = models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    parts = dict(pre_tokenizer=pre_tokenizers.BertPreTokenizer(), decoder=decoders.WordPiece())
    whole_file(tmp_path / "tokenizer.json", model, normalizer=normalizers.BertNormalizer(lowercase=True), **parts)
    assert read_vocabulary(tmp_path) == read_vocabulary(wordpiece)
    whole_file(tmp_path / "tokenizer.json", model, normalizer=normalizers.BertNormalizer(lowercase=False), **parts)
    assert read_vocabulary(tmp_path).kind == "tokenizer_json"
    assert read_vocabulary(tmp_path).encode("the Walk") == [9, 2]


def test_tokenizer_json_takes_roles_from_the_files_beside_it(tmp_path):
    model = models.WordLevel({"<begin>": 0, "<end>": 1, "walk": 2, "?": 3, "[MASK]": 4, "[PAD]": 5}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<begin>", "<end>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    settings = {"cls_token": "<begin>", "sep_token": {"content": "<end>"}, "unk_token": "?"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(settings))
    vocabulary = read_vocabulary(tmp_path)
    assert (vocabulary.cls, vocabulary.sep, vocabulary.unk, vocabulary.mask) == (0, 1, 3, 4)
    vocabulary.save(tmp_path / "saved")
    assert load_vocabulary(tmp_path / "saved") == vocabulary


def test_refusals(tmp_path, wordpiece, byte_bpe, vocabulary):
    def refused(error, message, path, function=read_vocabulary):
        with pytest.raises(error, match=message):
            function(path)

    refused(FileNotFoundError, "no such vocabulary", tmp_path / "nowhere")
    refused(FileNotFoundError, "no vocabulary here", tmp_path)
    refused(FileNotFoundError, "vocabulary.json", tmp_path, load_vocabulary)
    files = {"a.model": b"\x00\x01", "a.txt": b"walk\n", "b.txt": b"[UNK]\nwalk\nwalk\n", "c.txt": b"\xff\xfe", "a.bin": b"x"}
    files |= {"a.json": b"{", "b.json": b'{"model": 3}', "vocab.json": b"{}"}
    for name, contents in files.items():
        (tmp_path / name).write_bytes(contents)
    refused(ValueError, "not a SentencePiece model", tmp_path / "a.model")
    refused(ValueError, r"no piece \[UNK\]", tmp_path / "a.txt")
    refused(ValueError, "appear twice", tmp_path / "b.txt")
    refused(ValueError, "not a vocabulary", tmp_path / "c.txt")
    refused(ValueError, "a vocabulary is a", tmp_path / "a.bin")
    refused(ValueError, "tokenizer.json", tmp_path / "a.json")
    refused(ValueError, "cannot read it", tmp_path / "b.json")
    refused(FileNotFoundError, "merges.txt beside it", tmp_path / "vocab.json")
    vocabulary.save(tmp_path / "saved")
    described = json.loads((tmp_path / "saved" / "vocabulary.json").read_text())
    for change, message in (({"version": 2}, "version 2"), ({"kind": "x"}, "kind 'x'"), ({"fingerprint": "0"}, "fingerprint")):
        (tmp_path / "saved" / "vocabulary.json").write_text(json.dumps(described | change))
        refused(ValueError, message, tmp_path / "saved", load_vocabulary)


# ---- released vocabularies, against goldens and against `transformers`


def released(corpora, name):
    return read_vocabulary(corpora / {"t5": "vocab_t5/t5_spiece.model", "bert": "vocab_bert_uncased", "gpt2": "vocab_gpt2"}[name])


def test_t5s_ids_are_the_golden_ones(corpora):
    vocabulary = released(corpora, "t5")
    lines = [json.loads(line) for line in (corpora / "vocab_t5" / "golden_255.jsonl").read_text().splitlines()]
    assert len(lines) == 255
    assert vocabulary.encode_batch([line["text"] for line in lines]) == [line["ids"] for line in lines]
    assert [vocabulary.piece(i) for i in lines[0]["ids"]] == lines[0]["pieces"]
    assert vocabulary.size == 32100 and vocabulary.sentinels == tuple(range(32099, 31999, -1))


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_ids_are_those_of_transformers(corpora, name, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    vocabulary = released(corpora, name)
    lines = (corpora / "lm_wikitext2_valid" / "valid.txt").read_text().split("\n")[:1000] + NASTY
    if name == "t5":
        lines = [line.replace("<unk>", "") for line in lines]  # transformers takes it out of text as a special piece
        (tmp_path / "spiece.model").write_bytes(vocabulary.files()["spiece.model"])
        theirs = transformers.T5Tokenizer.from_pretrained(tmp_path)
        assert theirs.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_99>"]) == [32099, 32000]
    elif name == "bert":
        (tmp_path / "vocab.txt").write_bytes(vocabulary.files()["vocab.txt"])
        theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    else:
        for file, contents in vocabulary.files().items():
            (tmp_path / file).write_bytes(contents)
        theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    expected = theirs(lines, add_special_tokens=False)["input_ids"]
    different = [line for line, a, b in zip(lines, vocabulary.encode_batch(lines), expected) if a != b]
    assert not different, f"{len(different)} of {len(lines)}, such as {different[0]!r}"
    assert theirs.vocab_size <= vocabulary.size == len(theirs)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_a_folder_that_transformers_saved_is_the_same_vocabulary(corpora, name, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    vocabulary = released(corpora, name)
    for file, contents in vocabulary.files().items():
        (tmp_path / file).write_bytes(contents)
    kind = {"bert": "BertTokenizer", "gpt2": "GPT2Tokenizer", "t5": "T5Tokenizer"}[name]
    getattr(transformers, kind).from_pretrained(tmp_path).save_pretrained(tmp_path / "saved")
    saved = read_vocabulary(tmp_path / "saved")
    line = "The quick brown fox, naïve café; 3.14 [MASK] of words"
    assert saved.encode(line) == vocabulary.encode(line) and saved.size == vocabulary.size
    assert saved.special.tolist() == vocabulary.special.tolist()
    assert saved.starts_word.tolist() == vocabulary.starts_word.tolist()
    assert saved.sentinels == vocabulary.sentinels


@pytest.mark.parametrize("name, specials", [("bert", 999), ("gpt2", 1), ("t5", 103)])
def test_special_ids_of_released_vocabularies(corpora, name, specials):
    vocabulary = released(corpora, name)
    assert vocabulary.special.sum() == specials
    assert 0.3 < vocabulary.starts_word.mean() < 0.9
