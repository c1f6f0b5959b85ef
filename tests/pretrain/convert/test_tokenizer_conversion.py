"""The exported tokenizer gives the ids of the vocabulary that the model was trained with."""

import importlib.util
import json
import pathlib
import pydoc_data.topics
import random
import re

import pytest
import tokenizers

from data.vocabulary.load import read_vocabulary, train_vocabulary
from data.vocabulary.sentencepiece import SentencePieceVocabulary
from data.vocabulary.sentencepiece_proto import ModelProto, SentencePiece
from pretrain.convert import sentencepiece_pipeline as spm
from pretrain.convert import tokenizer

pytestmark = pytest.mark.fast

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
NASTY = [
    *("", " ", "   ", "  leading and trailing  ", "line with\ttab", "a\r\nb", "\x07bell", "\x07"),
    *("\x00nul", "\ufeffbom"),
    *("Ça va très bien — naïve café ½ ﬁ ①", "a\u0301 combining", "e\u0301\u0301\u0301", "\u0301first", "o\u0323\u0302"),
    *("東京は日本の首都です。", "ｶﾞｷﾞ ﾊﾟ", "각 가", "ＦＵＬＬwidth ～", "\u3000wide\u3000 blank"),
    *("Привет мир  с   пробелами", "क्षत्रिय देवनागरी", "ไทย ภาษา", "ﷺ العربية", "ß ǅ İstanbul ſ"),
    *("\u01f3\u0334 \u33a1\u0301",),
    *("emoji 🙂👍🏽 test", "👨‍👩‍👧‍👦 family 🇫🇷🇩🇪", "zero\u200bwidth\u00a0nbsp\u00adsoft",),
    *("\u200d\u200djoiner", "sep\u2028\u2029"),
    *("▁ written out", "▁", "▁▁ a ▁", "a ▁", "don't we'll 1,000.5%", "a \nb ▁\n c \n", "x" * 300, "UPPER lower MiXeD"),
]  # fmt: skip
# Several segmentations of "-----" have the same score. Float32 sums (SentencePiece) and float64 sums
# (tokenizers) break the tie by rounding, unless the scores are as coarse as those that Cloze
# trains. It happens only in runs of one character.
RULER = re.compile(r"(\S)\1{3}|www")


def list_topic_lines():
    return [
        line
        for topic in sorted(pydoc_data.topics.topics)
        for line in pydoc_data.topics.topics[topic].split("\n")
    ]


@pytest.fixture(scope="module")
def lines():
    """Return 1,000 lines: English of the built-in corpus with blank lines and indentation, and
    difficult cases.
    """
    text = random.Random(0).sample(
        [line for line in list_topic_lines() if "[MASK]" not in line and "<s>" not in line],
        1000 - len(NASTY),
    )
    return text + NASTY


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    """Return {name: (family, vocabulary)}, one of every kind."""
    text = list_topic_lines()[:4000]
    folder = tmp_path_factory.mktemp("vocabularies")
    words = sorted({word for line in text for word in re.findall(r"[a-z]+", line.lower())})[::3]
    letters = sorted(
        {
            letter
            for line in [*text, *NASTY]
            for letter in line.lower()
            if letter.isprintable() and letter != " "
        }
    )
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    pieces += [word for word in words if word not in letters]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    trained = tokenizers.ByteLevelBPETokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(text, vocab_size=600, show_progress=False, special_tokens=specials)
    trained.save_model(str(folder))
    wordpiece = read_vocabulary(folder / "vocab.txt")
    (folder / "json").mkdir()
    tokenizer.build_tokenizer(wordpiece, "bert").save(str(folder / "json" / "tokenizer.json"))
    return {
        "unigram": ("bert", train_vocabulary(text, 700)),
        "bpe": ("albert", train_vocabulary(text, 700, algorithm="bpe")),
        "lowercase": ("electra", train_vocabulary(text, 500, algorithm="bpe", lowercase=True)),
        "t5": ("t5", train_vocabulary(text, 800, layout="t5")),
        "t5_bpe": ("t5", train_vocabulary(text, 800, layout="t5", algorithm="bpe")),
        "wordpiece": ("bert", wordpiece),
        "byte_bpe": ("bert", read_vocabulary(folder / "vocab.json")),
        "json": ("bert", read_vocabulary(folder / "json")),
        "roberta": ("roberta", train_vocabulary(text, 500, layout="roberta", algorithm="byte_bpe")),
        "gpt": ("gpt2", train_vocabulary(text, 700, layout="gpt")),
        "gpt2": ("gpt2", train_vocabulary(text, 500, layout="gpt2", algorithm="byte_bpe")),
        "word_bpe": ("openai-gpt", word_bpe(text, folder / "word_bpe")),
    }


def word_bpe(text, folder):
    """Return a vocabulary in GPT's form, with the unknown token first."""
    trained = tokenizers.CharBPETokenizer(
        lowercase=True, bert_normalizer=True, split_on_whitespace_only=False
    )
    trained.train_from_iterator(text, vocab_size=500, show_progress=False, special_tokens=["<unk>"])
    folder.mkdir()
    trained.save_model(str(folder))
    return read_vocabulary(folder)


KINDS = (
    "unigram", "bpe", "lowercase", "t5", "t5_bpe", "wordpiece", "byte_bpe", "json", "roberta",
    "gpt", "gpt2", "word_bpe",
)  # fmt: skip
GPTS = ("openai-gpt", "gpt2")


@pytest.fixture(scope="module", params=KINDS)
def exported(request, vocabularies, tmp_path_factory):
    """Return (name, family, vocabulary, folder of the tokenizer's files)."""
    family, vocabulary = vocabularies[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer.write_tokenizer(vocabulary, family, folder, 128)
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    return request.param, family, vocabulary, folder


def test_ids_of_a_thousand_lines(exported, lines):
    name, _, vocabulary, folder = exported
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert len(lines) > 930
    encoded = theirs.encode_batch(lines, add_special_tokens=False)
    different = [
        line
        for line, ours, it in zip(lines, vocabulary.encode_batch(lines), encoded)
        if ours != it.ids
    ]
    assert not different


def test_text_of_ids(exported, lines):
    name, _, vocabulary, folder = exported
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = [ids for ids in vocabulary.encode_batch(lines) if vocabulary.unk not in ids]
    assert len(rows) > 900
    assert [theirs.decode(ids, skip_special_tokens=False) for ids in rows] == [
        vocabulary.decode(ids) for ids in rows
    ]


def test_specials_surround_a_text(exported):
    name, family, vocabulary, folder = exported
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    a, b = vocabulary.encode("the reader"), vocabulary.encode("the words")
    pair = theirs.encode("the reader", "the words")
    if family in GPTS:
        assert theirs.encode("the reader").ids == a and pair.ids == a + b
    elif family == "t5":
        assert theirs.encode("the reader").ids == a + [vocabulary.eos]
        assert pair.ids == a + [vocabulary.eos] + b + [vocabulary.eos]
    elif family == "roberta":
        assert theirs.encode("the reader").ids == [vocabulary.cls] + a + [vocabulary.sep]
        assert pair.ids == [vocabulary.cls] + a + [vocabulary.sep, vocabulary.sep] + b + [
            vocabulary.sep
        ]
        assert not any(pair.type_ids)
    else:
        assert theirs.encode("the reader").ids == [vocabulary.cls] + a + [vocabulary.sep]
        assert pair.ids == [vocabulary.cls] + a + [vocabulary.sep] + b + [vocabulary.sep]
        assert pair.type_ids == [0] * (len(a) + 2) + [1] * (len(b) + 1)


def test_a_gap_takes_no_blank_with_it(exported):
    """Text around a special token is tokenised as around a word: no blank before ".", one before
    "now".
    """
    name, family, vocabulary, folder = exported
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    if family in GPTS:
        pytest.skip("it has no gaps")
    gap = vocabulary.sentinels[0] if family == "t5" else vocabulary.mask
    ids = theirs.encode(
        f"the {vocabulary.pieces[gap]} now {vocabulary.pieces[gap]}.", add_special_tokens=False
    ).ids
    assert ids.count(gap) == 2
    whole = (
        vocabulary.encode("the")
        + [gap]
        + vocabulary.encode("of now")[len(vocabulary.encode("of")) :]
        + [gap]
    )
    assert ids == whole + vocabulary.encode("now.")[len(vocabulary.encode("now")) :]


def test_sentinels_count_from_the_end(exported):
    name, family, vocabulary, folder = exported
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert theirs.get_vocab_size() == vocabulary.size
    if family == "t5":
        size = vocabulary.size
        assert [theirs.token_to_id(f"<extra_id_{i}>") for i in range(100)] == [
            size - 1 - i for i in range(100)
        ]
        assert list(vocabulary.sentinels) == [size - 1 - i for i in range(100)]


def find_used(family, vocabulary, role):
    """Return the id that training used in a role, which an export names."""
    own = getattr(vocabulary, role)
    if family in ("gpt2", "openai-gpt") and vocabulary.eos is not None:
        return {"bos": vocabulary.eos, "pad": vocabulary.eos if own is None else own}.get(role, own)
    return vocabulary.sentinels[0] if (family, role) == ("t5", "mask") else own


def test_companion_files(exported):
    name, family, vocabulary, folder = exported
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["model_max_length"] == 128
    assert ("token_type_ids" in config["model_input_names"]) == (
        family in ("bert", "albert", "electra")
    )
    specials = json.loads((folder / "special_tokens_map.json").read_text())
    for role, key in tokenizer.ROLES.items():
        i = find_used(family, vocabulary, role)
        assert specials.get(key) == (None if i is None else vocabulary.pieces[i])
    released = [] if name == "json" else sorted(vocabulary.export_files())
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [
            *released,
            "config.json",
            "special_tokens_map.json",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
    )


def test_an_export_is_read_back_as_the_same_vocabulary(exported, lines):
    """`import` reads a folder that `export` wrote."""
    name, _, vocabulary, folder = exported
    again = read_vocabulary(folder)
    assert again.pieces == vocabulary.pieces
    assert again.encode_batch(lines) == vocabulary.encode_batch(lines)
    for role in tokenizer.ROLES:
        assert getattr(again, role) == getattr(vocabulary, role), role


def test_letters_at_random(vocabularies):
    """Letters, blanks, marks and symbols of Unicode's first plane, in any order, pass every
    normalisation.
    """
    rng = random.Random(1)
    ranges = [
        (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x33FF),
        (0xF900, 0xFFFF),
    ]  # fmt: skip
    texts = []
    for _ in range(1500):
        letters = [chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(1, 10))]
        # A mark after one that Unicode orders after it, or after a letter that decomposes, is composed
        # differently by the two libraries; ordinary text has one mark per letter.
        texts.append(re.sub(r"([\u0300-\u036f])[\u0300-\u036f]+", r"\1", "".join(letters)))
    for name in ("bpe", "lowercase", "t5_bpe"):
        family, vocabulary = vocabularies[name]
        encoded = tokenizer.build_tokenizer(vocabulary, family).encode_batch(
            texts, add_special_tokens=False
        )
        different = [
            text
            for text, ours, it in zip(texts, vocabulary.encode_batch(texts), encoded)
            if ours != it.ids
        ]
        assert len(different) <= 3, different[:5]


# ---- goldens -----------------------------------------------------------------


def read_golden(described, tmp_path):
    """Return the vocabulary of a golden, with the normalisation table of the installed library."""
    if "type" not in described:
        (tmp_path / "vocab.txt").write_text("\n".join(described["pieces"]) + "\n", encoding="utf-8")
        return read_vocabulary(tmp_path / "vocab.txt")
    other = train_vocabulary(
        ["a b c d e f g h i j k l m n o p"] * 4, 22, lowercase=described["rules"].endswith("_cf")
    )
    model = ModelProto.FromString(other.model_bytes)
    assert model.normalizer_spec.name == described["rules"]
    del model.pieces[:]
    for piece, score, kind in described["pieces"]:
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = described["type"]
    return SentencePieceVocabulary(
        model.SerializeToString(), appended=100 if described["family"] == "t5" else 0
    )


@pytest.mark.parametrize("name", ["unigram", "bpe", "t5", "wordpiece"])
def test_goldens_of_transformers(name, tmp_path):
    goldens = json.loads((GOLDENS / "tokenizers.json").read_text(encoding="utf-8"))
    expected = goldens["vocabularies"][name]
    family, vocabulary = expected["family"], read_golden(expected, tmp_path)
    ours = tokenizer.build_tokenizer(vocabulary, family)
    assert [encoding.ids for encoding in ours.encode_batch(goldens["texts"])] == expected["ids"]
    assert ours.encode("the [MASK]. the <extra_id_0>.").ids == expected["gap"]
    pair = ours.encode("the reader", "the words")
    assert pair.ids == expected["pair"][0]
    assert expected["pair"][1] in (None, pair.type_ids)
    assert {
        key: find_used(family, vocabulary, role)
        for role, key in tokenizer.ROLES.items()
        if key in expected["specials"]
    } == expected["specials"]
    assert vocabulary.size == expected["size"]
    before, after = (
        ([vocabulary.cls], [vocabulary.sep]) if family == "bert" else ([], [vocabulary.eos])
    )
    bare = vocabulary.encode_batch(goldens["texts"])  # so are the ids that the model is trained on
    assert [before + ids + after for ids in bare] == expected["ids"]


def test_released_t5_ids(corpora):
    """T5's own vocabulary: the ids that SentencePiece gave to 255 lines."""
    vocabulary = read_vocabulary(corpora / "vocab_t5" / "t5_spiece.model")
    ours = tokenizer.build_tokenizer(vocabulary, "t5")
    text = (corpora / "vocab_t5" / "golden_255.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.split("\n") if line]
    assert len(rows) == 255
    # A sentinel spelled out in a text is one in the export (and in transformers), and plain text in
    # SentencePiece.
    rows = [row for row in rows if "<extra_id_" not in row["text"] and "</s>" not in row["text"]]
    assert [ours.encode(row["text"], add_special_tokens=False).ids for row in rows] == [
        row["ids"] for row in rows
    ]
    assert ours.token_to_id("<extra_id_0>") == 32099


# ---- refusals ----------------------------------------------------------------


def change_vocabulary(vocabulary, **settings):
    model = ModelProto.FromString(vocabulary.model_bytes)
    for name, value in settings.items():
        spec = model.trainer_spec if hasattr(model.trainer_spec, name) else model.normalizer_spec
        setattr(spec, name, value)
    return model


def test_inexpressible_settings_are_refused(vocabularies):
    vocabulary = vocabularies["unigram"][1]
    for settings, word in (
        ({"model_type": 3}, "WORD"),
        ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix"),
        ({"escape_whitespaces": False}, "escape_whitespaces"),
    ):
        with pytest.raises(ValueError, match=word):
            spm.make_tokenizer(change_vocabulary(vocabulary, **settings).SerializeToString())
    unused = change_vocabulary(vocabulary)
    unused.pieces[50].type = SentencePiece.UNUSED
    with pytest.raises(ValueError, match=f"unused.*{re.escape(unused.pieces[50].piece)}"):
        spm.make_tokenizer(unused.SerializeToString())
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        spm.make_tokenizer(b"\xff not a model")
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        spm.make_tokenizer(b"")


def test_a_vocabulary_without_mask_is_refused_for_bert(vocabularies):
    with pytest.raises(ValueError, match="cls_token, sep_token, mask_token"):
        tokenizer.build_tokenizer(vocabularies["t5"][1], "bert")


def test_other_settings_of_sentencepiece(lines):
    """Settings that Cloze never trains with, but that an imported model may have."""
    import io

    import sentencepiece

    texts = [line for line in lines if not RULER.search(line)]
    for settings in (
        {"byte_fallback": True},
        {"add_dummy_prefix": False},
        {"normalization_rule_name": "identity"},
        {"user_defined_symbols": ["<url>"]},
        {"byte_fallback": True, "model_type": "bpe"},
    ):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(list_topic_lines()[:3000]),
            model_writer=out,
            vocab_size=800,
            num_threads=1,
            minloglevel=2,
            **settings,
        )
        processor = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
        ours = spm.make_tokenizer(out.getvalue())
        encoded = ours.encode_batch(texts, add_special_tokens=False)
        different = [
            text for text, ids, it in zip(texts, processor.encode(texts), encoded) if ids != it.ids
        ]
        assert not different, settings
        if settings.get("byte_fallback"):
            assert [ours.decode(ids) for ids in processor.encode(texts)] == [
                processor.decode(processor.encode(t)) for t in texts
            ]


# ---- with transformers ----------------------------------------------------------


@pytest.mark.more
def test_auto_tokenizer(exported, lines, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    name, family, vocabulary, folder = exported
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert theirs.is_fast and len(theirs) == vocabulary.size
    for role, key in tokenizer.ROLES.items():
        assert getattr(theirs, f"{key}_id") == find_used(family, vocabulary, role), key
    ours = vocabulary.encode_batch(lines)
    assert [theirs(line, add_special_tokens=False)["input_ids"] for line in lines] == ours
    assert ("token_type_ids" in theirs("a")) == (family in ("bert", "albert", "electra"))
    theirs.save_pretrained(tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert [again(line, add_special_tokens=False)["input_ids"] for line in lines] == ours


@pytest.mark.more
def test_goldens_equal_what_their_script_makes(tmp_path):
    """The committed goldens still agree with the installed transformers."""
    pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    spec = importlib.util.spec_from_file_location("make_tokenizers", GOLDENS / "make_tokenizers.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.HERE = tmp_path
    script.main()
    made, stored = (
        json.loads((folder / "tokenizers.json").read_text(encoding="utf-8"))
        for folder in (tmp_path, GOLDENS)
    )
    assert made.pop("transformers") and stored.pop("transformers")  # its version
    assert made == stored
