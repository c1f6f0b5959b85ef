"""Sequences of FASTA and FASTQ files: the same documents in any form, and clear errors."""

import dataclasses
import gzip

import pytest

from data.corpus import lines, sources

RECORDS = {"a": "MKVLAMKVLA" * 9, "b c": "", "d": "GG", "d ": "ACD-X.B" * 20}
SEQUENCES = [*RECORDS.values()]


def write_fasta(width=60, end="\n", case=str, star=""):
    """Return a file of the records, with lines of `width` letters."""
    rows = ["; a comment"]
    for name, letters in RECORDS.items():
        letters = case(letters + star if letters else letters)
        rows += [f">{name}", *(letters[i : i + width] for i in range(0, len(letters), width)), ""]
    return end.join(rows).encode()


def read(path, chunk_bytes=1 << 20, keeps_case=False, **options):
    """Return the texts of a source in chunks of so many bytes."""
    source = sources.resolve_source(str(path), "record", **options)
    source = dataclasses.replace(source, keeps_case=keeps_case)
    chunks = sources.split_source(source, chunk_bytes, path.parent)
    return [each.raw.decode() for chunk in chunks for each in sources.read_chunk(chunk)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.fasta", write_fasta()),
        ("one_line.fa", write_fasta(1000)),
        ("dos.faa", write_fasta(7, "\r\n")),
        ("soft_masked.fna", write_fasta(case=str.lower)),
        ("ends.fas", write_fasta(star="*")),
        ("packed.fasta.gz", gzip.compress(write_fasta())),
        ("marked.fasta", b"\xef\xbb\xbf" + write_fasta().removeprefix(b"; a comment\n")),
    ],
)
def test_each_form_has_the_same_sequences(name, content, tmp_path):
    (path := tmp_path / name).write_bytes(content)
    assert read(path) == SEQUENCES


def test_a_record_belongs_to_the_part_in_which_it_begins(tmp_path):
    (path := tmp_path / "some.fasta").write_bytes(content := write_fasta(11))
    for size in range(1, len(content) + 1):
        assert read(path, size) == SEQUENCES, size
    (path := tmp_path / "some.fasta.gz").write_bytes(gzip.compress(content))
    assert read(path, 10) == SEQUENCES


def test_lower_case_stays_where_it_is_asked_for(tmp_path):
    (tmp_path / "x.fa").write_bytes(b">a\nACgt\nnA\n")
    (tmp_path / "x.fq").write_bytes(b"@a\nACgt\n+\n!!!!\n")
    assert read(tmp_path / "x.fa", keeps_case=True) == ["ACgtnA"]
    assert read(tmp_path / "x.fq", keeps_case=True) == ["ACgt"]
    assert read(tmp_path / "x.fa") == ["ACGTNA"]


def test_a_line_of_molecules_begins_with_its_smiles(tmp_path):
    content = b"C[C@@H](N)C(=O)O alanine\n\n  c1ccccc1\r\nCC\tethane 1\n\xff b"
    expected = ["C[C@@H](N)C(=O)O", "c1ccccc1", "CC", "\ufffd"]
    for name in ("x.smi", "x.smiles"):
        (tmp_path / name).write_bytes(content)
        for size in (3, 1 << 20):
            assert read(tmp_path / name, size) == expected


def test_four_lines_are_a_read(tmp_path):
    content = b"@r1\nACGTN\n+\n@!!!!\n\n@r2 x\r\nacg\r\n+r2\r\n>@+\r\n"
    for name in ("reads.fastq", "reads.fq"):
        (path := tmp_path / name).write_bytes(content)
        assert read(path, 3) == ["ACGTN", "ACG"]
    (tmp_path / "reads.txt").write_bytes(content)
    assert read(tmp_path / "reads.txt", file_format="fastq") == ["ACGTN", "ACG"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.fasta", b"@r1\nACGT\n+\n!!!!\n", "x.fasta, line 1: '@r1' comes before .* --as fastq"),
        ("x.fasta", b"\nMKVL\n>a\nM\n", "x.fasta, line 2: 'MKVL' comes before .* no FASTA"),
        ("x.fastq", b">a\nACGT\n", "x.fastq, line 1: a record begins with @: .* --as fasta"),
        ("x.fastq", b"@a\nAC\nGT\n+\n!!!!\n", "x.fastq, line 3: the third line of a record"),
        ("x.fastq", b"@a\nACG\n+\n!!\n", "x.fastq, line 1: 3 letters have 2 qualities"),
        ("x.fastq", b"@a\nAC\n+\n!!\n@b\nAC\n", "x.fastq, line 5: the last record is cut off"),
    ],
)
def test_what_is_no_record_is_refused_by_its_line(name, content, message, tmp_path):
    (path := tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.parametrize("width", [50, 10])
def test_a_sequence_above_the_limit_is_refused_before_it_is_read(width, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_DOCUMENT_BYTES", 40)
    content = b">a\nM\n>b\n" + (b"M" * width + b"\n") * 20
    (path := tmp_path / "x.fasta").write_bytes(content)
    with pytest.raises(ValueError, match=r"x.fasta, line [34]: a document of more than"):
        read(path)
