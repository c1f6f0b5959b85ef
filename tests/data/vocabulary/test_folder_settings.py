"""A folder's settings apply: ids are `AutoTokenizer`'s on 1,000 lines each."""

import json
import random
import shutil

import numpy as np
import pytest
import tokenizers

from data.vocabulary.load import load_vocabulary, read_vocabulary, train_vocabulary
from pretrain.convert.tokenizer import build_tokenizer, write_tokenizer

WORDS = (
    "the The THE walk walking Walked talker naïve Café CAFÉ ÉTÉ été Ångström ½ ﬁx Привет МИР 東京 東 "
    "日本の首都 数学 emoji🙂 don't we'll 3.14 1,000 ``quoted'' U.S.A. x2 Covid19 covid19 <ent> ent "
    "NewWord newwords new-word"
).split()
BLANKS = (" ", " ", " ", " ", "", "  ", "\t", "\n", "\u00a0", "\u3000", "\u200b", " \n ")
LITERALS = (
    "<pad> <s> </s> <unk> <mask> [PAD] [CLS] [SEP] [UNK] [MASK] [mask] <|endoftext|> <extra_id_0>"
).split()


def make_lines(literals=LITERALS):
    """Return 1,000 lines of words, odd blanks and special tokens that are written out."""
    rng = random.Random(0)
    pool = [*WORDS, *WORDS, *literals]
    return [
        "".join(
            part
            for _ in range(rng.randint(0, 9))
            for part in (rng.choice(pool), rng.choice(BLANKS))
        )
        for _ in range(999)
    ] + ["  begins and ends  "]


LINES = make_lines()
PLAIN_LINES = make_lines(())
TEXTS = [line.replace("\n", " ") for line in PLAIN_LINES]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{family: its released files}."""
    folder = tmp_path_factory.mktemp("files")
    letters = sorted({letter for text in TEXTS for letter in text if letter.isprintable()} - {" "})
    letters += sorted({letter.lower() for letter in letters} | set("eaAEOaeo") - set(letters))
    letters = list(dict.fromkeys(letters))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<unk>", "<pad>", "the", "The", "cafe"]
    pieces += ["café", "walk", "Walk", "##ing", "##ed", "東京", "new", *letters]
    pieces += [f"##{letter}" for letter in letters]
    (folder / "bert").mkdir()
    (folder / "bert" / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n")
    for family, layout in (("roberta", "roberta"), ("gpt2", "gpt2")):
        words = train_vocabulary(TEXTS, 330, layout=layout, algorithm="byte_bpe")
        (folder / family).mkdir()
        for name, content in words.export_files().items():
            (folder / family / name).write_bytes(content)
    trained = tokenizers.CharBPETokenizer(
        lowercase=True, bert_normalizer=True, split_on_whitespace_only=False
    )
    trained.train_from_iterator(TEXTS, vocab_size=150, special_tokens=["<unk>"])
    (folder / "openai-gpt").mkdir()
    trained.save_model(str(folder / "openai-gpt"))
    for family, layout, size in (("t5", "t5", 230), ("albert", "bert", 130)):
        words = train_vocabulary(TEXTS, size, layout=layout)
        (folder / family).mkdir()
        (folder / family / "spiece.model").write_bytes(words.export_files()["spiece.model"])
    return folder


def token(content, **flags):
    """A token of `added_tokens_decoder`."""
    return (
        {"content": content}
        | dict(
            dict.fromkeys(("lstrip", "rstrip", "single_word", "special"), False), normalized=True
        )
        | flags
    )


def count_pieces(folder):
    return read_vocabulary(folder).size


def add_decoder(*tokens, **settings):
    """Return a change that adds tokens after the last piece, in `added_tokens_decoder`."""

    def change(folder):
        first = count_pieces(folder)
        added = {str(first + i): one for i, one in enumerate(tokens)}
        return {"added_tokens_decoder": added} | settings

    return change


def add_file(*contents, **settings):
    """Return a change that adds tokens after the last piece, in `added_tokens.json`."""

    def change(folder):
        first = count_pieces(folder)
        added = {content: first + i for i, content in enumerate(contents)}
        (folder / "added_tokens.json").write_text(json.dumps(added))
        return settings

    return change


USER_TOKENS = (
    token("Covid19"),
    token("<ent>", special=True, normalized=False),
    token("newword", single_word=True),
    token("МИР", lstrip=True, rstrip=True, normalized=False),
)
MASK = {"__type": "AddedToken", "content": "<mask>", "normalized": False}
STRIPS = {"mask_token": MASK | {"lstrip": True}}
CASES = {
    "cased": ("bert", dict(do_lower_case=False)),
    "uncased": ("bert", dict(do_lower_case=True)),
    "accents": ("bert", dict(do_lower_case=True, strip_accents=False)),
    "cased_no_accents": ("bert", dict(do_lower_case=False, strip_accents=True)),
    "chinese": ("bert", dict(do_lower_case=False, tokenize_chinese_chars=False)),
    "named_unknown": ("bert", dict(do_lower_case=False, unk_token="<unk>", pad_token="<pad>")),
    "bert_decoder": ("bert", add_decoder(*USER_TOKENS, do_lower_case=False)),
    "bert_file": ("bert", add_file("Covid19", "<ent>", additional_special_tokens=["<ent>"], do_lower_case=True)),
    "bert_extra": ("bert", dict(additional_special_tokens=["<ent>", "Covid19"], do_lower_case=False)),
    "roberta_prefix": ("roberta", dict(add_prefix_space=True, **STRIPS)),
    "roberta_plain": ("roberta", dict(add_prefix_space=False, **STRIPS)),
    "roberta_strips_nothing": ("roberta", dict(mask_token=MASK | {"lstrip": False})),
    "roberta_decoder": ("roberta", add_decoder(*USER_TOKENS, **STRIPS)),
    "roberta_file": ("roberta", add_file("Covid19", "<ent>", add_prefix_space=True, **STRIPS)),
    "gpt2_prefix": ("gpt2", dict(add_prefix_space=True)),
    "gpt2_plain": ("gpt2", dict(add_prefix_space=False)),
    "gpt2_decoder": ("gpt2", add_decoder(*USER_TOKENS)),
    "gpt2_pad": ("gpt2", add_file("<pad>", pad_token="<pad>")),
    "gpt_file": ("openai-gpt", add_file("Covid19", "new-word")),
    "albert_cased": ("albert", dict(do_lower_case=False)),
    "albert_uncased": ("albert", dict(do_lower_case=True)),
    "albert_accents": ("albert", dict(do_lower_case=False, keep_accents=True)),
    "albert_decoder": ("albert", add_decoder(*USER_TOKENS)),
    "t5_decoder": ("t5", add_decoder(*USER_TOKENS)),
    "t5_file": ("t5", add_file("Covid19", "<ent>")),
    "t5_few_sentinels": ("t5", dict(extra_ids=7)),
    "t5_plain": ("t5", dict()),
}  # fmt: skip


@pytest.fixture(params=CASES)
def released(request, files, tmp_path):
    """(family, lines, folder with the released files, config.json and settings)."""
    family, change = CASES[request.param]
    folder = tmp_path / "theirs"
    shutil.copytree(files / family, folder)
    settings = change(folder) if callable(change) else change
    roles = {"albert": {"unk_token": "[UNK]", "pad_token": "[PAD]"}}.get(family, {})
    (folder / "tokenizer_config.json").write_text(json.dumps(roles | settings))
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    return family, PLAIN_LINES if family in ("t5", "albert") else LINES, folder


def open_auto(folder):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    return transformers.AutoTokenizer.from_pretrained(folder)


def encode_in_all_ways(theirs, lines):
    """Return AutoTokenizer's ids: with special tokens around a line, without, and with those in the
    line split.
    """
    return [
        theirs(lines, **how)["input_ids"]
        for how in (
            dict(add_special_tokens=True),
            dict(add_special_tokens=False),
            dict(add_special_tokens=False, split_special_tokens=True),
        )
    ]


def assert_same(vocabulary, family, theirs, lines, expected=None):
    """The ids are AutoTokenizer's, whether it splits special tokens in a text or not;
    expected: what it gave before.
    """
    ours = build_tokenizer(vocabulary, family)
    whole, bare, split = expected or encode_in_all_ways(theirs, lines)
    for add, ids in ((True, whole), (False, bare)):
        encodings = ours.encode_batch_fast(lines, add_special_tokens=add)
        report_first(lines, [encoding.ids for encoding in encodings], ids, theirs)
    report_first(lines, vocabulary.encode_batch(lines), split, theirs)


def report_first(lines, found, expected, theirs):
    different = [
        (line, theirs.convert_ids_to_tokens(a), theirs.convert_ids_to_tokens(b))
        for line, a, b in zip(lines, found, expected, strict=True)
        if a != b
    ]
    assert not different, f"{len(different)} of {len(lines)}, such as {different[0]}"


@pytest.mark.more
@pytest.mark.slow
def test_ids_are_those_of_auto_tokenizer(released, tmp_path):
    """In the folder, in one that transformers saved again, in a workdir, and after an export."""
    family, lines, folder = released
    theirs, vocabulary = open_auto(folder), read_vocabulary(folder)
    assert len(lines) == 1000
    assert vocabulary.size == len(theirs)
    expected = encode_in_all_ways(theirs, lines)
    assert_same(vocabulary, family, theirs, lines, expected)
    theirs.save_pretrained(tmp_path / "again")
    shutil.copy(folder / "config.json", tmp_path / "again")
    assert_same(read_vocabulary(tmp_path / "again"), family, theirs, lines, expected)
    vocabulary.save(tmp_path / "workdir")
    loaded = load_vocabulary(tmp_path / "workdir")
    assert loaded == vocabulary
    assert_same(loaded, family, theirs, lines, expected)
    (tmp_path / "exported").mkdir()
    write_tokenizer(loaded, family, tmp_path / "exported")
    shutil.copy(folder / "config.json", tmp_path / "exported")
    found = encode_in_all_ways(open_auto(tmp_path / "exported"), lines)
    for ids, expected_ids in zip(found, expected, strict=True):
        report_first(lines, ids, expected_ids, theirs)
    exported = read_vocabulary(tmp_path / "exported")
    assert exported == vocabulary
    assert_same(exported, family, theirs, lines, expected)


def write_folder(folder, files, family, **contents):
    """Copy the files of a family, and write {name of a file: JSON value}; return the folder."""
    shutil.copytree(files / family, folder)
    for name, content in ({"config": {"model_type": family}} | contents).items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("kind", ["byte_bpe", "tokenizer_json"])
def test_only_a_text_gets_a_space_in_front_not_each_sentence(kind, files, tmp_path):
    folder = write_folder(
        tmp_path / "theirs", files, "roberta", tokenizer_config={"add_prefix_space": True}
    )
    if kind == "tokenizer_json":
        (folder / "added_tokens.json").write_text(json.dumps({"Covid19": 330}))
    vocabulary = read_vocabulary(folder)
    assert vocabulary.kind == kind
    assert vocabulary.encode("the walk") == vocabulary.encode(" the walk")
    text = "the walk.\nwalking the walk"
    raw = text.encode()
    starts, ends = np.array([0, 9, 0]), np.array([9, len(raw), 9])
    ids, lengths = vocabulary.encode_spans(raw, starts, ends, np.array([0, 2]))
    assert ids[: lengths[:2].sum()].tolist() == vocabulary.encode(text)
    assert ids[lengths[:2].sum() :].tolist() == vocabulary.encode("the walk.")
    plain = read_vocabulary(files / "roberta")
    assert plain.encode("the walk") != vocabulary.encode("the walk")
    assert plain.fingerprint != vocabulary.fingerprint


@pytest.mark.more
@pytest.mark.parametrize("switch", ["do_lower_case", "strip_accents", "tokenize_chinese_chars"])
def test_a_switch_precedes_the_tokenizer_json_of_its_class(switch, files, tmp_path):
    """As in AutoTokenizer, tokenizer_config.json is right where the two contradict each other."""
    before = {"do_lower_case": True, "strip_accents": True, "tokenize_chinese_chars": True}
    folder = write_folder(tmp_path / "a", files, "bert", tokenizer_config=before)
    open_auto(folder).save_pretrained(tmp_path / "b")
    shutil.copy(folder / "config.json", tmp_path / "b")
    path = tmp_path / "b" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {switch: False}))
    vocabulary = read_vocabulary(tmp_path / "b")
    assert vocabulary.encode_batch(LINES) != read_vocabulary(folder).encode_batch(LINES)
    assert_same(vocabulary, "bert", open_auto(tmp_path / "b"), LINES)


@pytest.mark.more
def test_a_special_token_in_a_text_is_text_in_a_corpus_and_special_in_a_prediction(files, tmp_path):
    folder = write_folder(tmp_path / "theirs", files, "roberta", tokenizer_config={})
    vocabulary, theirs = read_vocabulary(folder), open_auto(folder)
    ours = build_tokenizer(vocabulary, "roberta")
    for name in ("pad", "unk"):
        text = f"the <{name}>"
        special = getattr(vocabulary, name)
        assert special in ours.encode(text).ids
        assert ours.encode(text).ids == theirs(text)["input_ids"]
        assert special not in vocabulary.encode(text)


REFUSALS = {
    "id of another piece": (
        "bert",
        {"added_tokens": {"Covid19": 3}},
        r"'Covid19' has id 3 in the settings, and \d+ in the vocabulary",
    ),
    "a gap between ids": (
        "roberta",
        {"tokenizer_config": {"added_tokens_decoder": {"400": token("Covid19")}}},
        "'Covid19' has id 400 in the settings, and 330",
    ),
    "a class that is not read": (
        "bert",
        {"tokenizer_config": {"tokenizer_class": "BertJapaneseTokenizer"}},
        "tokenizer_class is 'BertJapaneseTokenizer'; .*BertTokenizer.* are read",
    ),
    "no class": (
        "t5",
        {"config": {}, "added_tokens": {"Covid19": 230}},
        "'Covid19' is an added token.*T5Tokenizer or AlbertTokenizer",
    ),
    "no piece of unknown words": (
        "bert",
        {"tokenizer_config": {"unk_token": "<none>"}},
        "no piece '<none>'.*give it as unk_token",
    ),
    "a switch": ("roberta", {"tokenizer_config": {"add_prefix_space": 3}}, "add_prefix_space is 3"),
    "a class": (
        "bert",
        {"tokenizer_config": {"tokenizer_class": [1]}},
        r"tokenizer_class is \[1\]",
    ),
    "ids": ("bert", {"added_tokens": {"a": -1}}, "'a' has id -1"),
    "large ids": ("bert", {"added_tokens": {"a": 1 << 40}}, "'a' has id 1099511627776"),
    "no token": ("bert", {"added_tokens": {"": 200}}, "a token has 1 to 1000 characters"),
    "a long token": ("bert", {"added_tokens": {"a" * 1001: 200}}, "a token has 1 to 1000"),
    "no object": ("bert", {"added_tokens": [1]}, "holds list, expected a JSON object"),
    "a decoder": ("bert", {"tokenizer_config": {"added_tokens_decoder": 3}}, "decoder is 3"),
    "a key": (
        "bert",
        {"tokenizer_config": {"added_tokens_decoder": {"x": token("a")}}},
        "added_tokens_decoder has 'x'",
    ),
    "a flag": (
        "bert",
        {"tokenizer_config": {"added_tokens_decoder": {"200": token("a", lstrip=3)}}},
        "lstrip of 'a' is 3",
    ),
    "sentinels": ("t5", {"tokenizer_config": {"extra_ids": 1 << 40}}, "extra_ids is 1099511627776"),
    "extra tokens": ("t5", {"tokenizer_config": {"extra_special_tokens": 3}}, "tokens is 3"),
    "a role": ("bert", {"special_tokens_map": {"pad_token": [3]}}, r"pad_token is \[3\]"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_settings_that_cannot_be_followed_are_refused(case, files, tmp_path):
    family, contents, message = REFUSALS[case]
    folder = write_folder(tmp_path / "theirs", files, family, **contents)
    with pytest.raises(ValueError, match=message) as caught:
        read_vocabulary(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.more
def test_a_normalizer_that_contradicts_the_settings_is_refused(files, tmp_path):
    roles = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    folder = write_folder(tmp_path / "theirs", files, "albert", tokenizer_config=roles)
    open_auto(folder).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": False}))
    with pytest.raises(ValueError, match="do_lower_case is False, and the normalizer"):
        read_vocabulary(folder)
