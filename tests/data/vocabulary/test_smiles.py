"""SMILES are cut by the published pattern, and the atoms of usual molecules have ids."""

import random
import re

from data.vocabulary.letters.alphabets import make_alphabet
from data.vocabulary.letters.smiles import SPECIAL, list_pieces
from data.vocabulary.load import load_vocabulary

# Schwaller et al. 2019, as their repository of the Molecular Transformer has it.
PUBLISHED = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>|\*|\$|"
    r"\%[0-9]{2}|[0-9])"
)
MOLECULES = {
    "caffeine": "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
    "penicillin G": "CC1(C)S[C@@H]2[C@H](NC(=O)Cc3ccccc3)C(=O)N2[C@H]1C(=O)O",
    "sodium salicylate": "[Na+].OC1=CC=CC=C1C([O-])=O",
    "cisplatin": "N.N.[Cl-].[Cl-].[Pt+2]",
    "indole": "c1ccc2[nH]ccc2c1",
    "trans-difluoroethene": "F/C=C/F",
    "a large ring": "C%10CCCCCCCCC%10Br",
}


def test_all_tokens_differ():
    pieces = list_pieces()
    assert len({*pieces}) == len(pieces) == make_alphabet("smiles").size
    assert all(PUBLISHED.fullmatch(piece) for piece in pieces if piece not in SPECIAL)


def test_usual_molecules_have_ids():
    vocabulary = make_alphabet("smiles")
    for name, text in MOLECULES.items():
        ids = vocabulary.encode(text)
        assert vocabulary.unk not in ids, name
        assert [vocabulary.pieces[i] for i in ids] == PUBLISHED.findall(text)
        assert vocabulary.decode(ids) == text


def test_any_line_is_cut_by_the_published_pattern():
    vocabulary, rng = make_alphabet("smiles"), random.Random(0)
    known = [piece for piece in vocabulary.pieces if piece not in SPECIAL]
    for _ in range(500):
        text = "".join(rng.choices([*known, "[Xx]", "[13CH2+]"], k=rng.randrange(1, 20)))
        cut = PUBLISHED.findall(text)
        expected = [p if p in known else "<unk>" for p in cut]
        assert [vocabulary.pieces[i] for i in vocabulary.encode(text)] == expected


def test_it_is_saved(tmp_path):
    make_alphabet("smiles").save(tmp_path)
    assert load_vocabulary(tmp_path) == make_alphabet("smiles")
