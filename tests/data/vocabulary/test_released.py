import json
import re

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from data.corpus.sentences import DOCUMENT_SEPARATOR, find_sentence_spans
from data.vocabulary.load import load_vocabulary, read_vocabulary

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


def whole_file(path, model, **parts):
    """Write a tokenizer.json."""
    tokenizer = tokenizers.Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.save(str(path))


def test_wordpiece(wordpiece):
    vocabulary = read_vocabulary(wordpiece)
    assert vocabulary.kind == "wordpiece" and vocabulary.options["lowercase"] is True
    assert vocabulary.encode("The WALKING, walked [MASK]") == [9, 6, 7, 2, 6, 8, 10, 12, 11]
    assert (vocabulary.pad, vocabulary.unk, vocabulary.cls, vocabulary.sep, vocabulary.mask) == (
        0,
        2,
        3,
        4,
        5,
    )
    assert vocabulary.special.tolist() == [True] * 6 + [False] * 8
    assert np.flatnonzero(~vocabulary.starts_word).tolist() == [7, 8]


def test_wordpiece_case_is_inferred_from_its_pieces_or_from_its_settings(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\nParis\nparis\n")
    assert read_vocabulary(path).encode("Paris PARIS paris") == [2, 1, 3]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert read_vocabulary(path).encode("Paris PARIS paris") == [3, 3, 3]


def test_byte_bpe(byte_bpe):
    vocabulary = read_vocabulary(byte_bpe)
    assert vocabulary.kind == "byte_bpe" and vocabulary.keeps_spaces
    ids = vocabulary.encode("he the then")
    assert [vocabulary.id_to_piece(i) for i in ids] == ["he", "Ġth", "e", "Ġth", "e", "n"]
    assert vocabulary.starts_word[ids].tolist() == [False, True, False, True, False, False]
    assert vocabulary.starts_word[[vocabulary.encode(mark)[0] for mark in "\n\t\r "]].all()
    names = {
        role: getattr(vocabulary, role)
        for role in ("cls", "pad", "sep", "unk", "mask", "bos", "eos")
    }
    assert [
        vocabulary.id_to_piece(i) for i in names.values()
    ] == "<s> <pad> </s> <unk> <mask> <s> </s>".split()
    assert vocabulary.special.sum() == 5


def test_byte_bpe_sentences_keep_the_blanks_between_them(byte_bpe):
    vocabulary = read_vocabulary(byte_bpe)
    text = "One. Two.\n\nThree."
    raw = text.encode()
    starts, ends = np.array([0, 4, 9]), np.array([4, 9, len(raw)])
    ids, lengths = vocabulary.encode_spans(raw, starts, ends, np.array([0]))
    assert (
        ids.tolist() == vocabulary.encode(text)
        and vocabulary.decode(ids) == text
        and len(lengths) == 3
    )


def test_gpt2s_names_of_the_files(byte_bpe, tmp_path):
    (tmp_path / "encoder.json").write_bytes((byte_bpe / "vocab.json").read_bytes())
    (tmp_path / "vocab.bpe").write_bytes((byte_bpe / "merges.txt").read_bytes())
    for name in ("encoder.json", "vocab.bpe", ""):
        assert read_vocabulary(tmp_path / name) == read_vocabulary(byte_bpe)


def test_word_bpe(word_bpe):
    """Text is lower-cased, split at blanks and punctuation, with </w> at the end of a word; a
    letter without a token is unknown.
    """
    vocabulary = read_vocabulary(word_bpe)
    assert vocabulary.kind == "word_bpe" and not vocabulary.keeps_spaces
    ids = vocabulary.encode("The  THEN, hé\n<unk> ж")
    pieces = "the</w> the n</w> ,</w> h e</w> <unk> u n k</w> <unk> <unk>".split()
    assert [vocabulary.id_to_piece(i) for i in ids] == pieces
    assert vocabulary.decode(vocabulary.encode("The THEN, hé")) == "the then , he"
    assert (vocabulary.unk, vocabulary.eos, vocabulary.pad) == (
        0,
        None,
        None,
    ) and vocabulary.special.sum() == 1


def test_word_bpe_is_preserved(word_bpe, tmp_path):
    vocabulary = read_vocabulary(word_bpe / "merges.txt")
    vocabulary.save(tmp_path)
    assert load_vocabulary(tmp_path) == vocabulary and load_vocabulary(tmp_path).kind == "word_bpe"
    ids = json.loads((word_bpe / "vocab.json").read_text())
    (tmp_path / "vocab.json").write_text(
        json.dumps({piece: i for piece, i in ids.items() if piece != "<unk>"})
    )
    with pytest.raises(ValueError, match="no piece <unk>"):
        read_vocabulary(tmp_path / "vocab.json")


@pytest.mark.more
def test_word_bpe_is_that_of_transformers(word_bpe):
    """Ids equal `OpenAIGPTTokenizer`'s for the same two files, unusual characters included."""
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    vocabulary = read_vocabulary(word_bpe)
    theirs = transformers.OpenAIGPTTokenizer.from_pretrained(word_bpe)
    texts = [*NASTY, "the then, THEN don't the.the", "Hé ÉTÉ 2nd"]
    assert vocabulary.encode_batch(texts) == theirs(texts)["input_ids"]
    assert [vocabulary.decode(ids) for ids in vocabulary.encode_batch(texts)] == [
        theirs.decode(theirs(text)["input_ids"]) for text in texts
    ]


def test_a_folder_gives_the_plain_form_if_tokenizer_json_agrees(wordpiece, tmp_path):
    pieces = wordpiece.read_text().split("\n")[:-1]
    (tmp_path / "vocab.txt").write_text(wordpiece.read_text())
    model = models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    parts = dict(pre_tokenizer=pre_tokenizers.BertPreTokenizer(), decoder=decoders.WordPiece())
    whole_file(
        tmp_path / "tokenizer.json",
        model,
        normalizer=normalizers.BertNormalizer(lowercase=True),
        **parts,
    )
    assert read_vocabulary(tmp_path) == read_vocabulary(wordpiece)
    whole_file(
        tmp_path / "tokenizer.json",
        model,
        normalizer=normalizers.BertNormalizer(lowercase=False),
        **parts,
    )
    assert read_vocabulary(tmp_path).kind == "tokenizer_json"
    assert read_vocabulary(tmp_path).encode("the Walk") == [9, 2]


def test_tokenizer_json_takes_roles_from_the_files_beside_it(tmp_path):
    model = models.WordLevel(
        {"<begin>": 0, "<end>": 1, "walk": 2, "?": 3, "[MASK]": 4, "[PAD]": 5}, unk_token="?"
    )
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
    def expect_refusal(error, message, path, function=read_vocabulary):
        with pytest.raises(error, match=message):
            function(path)

    expect_refusal(FileNotFoundError, "no such vocabulary", tmp_path / "nowhere")
    expect_refusal(FileNotFoundError, "no vocabulary here", tmp_path)
    expect_refusal(FileNotFoundError, "vocabulary.json", tmp_path, load_vocabulary)
    files = {
        "a.model": b"\x00\x01",
        "a.txt": b"walk\n",
        "b.txt": b"[UNK]\nwalk\nwalk\n",
        "c.txt": b"\xff\xfe",
        "a.bin": b"x",
    }
    files |= {"a.json": b"{", "b.json": b'{"model": 3}', "vocab.json": b"{}"}
    for name, contents in files.items():
        (tmp_path / name).write_bytes(contents)
    expect_refusal(ValueError, "not a SentencePiece model", tmp_path / "a.model")
    expect_refusal(ValueError, r"no piece '\[UNK\]'", tmp_path / "a.txt")
    expect_refusal(ValueError, "appear twice", tmp_path / "b.txt")
    expect_refusal(ValueError, "c.txt: not UTF-8", tmp_path / "c.txt")
    expect_refusal(ValueError, "a vocabulary is a", tmp_path / "a.bin")
    expect_refusal(ValueError, "tokenizer.json", tmp_path / "a.json")
    expect_refusal(ValueError, "b.json: tokenizer.json: model.type is 3", tmp_path / "b.json")
    expect_refusal(
        FileNotFoundError, "BPE needs merges.txt in the same folder", tmp_path / "vocab.json"
    )
    vocabulary.save(tmp_path / "saved")
    described = json.loads((tmp_path / "saved" / "vocabulary.json").read_text())
    for change, message in (
        ({"version": 2}, "version 2"),
        ({"kind": "x"}, "kind 'x'"),
        ({"fingerprint": "0"}, "fingerprint"),
    ):
        (tmp_path / "saved" / "vocabulary.json").write_text(json.dumps(described | change))
        expect_refusal(ValueError, message, tmp_path / "saved", load_vocabulary)


# ---- released vocabularies, against goldens and against `transformers`


def read_released(corpora, name):
    return read_vocabulary(
        corpora
        / {"t5": "vocab_t5/t5_spiece.model", "bert": "vocab_bert_uncased", "gpt2": "vocab_gpt2"}[
            name
        ]
    )


def test_t5s_ids_are_the_golden_ones(corpora):
    vocabulary = read_released(corpora, "t5")
    lines = [
        json.loads(line)
        for line in (corpora / "vocab_t5" / "golden_255.jsonl").read_text().splitlines()
    ]
    assert len(lines) == 255
    assert vocabulary.encode_batch([line["text"] for line in lines]) == [
        line["ids"] for line in lines
    ]
    assert [vocabulary.id_to_piece(i) for i in lines[0]["ids"]] == lines[0]["pieces"]
    assert vocabulary.size == 32100 and vocabulary.sentinels == tuple(range(32099, 31999, -1))


@pytest.mark.more
@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_ids_are_those_of_transformers(corpora, name, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    vocabulary = read_released(corpora, name)
    lines = (corpora / "lm_wikitext2_valid" / "valid.txt").read_text().split("\n")[:1000] + NASTY
    if name == "t5":
        lines = [
            line.replace("<unk>", "") for line in lines
        ]  # transformers treats it in a text as a special token
        (tmp_path / "spiece.model").write_bytes(vocabulary.export_files()["spiece.model"])
        theirs = transformers.T5Tokenizer.from_pretrained(tmp_path)
        assert theirs.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_99>"]) == [32099, 32000]
    elif name == "bert":
        (tmp_path / "vocab.txt").write_bytes(vocabulary.export_files()["vocab.txt"])
        theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    else:
        for file, contents in vocabulary.export_files().items():
            (tmp_path / file).write_bytes(contents)
        theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    expected = theirs(lines, add_special_tokens=False)["input_ids"]
    different = [
        line for line, a, b in zip(lines, vocabulary.encode_batch(lines), expected) if a != b
    ]
    assert not different, f"{len(different)} of {len(lines)}, such as {different[0]!r}"
    assert theirs.vocab_size <= vocabulary.size == len(theirs)


@pytest.mark.more
@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_a_folder_that_transformers_saved_is_the_same_vocabulary(corpora, name, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    vocabulary = read_released(corpora, name)
    for file, contents in vocabulary.export_files().items():
        (tmp_path / file).write_bytes(contents)
    kind = {"bert": "BertTokenizer", "gpt2": "GPT2Tokenizer", "t5": "T5Tokenizer"}[name]
    getattr(transformers, kind).from_pretrained(tmp_path).save_pretrained(tmp_path / "saved")
    saved = read_vocabulary(tmp_path / "saved")
    line = "The quick brown fox, naïve café; 3.14 [MASK] of words"
    assert saved.encode(line) == vocabulary.encode(line) and saved.size == vocabulary.size
    assert saved.special.tolist() == vocabulary.special.tolist()
    assert saved.starts_word.tolist() == vocabulary.starts_word.tolist()
    assert saved.sentinels == vocabulary.sentinels


@pytest.mark.parametrize(("name", "specials"), [("bert", 999), ("gpt2", 1), ("t5", 103)])
def test_special_ids_of_released_vocabularies(corpora, name, specials):
    vocabulary = read_released(corpora, name)
    assert vocabulary.special.sum() == specials
    assert 0.3 < vocabulary.starts_word.mean() < 0.9


def test_sentences_of_a_book_are_encoded_together_as_they_are_alone(corpora):
    """Ids differ only where two segmentations have equal scores in single precision: fewer than one
    token in ten thousand.
    """
    vocabulary = read_released(corpora, "t5")
    book = corpora / "books" / "train" / "jane-austen_pride-and-prejudice.jsonl"
    texts = [json.loads(line)["text"] for line in book.read_text().splitlines()]
    raws = [text.encode().strip() for text in texts]
    begins = np.cumsum([0, *(len(raw) + len(DOCUMENT_SEPARATOR) for raw in raws)])[:-1]
    text = DOCUMENT_SEPARATOR.join(raws)
    starts, ends, _ = find_sentence_spans(text, begins)
    ids, lengths = vocabulary.encode_spans(text, starts, ends, np.searchsorted(starts, begins))
    alone = vocabulary.encode_batch([text[a:b].decode() for a, b in zip(starts, ends)])
    together = [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]
    different = sum(len(a) for a, b in zip(alone, together) if a != b)
    assert len(alone) == len(together) > 5000 and different < 1e-4 * len(ids)


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.mark.parametrize(
    ("pieces", "folds", "rule"),
    [
        (["<S>", "<T>", "[Unused]", "the", "river"], True, "case is folded .* no piece has a cap"),
        (["<S>", "the", "The"], False, "case is kept, .* such as 'The'"),
        (["the", "<T"], False, "such as '<T'"),
    ],
)
def test_capitals_in_brackets_do_not_keep_case_and_the_rule_is_printed(
    tmp_path, pieces, folds, rule
):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *pieces]) + "\n")
    vocabulary = read_vocabulary(path)
    assert vocabulary.options["lowercase"] is folds
    assert re.search(rule, vocabulary.reading_note)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert read_vocabulary(path).reading_note == ""


def test_prepare_prints_how_a_list_without_settings_is_read(tmp_path):
    from data.prepare.build import prepare_store
    from data.prepare.request import PrepareRequest

    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "<S>", "the", "river"]) + "\n")
    (tmp_path / "a.txt").write_text("The river\n\nTHE RIVER\n")
    lines = []
    request = PrepareRequest(
        sources=(str(tmp_path / "a.txt"),), vocabulary=str(tmp_path / "vocab.txt"), held_out=0.0
    )
    prepared = prepare_store(request, tmp_path / "store", workers=1, report_progress=lines.append)
    assert any("case is folded" in line for line in lines)
    assert prepared.store.manifest["totals"].get("unknown", 0) == 0
