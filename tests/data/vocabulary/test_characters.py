"""The characters that a trained vocabulary knows, and the options that decide them."""

import random

import pytest

from data.prepare.build import PrepareRequest, prepare_store
from data.prepare.summary import format_summary
from data.store.reader import Store
from data.vocabulary.characters import ASCII, MIN_COUNT
from data.vocabulary.load import load_vocabulary, train_vocabulary
from pretrain.__main__ import main
from tests.data.conftest import make_sentences

ALGORITHMS = ("unigram", "bpe")


def draw_words(count, seed=0):
    """Return sentences of ten words of syllables at random, enough for some 1,500 pieces."""
    rng = random.Random(seed)
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(2000)]
    return [" ".join(rng.choices(words, k=10)).capitalize() + "." for _ in range(count)]


def write_texts(**rare):
    """Return 1,500 sentences, and each character of `rare` as often as it says."""
    texts = draw_words(1500)
    return texts + [f"a {character} of" for character, count in rare.items() for _ in range(count)]


@pytest.fixture(scope="module")
def texts():
    return write_texts(**{"é": MIN_COUNT, "7": 1, "ß": MIN_COUNT - 1, "\U0001f642": 40})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("layout", ["bert", "t5"])
def test_ascii_and_the_characters_of_the_sample_are_known(texts, algorithm, layout):
    size = 500 + 100 * (layout == "t5")
    vocabulary = train_vocabulary(texts, size, layout, algorithm)
    assert vocabulary.size == size
    for character in ASCII + "é\U0001f642":
        ids = vocabulary.encode(f"a{character}b {character}")
        assert vocabulary.unk not in ids, character
        assert character in vocabulary.decode(ids)
    assert vocabulary.unk in vocabulary.encode("ß") and vocabulary.unk in vocabulary.encode("東")


def test_capitals_take_no_ids_where_case_is_folded(texts):
    vocabulary = train_vocabulary(texts, 400, lowercase=True)
    assert not any("A" <= letter <= "Z" for piece in vocabulary.pieces[5:] for letter in piece)
    assert vocabulary.unk not in vocabulary.encode(ASCII)


def test_the_report_names_what_is_left_out(texts):
    lines = []
    train_vocabulary(texts, 500, report=lines.append)
    (line,) = lines
    assert "96 have an id" in line and line.endswith(
        "left out (fewer than 3 times in the sample): ß"
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_characters_take_at_most_half_of_a_small_vocabulary(algorithm):
    """2,000 Chinese characters, some of them frequent, do not fill a vocabulary of 800."""
    letters = [chr(0x4E00 + i) for i in range(2000)]
    rng = random.Random(0)
    texts = ["".join(rng.choices(letters[:150], k=20)) + "。" for _ in range(5000)]
    texts += ["".join(letters[i : i + 20]) for i in range(150, 2000, 20) for _ in range(4)]
    lines = []
    vocabulary = train_vocabulary(texts, 800, algorithm=algorithm, report=lines.append)
    single = [piece for piece in vocabulary.pieces[5:] if len(piece) == 1]
    assert len(single) <= 400 + 1 and len(ASCII) < len(single)
    assert vocabulary.unk not in vocabulary.encode("".join(letters[:150]) + ASCII)
    assert "characters take at most half of 800 ids" in lines[0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_coverage_of_ones_own(texts, algorithm):
    all_known = train_vocabulary(texts, 500, algorithm=algorithm, character_coverage=1.0)
    assert all_known.unk not in all_known.encode("ß é 7")
    few = train_vocabulary(texts, 500, algorithm=algorithm, character_coverage=0.99)
    assert few.unk in few.encode("é") and few.unk not in few.encode(ASCII)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bytes_spell_what_has_no_piece(texts, algorithm, tmp_path):
    vocabulary = train_vocabulary(texts, 800, algorithm=algorithm, byte_fallback=True)
    assert vocabulary.size == 800 and "<0x00>" in vocabulary.pieces
    text = "東京 ß 👩‍👩‍👧 Ω"
    ids = vocabulary.encode(text)
    assert vocabulary.unk not in ids and vocabulary.decode(ids) == text
    assert vocabulary.decode(vocabulary.encode("<0x41> [MASK]")) == "<0x41> [MASK]"
    first = vocabulary.pieces.index("<0x00>")
    assert not vocabulary.special[first : first + 256].any()
    vocabulary.save(tmp_path / "saved")
    assert load_vocabulary(tmp_path / "saved").encode(text) == ids
    ((found, offsets),) = vocabulary.encode_with_offsets([text])
    assert found == ids and offsets == sorted(offsets) and offsets[-1][1] == len(text)
    covered = {i for begin, end in offsets for i in range(begin, end)}
    assert covered >= {i for i, letter in enumerate(text) if letter != " "}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_digits_are_split(algorithm):
    texts = [f"in {year} there were {year * 7} of them" for year in range(1800, 2000)] * 5
    texts += draw_words(1000)
    joined = train_vocabulary(texts, 400, algorithm=algorithm)
    split = train_vocabulary(texts, 400, algorithm=algorithm, split_digits=True)

    def find_numbers(vocabulary):
        return [piece for piece in vocabulary.pieces if sum(map(str.isdigit, piece)) > 1]

    assert find_numbers(joined) and not find_numbers(split)
    assert len(split.encode("1984")) >= 4 > len(joined.encode("1984"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(character_coverage=0.9), "--character-coverage 0.9: from 0.98 to 1"),
        (dict(character_coverage=1.1), "--character-coverage 1.1: from 0.98 to 1"),
        (dict(byte_fallback=True, size=200), "with 256 bytes needs at least 272 ids, not 200"),
        (dict(algorithm="byte_bpe", layout="gpt2", byte_fallback=True), "--byte-fallback.*unigram"),
        (dict(algorithm="byte_bpe", layout="gpt2", split_digits=True), "--split-digits.*unigram"),
        (dict(algorithm="words", character_coverage=1.0), "--character-coverage.*unigram"),
    ],
)
def test_bad_options_are_refused(texts, options, message):
    with pytest.raises(ValueError, match=message):
        train_vocabulary(texts, **({"size": 400} | options))


def test_a_small_vocabulary_has_the_characters_of_the_sample():
    texts = [*make_sentences(400), "é é é", "7"]
    lines = []
    vocabulary = train_vocabulary(texts, 60, report=lines.append)
    assert vocabulary.size == 60 and "left out" not in lines[0]
    assert vocabulary.unk not in vocabulary.encode("".join(texts))
    with pytest.raises(ValueError, match="cannot hold the characters of the text; it needs at lea"):
        train_vocabulary(texts, 20)


def test_the_largest_size_is_one_that_can_be_trained():
    """Above 375 ids all of ASCII is required, which a small text alone does not fill."""
    texts = make_sentences(200)
    with pytest.raises(ValueError, match="--vocab-size") as caught:
        train_vocabulary(texts, 5000)
    most = int(str(caught.value).split()[-1])
    assert train_vocabulary(texts, most).size == most


@pytest.mark.parametrize("workers", [None, 2])
def test_prepare_names_the_unknown_characters(tmp_path, workers):
    texts = [
        f"{text} ☃ № é e\u0301 東" if i % 4 else text for i, text in enumerate(draw_words(300))
    ]
    (tmp_path / "a.txt").write_text("\n\n".join(texts), encoding="utf-8")
    train_vocabulary([*draw_words(300), "é № é é"], 400).save(tmp_path / "words")
    request = PrepareRequest(
        (str(tmp_path / "a.txt"),), vocabulary=str(tmp_path / "words"), document="block"
    )
    prepared = prepare_store(request, tmp_path / "store", workers=workers, job_bytes=4000)
    assert prepared.store.manifest["unknown_characters"] == {"☃": 225, "東": 225}
    assert "unknown  ☃ 225, 東 225" in format_summary(prepared)
    sizes = prepared.store.manifest["sizes"]
    assert sum(size["words"] for size in sizes.values()) == sum(len(text.split()) for text in texts)
    assert sum(size["bytes"] for size in sizes.values()) == sum(
        len(text.encode()) for text in texts
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_prepare_has_the_options_of_the_trainer(tmp_path, algorithm, capsys):
    (tmp_path / "a.txt").write_text("\n\n".join(draw_words(300)))
    argv = ["prepare", str(tmp_path / "a.txt"), "--document", "block", "--vocab-size", "700"]
    argv += ["--output", str(tmp_path / "store"), "--algorithm", algorithm]
    argv += ["--byte-fallback", "--split-digits", "--character-coverage", "0.99"]
    assert main(argv) == 0
    assert "0.99 of the sample have an id" in capsys.readouterr().err
    store = Store.open(tmp_path / "store")
    recorded = store.manifest["request"]
    assert recorded["byte_fallback"] and recorded["split_digits"]
    assert recorded["character_coverage"] == 0.99 and "<0x00>" in store.vocabulary.pieces
    assert main(argv) == 0 and "already prepared" in capsys.readouterr().out
    assert main(argv[:-2]) == 2
    assert "character_coverage: 0.99 in the store, None requested" in capsys.readouterr().err
    assert main([*argv[:-1], "0.5"]) == 2
    assert "--character-coverage 0.5: from 0.98 to 1" in capsys.readouterr().err
