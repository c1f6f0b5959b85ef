"""The vocabulary of SMILES, the lines of characters that chemists write molecules as.

Tokens are cut as by Schwaller et al. (2019, "Molecular Transformer"): an atom in brackets with its
charge and hydrogens is one token; atoms of one or two letters, bonds, branches and numbers of rings
are others. No released model has these ids: a rule lists the atoms in brackets, so that all corpora
of molecules share them.
"""

import itertools

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from data.vocabulary.layouts import UNKNOWN
from data.vocabulary.released import ReleasedVocabulary
from data.vocabulary.tokenizer_json import read_tokenizer_json

SMILES = "smiles"
PATTERN = (
    r"\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>|\*|\$|"
    r"%[0-9]{2}|[0-9]"
)
SPECIAL = ("<cls>", "<pad>", "<eos>", UNKNOWN, "<mask>")
ATOMS = ("C", "c", "N", "n", "O", "o", "S", "s", "P", "p", "F", "Cl", "Br", "I", "B", "b")
SIGNS = (*"()=#-+\\/.:~@?>*$", *"1234567890")
RINGS = tuple(f"%{number}" for number in range(10, 100))
# Atoms in brackets: their chirality, hydrogens and charge.
SEVERAL = ("C", "N", "O", "S", "P", "B", "Si", "Se", "c", "n", "o", "s", "p", "b", "se")
CHIRAL = ("", "@", "@@")
HYDROGENS = ("", "H", "H2", "H3")
CHARGES = ("", "+", "-")
# Of these the bare atom and its ions.
ELEMENTS = (
    *("H", "He", "Li", "Be", "F", "Ne", "Na", "Mg", "Al", "Cl", "Ar", "K", "Ca", "Sc", "Ti", "V"),
    *("Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Br", "Kr", "Rb", "Sr", "Y"),
    *("Zr", "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I", "Xe"),
    *("Cs", "Ba", "La", "Ce", "Pr", "Nd", "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er", "Tm"),
    *("Yb", "Lu", "Hf", "Ta", "W", "Re", "Os", "Ir", "Pt", "Au", "Hg", "Tl", "Pb", "Bi", "Po"),
    *("At", "Rn", "Fr", "Ra", "Ac", "Th", "Pa", "U", "te"),
)
IONS = ("", "+", "-", "+2", "+3", "+4", "-2")
ISOTOPES = (
    *("2H", "3H", "11C", "11CH3", "13C", "13CH", "13CH2", "13CH3", "13c", "13cH", "14C", "14CH2"),
    *("14CH3", "14c", "14cH", "13N", "15N", "15NH", "15NH2", "15n", "15O", "17O", "18O", "18F"),
    *("32P", "33P", "35S", "36Cl", "76Br", "77Br", "123I", "124I", "125I", "131I"),
)


def list_pieces() -> list[str]:
    """Return all tokens in the order of their ids."""
    several = itertools.product(SEVERAL, CHIRAL, HYDROGENS, CHARGES)
    brackets = [
        *("".join(parts) for parts in several),
        *(atom + ion for atom in ELEMENTS for ion in IONS),
        *ISOTOPES,
    ]
    return [*SPECIAL, *ATOMS, *SIGNS, *RINGS, *(f"[{atom}]" for atom in brackets)]


def build_smiles() -> ReleasedVocabulary:
    """Return the vocabulary; an atom in brackets that it lacks is unknown, as is any other sign."""
    ids = {piece: i for i, piece in enumerate(list_pieces())}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(PATTERN), "isolated")]
    )
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in SPECIAL])
    return read_tokenizer_json(tokenizer.to_str(), {"sep": "<eos>"})
