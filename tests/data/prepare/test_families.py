"""`prepare --held-out-by` holds out whole families of documents, and `--on-unknown` refuses letters."""

import gzip
import json
import random
import re

import pytest

from data.cleaning.settings import CleaningSettings
from data.prepare import families
from data.prepare.build import PrepareRequest, prepare_store
from pretrain.__main__ import main
from tests.data.prepare.stores import hash_files, texts_of

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
FAMILY = 10  # records of a cluster
ALPHABET = {"vocabulary": "alphabet:esm2", "held_out": 0.3}


@pytest.fixture
def sequences(tmp_path):
    """Return {name: sequence} of 300 records, after writing them with their clusters."""
    rng = random.Random(2)
    found = {f"P{i}": "".join(rng.choices(LETTERS, k=30)) for i in range(300)}
    lines = [f">{name} a protein of family {name[:-1]}\n{found[name]}\n" for name in found]
    (tmp_path / "all.fasta").write_text("".join(lines))
    write_clusters(tmp_path, [(cluster_of(name), name) for name in found])
    return found


def cluster_of(name):
    return f"C{int(name[1:]) // FAMILY}"


def write_clusters(folder, rows):
    (folder / "clusters.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))


def request_of(folder, **options):
    options = ALPHABET | {"held_out_by": "id", "clusters": str(folder / "clusters.tsv")} | options
    return PrepareRequest((str(folder / "all.fasta"),), **options)


def list_held_out(store, sequences):
    """Return {cluster: whether its records are held out}; each is in one part."""
    names = {sequence: name for name, sequence in sequences.items()}
    parts = {}
    for split in ("train", "heldout"):
        for text in texts_of(store, split):
            if name := names.get(text.replace(" ", "")):
                parts.setdefault(cluster_of(name), set()).add(split)
    assert sum(map(len, parts.values())) >= 25
    assert all(len(found) == 1 for found in parts.values()), parts
    return {cluster: found == {"heldout"} for cluster, found in parts.items()}


def test_a_family_is_in_one_part(sequences, tmp_path):
    store = prepare_store(request_of(tmp_path), tmp_path / "s", job_bytes=1000).store
    held_out = list_held_out(store, sequences)
    assert len(held_out) == 30 and 3 <= sum(held_out.values()) <= 15
    assert not store.manifest["noted"]
    # By the text of each record some families would be in both.
    plain = request_of(tmp_path, held_out_by=None, clusters=None)
    with pytest.raises(AssertionError):
        list_held_out(prepare_store(plain, tmp_path / "t").store, sequences)


def test_the_order_of_clusters_and_workers_does_not_matter(sequences, tmp_path):
    first = prepare_store(request_of(tmp_path), tmp_path / "s", job_bytes=1000).store
    rows = [(cluster_of(name), name) for name in reversed(sequences)]
    write_clusters(tmp_path, [*rows, *rows[:5]])  # some lines twice
    path = tmp_path / "clusters.tsv"
    path.with_suffix(".tsv.gz").write_bytes(gzip.compress(path.read_bytes()))
    request = request_of(tmp_path, clusters=f"{path}.gz")
    second = prepare_store(request, tmp_path / "t", job_bytes=700).store
    for split in ("train", "heldout"):
        assert texts_of(first, split) == texts_of(second, split)


@pytest.mark.more
def test_workers_see_each_member(sequences, tmp_path):
    prepare_store(request_of(tmp_path), tmp_path / "one", job_bytes=1000)
    prepare_store(request_of(tmp_path), tmp_path / "two", job_bytes=1000, workers=2)
    assert hash_files(tmp_path / "one") == hash_files(tmp_path / "two")


def test_the_values_of_a_field_without_clusters(sequences, tmp_path):
    records = [
        {"text": text, "meta": {"site": cluster_of(name)}} for name, text in sequences.items()
    ]
    for record, name in zip(records, list(sequences)[:7]):
        del record["meta"], sequences[name]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    path = str(tmp_path / "a.jsonl")
    request = PrepareRequest((path,), **ALPHABET, held_out_by="meta.site")
    store = prepare_store(request, tmp_path / "s").store
    held_out = list_held_out(store, sequences)
    assert set(held_out.values()) == {False, True}
    noted = store.manifest["noted"]
    assert noted[families.UNNAMED]["count"] == 7
    assert noted[families.UNNAMED]["first"].endswith("a.jsonl, 1")


def test_records_without_a_cluster_are_counted(sequences, tmp_path):
    write_clusters(tmp_path, [(cluster_of(name), name) for name in list(sequences)[5:]])
    noted = prepare_store(request_of(tmp_path), tmp_path / "s").store.manifest["noted"]
    assert noted[families.UNCLUSTERED]["count"] == 5
    assert noted[families.UNCLUSTERED]["first"].endswith("all.fasta, 1")


def test_an_accession_between_bars_is_a_member(sequences, tmp_path):
    """MMseqs2 names a record of UniProt by its accession."""
    lines = [f">sp|{name}|X_HUMAN\n{letters}\n" for name, letters in sequences.items()]
    (tmp_path / "all.fasta").write_text("".join(lines))
    store = prepare_store(request_of(tmp_path), tmp_path / "s", job_bytes=1000).store
    assert len(list_held_out(store, sequences)) == 30 and not store.manifest["noted"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("C0\tQ7", r"line 301: no record, or only an empty one, has 'Q7' in its field id; .* 1 of"),
        ("C1\tP3", r"line 301: 'P3' is in another cluster on line 4"),
        ("C0 P3", r"line 301: 'C0 P3' is not the name of a cluster and the name of a member"),
        ("C0\t", r"line 301: 'C0' is not the name of a cluster and the name of a member"),
        ("", r"line 301: '' is not the name of a cluster and the name of a member"),
        ("C" * 100_000, r"line 301: 'CCC"),
    ],
)
def test_a_bad_line_of_clusters(sequences, tmp_path, line, message):
    with open(tmp_path / "clusters.tsv", "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match=f"clusters.tsv, {message}"):
        prepare_store(request_of(tmp_path), tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_an_empty_file_of_clusters(sequences, tmp_path):
    (tmp_path / "clusters.tsv").write_text("")
    with pytest.raises(ValueError, match="clusters.tsv: no cluster is in it"):
        prepare_store(request_of(tmp_path), tmp_path / "s")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held_out_by": None}, "--clusters .* needs --held-out-by"),
        ({"held_out": 0.0}, "--held-out-by id with --held-out 0"),
        ({"held_out_by": "name"}, "--held-out-by reads fields of records, and .*all.fasta has"),
        ({"validation": ("x.fasta",), "held_out": 0.0}, "--held-out-by id with --held-out 0"),
        (
            {"cleaning": CleaningSettings(drop_duplicates="exact")},
            "--held-out-by id with --drop-duplicates",
        ),
        (
            {"cleaning": CleaningSettings(decontaminate=("held-out",))},
            "--held-out-by id with --decontaminate",
        ),
        ({"clusters": "absent.tsv"}, "absent.tsv"),
    ],
)
def test_options_that_exclude_each_other(sequences, tmp_path, options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        prepare_store(request_of(tmp_path, **options), tmp_path / "s")


def test_another_file_of_clusters_is_another_store(sequences, tmp_path):
    prepare_store(request_of(tmp_path), tmp_path / "s")
    assert prepare_store(request_of(tmp_path), tmp_path / "s").existed
    write_clusters(tmp_path, [("C", name) for name in list(sequences)[:150]])
    with pytest.raises(FileExistsError, match="store of other options or inputs.*digest"):
        prepare_store(request_of(tmp_path), tmp_path / "s")


def test_a_letter_outside_the_alphabet(sequences, tmp_path, capsys):
    (tmp_path / "all.fasta").write_text(">a\nACD\n>b\nACJ7\nDD\n>c\nACDD\n")
    command = ["prepare", str(tmp_path / "all.fasta"), "--vocabulary", "alphabet:esm2"]
    command += ["--held-out", "0.1", "--output", str(tmp_path / "s")]
    assert main([*command, "--on-unknown", "refuse"]) == 2
    error = capsys.readouterr().err
    assert re.search(r"all.fasta, line 3: the vocabulary has no id for [J7] 1, [J7] 1", error)
    assert not (tmp_path / "s").exists()
    assert main([*command, "--on-unknown", "count"]) == 0
    assert "unknown  " in capsys.readouterr().out
    assert main(command) == 0  # it is the same request
    assert "already prepared" in capsys.readouterr().out
