"""Stores of sequences of letters: whole documents, equal names counted, lower case by choice."""

import random

import numpy as np
import pytest

from data.prepare.build import PrepareRequest, prepare_store
from data.prepare.job_report import SAME_NAMES
from pretrain.__main__ import main
from tests.data.prepare.stores import texts_of


@pytest.fixture
def sequences(tmp_path):
    """Return the sequences of a file, some above the 8,192 bytes at which a sentence is cut."""
    rng = random.Random(0)
    found = ["".join(rng.choices("ACGT", k=rng.choice([9, 300, 20_001]))) for _ in range(40)]
    lines = [f">r{i % 37} of {i}\n{text}\n" for i, text in enumerate(found)]
    (tmp_path / "all.fasta").write_text("".join(lines))
    return found


def make_store(folder, name="s", job_bytes=1 << 20, **options):
    request = PrepareRequest((str(folder / "all.fasta"),), held_out=0.2, **options)
    return prepare_store(request, folder / name, job_bytes=job_bytes).store


@pytest.mark.parametrize("alphabet", ["6mers", "overlapping_3mers", "nucleotides"])
def test_a_sequence_is_one_piece_of_text(sequences, alphabet, tmp_path):
    store = make_store(tmp_path, vocabulary=f"alphabet:{alphabet}")
    texts = [text for split in ("train", "heldout") for text in texts_of(store, split)]
    assert sorted(texts) == sorted(sequences)
    for split in ("train", "heldout"):
        part = store.open_split(split)
        assert np.array_equal(part.sentence_starts, part.document_starts)
    assert not any("8192" in reason for reason in store.manifest["noted"])


@pytest.mark.parametrize("job_bytes", [1 << 20, 50_000])
def test_equal_names_are_counted(sequences, job_bytes, tmp_path):
    store = make_store(tmp_path, job_bytes=job_bytes, vocabulary="alphabet:nucleotides")
    assert store.manifest["noted"][SAME_NAMES] == {"count": 3}
    (tmp_path / "all.fasta").write_text(">a\nAC\n>b\nGT\n>\nAA\n>\nCC\n")
    store = make_store(tmp_path, "other", vocabulary="alphabet:nucleotides")
    assert SAME_NAMES not in store.manifest["noted"]


def test_lower_case_has_ids_of_its_own_where_it_stays(tmp_path):
    (tmp_path / "all.fasta").write_text(">a\nACgtACnN\n>b\nTTTT\n>c\nggg\n")
    soft = {"vocabulary": "alphabet:soft_nucleotides"}
    soft_store = make_store(tmp_path, "soft", soft_mask="keep", **soft)
    plain_store = make_store(tmp_path, "plain", **soft)
    for store, expected in (
        (soft_store, ["ACgtACnN", "TTTT", "ggg"]),
        (plain_store, ["ACGTACNN", "TTTT", "GGG"]),
    ):
        texts = [text for split in ("train", "heldout") for text in texts_of(store, split)]
        assert sorted(texts) == sorted(expected)
    assert soft_store.manifest["request"]["soft_mask"] == "keep"
    assert "soft_mask" not in plain_store.manifest["request"]


def test_a_choice_that_is_none_is_refused(tmp_path, capsys):
    (tmp_path / "all.fasta").write_text(">a\nAC\n")
    with pytest.raises(ValueError, match="--soft-mask drop: lose or keep"):
        make_store(tmp_path, soft_mask="drop")
    with pytest.raises(SystemExit):
        main(["prepare", str(tmp_path / "all.fasta"), "--soft-mask", "drop"])
    assert "invalid choice: 'drop'" in capsys.readouterr().err
