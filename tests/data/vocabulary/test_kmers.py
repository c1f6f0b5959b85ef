"""K-mers of nucleotides: ids of the released tokenizers, and runs of masks that hide a letter."""

import itertools
import json

import numpy as np
import pytest

from data.objectives.masked_lm import MaskedLm
from data.objectives.masking import Masker
from data.objectives.setting_checks import check_masking
from data.vocabulary.letters import letter_vocabulary
from data.vocabulary.letters.alphabets import has_overlapping_kmers, make_alphabet, read_residues
from data.vocabulary.load import load_vocabulary, read_vocabulary
from pretrain.convert.tokenizer import build_tokenizer, write_tokenizer
from tests.data.vocabulary.test_alphabets import draw_texts

DNA = [*"ACGT" * 4, *"Nxn "]


def cut_longest(text, pieces):
    """Cut words of a text into the longest pieces, one letter after the other."""
    found = []
    for word in text.split():
        place, ended_unknown = 0, False
        while place < len(word):
            fits = [p for p in pieces if word.startswith(p, place)]
            piece = max(fits, key=len, default=None)
            if piece or not ended_unknown:
                found.append(piece or "<unk>")
            ended_unknown = piece is None
            place += len(piece or "x")
    return found


@pytest.mark.parametrize("length", [2, 3])
def test_kmers_are_the_longest_pieces(length):
    vocabulary = make_alphabet(f"{length}mers")
    plain = [p for p, special in zip(vocabulary.pieces, vocabulary.special) if not special]
    for text in draw_texts(DNA)[:300]:
        expected = [vocabulary.pieces.index(piece) for piece in cut_longest(text, plain)]
        assert vocabulary.encode(text) == expected
    assert vocabulary.decode(vocabulary.encode("ACGTACGTNA")) == "ACGTACGTNA"


def test_a_text_is_walked_block_by_block(monkeypatch):
    vocabulary, texts = make_alphabet("3mers"), draw_texts(DNA)[:300]
    expected = vocabulary.encode_batch(texts)
    for block in (1, 2, 7):
        monkeypatch.setattr(letter_vocabulary, "BLOCK", block)
        assert vocabulary.encode_batch(texts) == expected


def test_ids_of_6mers_are_those_of_nucleotide_transformer():
    """Dalla-Torre et al. 2023, version 2: special tokens, k-mers in the order ATCG, letters."""
    vocabulary = make_alphabet("6mers")
    assert vocabulary.size == 4107
    assert vocabulary.pieces[:8] == (
        *("<unk>", "<pad>", "<mask>", "<cls>", "<eos>", "<bos>", "AAAAAA", "AAAAAT"),
    )
    assert vocabulary.pieces[-6:] == ("GGGGGG", *"ATCGN")
    assert (vocabulary.cls, vocabulary.sep, vocabulary.mask) == (3, 4, 2)


@pytest.mark.more
def test_ids_of_kmers_are_those_of_esm_tokenizer(tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    vocabulary = make_alphabet("3mers")
    vocabulary.save(tmp_path)
    theirs = transformers.EsmTokenizer(str(tmp_path / "vocab.txt"))
    for text in draw_texts(DNA):
        assert vocabulary.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]


def test_overlapping_kmers_begin_at_each_letter():
    vocabulary = make_alphabet("overlapping_3mers")
    ids = {piece: i for i, piece in enumerate(vocabulary.pieces)}
    assert vocabulary.size == 69 and vocabulary.pieces[5:8] == ("AAA", "AAT", "AAC")
    for text in draw_texts(DNA)[:300]:
        expected = [
            ids.get(word[i : i + 3], vocabulary.unk)
            for word in text.split()
            for i in range(max(len(word) - 2, 1))
        ]
        assert vocabulary.encode(text) == expected
    assert vocabulary.encode("ATGCA") == vocabulary.encode("ATG TGC GCA")
    assert vocabulary.decode(vocabulary.encode("ATGCA")) == "ATGCA"
    assert vocabulary.encode_with_offsets(["", "AC ATGC"])[1][1] == [(0, 2), (3, 6), (4, 7)]


def test_overlapping_kmers_are_saved_and_exported(tmp_path):
    vocabulary = make_alphabet("overlapping_3mers")
    vocabulary.save(tmp_path / "saved")
    again = load_vocabulary(tmp_path / "saved")
    assert again == vocabulary and again.overlap == 3
    (tmp_path / "out").mkdir()
    write_tokenizer(vocabulary, "bert", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())[
        "tokenizer_class"
    ] == ("BertTokenizer")
    imported = read_vocabulary(tmp_path / "out")
    assert imported == vocabulary and "DNABERT" in imported.reading_note
    made = build_tokenizer(vocabulary, "bert")
    for text in ("ATGCA", "ATG TGC GCA", "ATG [MASK] GCA", "AC"):
        letters = text if "MASK" in text else "ATGCA" if len(text) > 2 else text
        expected = [vocabulary.pieces[i] for i in made.encode(text).ids]
        inner = (
            ["ATG", "[MASK]", "GCA"] if "MASK" in text else
            [vocabulary.pieces[i] for i in vocabulary.encode(letters)]
        )  # fmt: skip
        assert expected == ["[CLS]", *inner, "[SEP]"]


@pytest.mark.more
def test_ids_of_overlapping_kmers_are_those_of_bert_tokenizer(tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    vocabulary = make_alphabet("overlapping_6mers")
    write_tokenizer(vocabulary, "bert", tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__.startswith("BertTokenizer")
    for text in draw_texts("ACGT")[:200]:
        kmers = " ".join(text[i : i + 6] for i in range(len(text) - 5))
        ids = theirs(kmers, add_special_tokens=False)["input_ids"]
        assert ids == vocabulary.encode(kmers)
        if kmers:
            assert ids == vocabulary.encode(text)


@pytest.mark.parametrize(
    ("pieces", "overlapping"),
    [
        (["[PAD]", "[UNK]", *map("".join, itertools.product("ACGT", repeat=2))], True),
        (["[UNK]", "AA", "AC"], False),
        (["<unk>", *map("".join, itertools.product("ACGT", repeat=2)), "A"], False),
        (["<unk>", *"ACGT"], False),
    ],
)
def test_a_file_of_all_kmers_overlaps(pieces, overlapping, tmp_path):
    assert has_overlapping_kmers(pieces) is overlapping
    found, apart = (read_residues("\n".join(pieces), given) for given in (None, False))
    assert bool(found.overlap) is overlapping
    assert (found == apart) is not overlapping
    for vocabulary in (found, apart):
        vocabulary.save(tmp_path)
        assert load_vocabulary(tmp_path) == vocabulary
    if not overlapping:
        with pytest.raises(ValueError, match="all k-mers of nucleotides, and these are not"):
            read_residues("\n".join(pieces), overlapping=True)


def test_pieces_of_too_many_spellings_are_refused():
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    pieces = ["<unk>", *(letters[i : i + 8] for i in range(19))]
    with pytest.raises(ValueError, match="pieces of 8 of 26 letters have more than 16,777,216"):
        read_residues("\n".join(pieces))


def test_masks_of_overlapping_kmers_are_runs_that_hide_each_letter_as_often():
    vocabulary = make_alphabet("overlapping_3mers")
    objective = MaskedLm(
        length=34, max_predictions=12, mask_rate=0.3, whole_words=True, max_word_pieces=2
    )
    B, L = 3000, objective.length
    rows = np.random.default_rng(0).integers(5, vocabulary.size, (B, L)).astype(np.int32)
    rows[:, 0], rows[:, -1] = vocabulary.cls, vocabulary.sep
    masks = Masker(objective, vocabulary)(
        rows, np.ones((B, L), bool), np.arange(B, dtype=np.uint64)
    )
    masked_BL = np.zeros((B, L + 2), bool)
    row_B = np.arange(B)[:, None]
    masked_BL[row_B, np.where(masks["label_weights"] > 0, masks["masked_positions"], L)] = True
    masked_BL[:, L:] = False
    edges = np.diff(masked_BL.astype(int), axis=1, prepend=0)
    lengths = np.argwhere(edges == -1)[:, 1] - np.argwhere(edges == 1)[:, 1]
    first, last = masked_BL[:, 1], masked_BL[:, L - 2]  # runs at an end of the text may be shorter
    assert (lengths % 3 != 0).sum() <= first.sum() + last.sum()
    # A letter is hidden where all three tokens that have it are masked.
    hidden_L = (masked_BL[:, 3:-4] & masked_BL[:, 2:-5] & masked_BL[:, 1:-6]).mean(axis=0)
    assert hidden_L.min() > 0.5 * hidden_L.max() > 0


def test_single_masks_of_overlapping_kmers_are_refused():
    vocabulary = make_alphabet("overlapping_3mers")
    with pytest.raises(ValueError, match=r"whole_words=true, which masks runs of 3 tokens"):
        check_masking(MaskedLm(), vocabulary, 126)
