"""Row 17: whatever a file of others holds, its reader takes it, or refuses it in one line that names
the file; it needs no more than 2 seconds and 500 MB.

The readers read config.json, tokenizers, the headers of tensors, a store's manifest, a checkpoint's
record, and tables.
"""

import json
import os
import shutil
import struct
import sys

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as some

from data.store.manifest import read_manifest
from data.vocabulary.load import read_vocabulary
from data.vocabulary.regex_bounds import check_pattern
from pretrain.__main__ import main
from pretrain.convert.read_write import open_model
from pretrain.convert.safetensors_header import read_header
from pretrain.workdir.checkpoint_record import read_record, seal_record
from pretrain.workdir.errors import DamagedCheckpoint
from tests import forks
from tests.data.corpus.test_table_files import write_arrow, write_csv
from tests.data.corpus.test_web_archives import pack_records, write_archive
from tests.faults import mutated
from tests.faults.conftest import make_texts, write_tiny_store

WHOLE = os.environ.get("CLOZE_BOARD") == "whole"
MUTATIONS = 10_000 if WHOLE else 150
SECONDS, MEGABYTES = 2, 500  # for one file, and for all of them
EXAMPLES = 1000 if WHOLE else 50
often = settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
WORDPIECE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##e", "f", "##o", "##x", "."]

UNIGRAM = {"tokenizer_class": "AlbertTokenizer", "keep_accents": True}
SETTINGS = (  # (folder, file of transformers, its content)
    ("wordpiece", "tokenizer_config.json", {"do_lower_case": True, "tokenizer_class": "BertTokenizer"}),
    ("wordpiece", "special_tokens_map.json", {"unk_token": "[UNK]", "mask_token": {"content": "[MASK]"}}),
    ("wordpiece", "added_tokens.json", {"<new>": 11, "<two>": 12}),
    ("released_gpt2", "added_tokens.json", {"<new>": 300}),
    ("released_gpt2", "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}),
    ("released_bert", "tokenizer_config.json", UNIGRAM | {"added_tokens_decoder": {"40": {"content": "<new>", "special": True, "lstrip": True}}, "additional_special_tokens": ["<new>"]}),
)  # fmt: skip


def write_tables(place):
    """Write a folder for each form of a table, compressed and not, flat and nested."""
    texts = make_texts(12)
    flat = pyarrow.table({"id": range(12), "text": texts})
    coded = pyarrow.table({"text": pyarrow.array(texts).dictionary_encode()})
    nested = pyarrow.table({"a": [{"text": text, "tags": ["x", text]} for text in texts]})
    for name, table in (("flat", flat), ("coded", coded), ("nested", nested)):
        for compression in ("none", "snappy", "zstd"):
            (place / f"{name}_{compression}").mkdir(parents=True)
            path = place / f"{name}_{compression}" / f"{name}.parquet"
            pyarrow.parquet.write_table(table, path, row_group_size=5, compression=compression)
        for kind in ("stream", "file"):
            (place / f"{name}_{kind}").mkdir()
            write_arrow(place / f"{name}_{kind}" / f"{name}.arrow", table, kind)
    (place / "csv").mkdir()
    write_csv(place / "csv" / "a.csv", {"id": range(12), "text": texts})
    archive = write_archive(texts)
    for name, content in (("a.wet", b"".join(archive)), ("a.warc.gz", pack_records(archive))):
        (place / name.replace(".", "_")).mkdir()
        (place / name.replace(".", "_") / name).write_bytes(content)
    (place / "zst").mkdir()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (place / "zst" / "a.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))


@pytest.fixture(scope="module")
def place(tmp_path_factory, root):
    """A folder of real files for each reader of `mutated.READERS`."""
    from data.vocabulary.load import train_vocabulary

    place = tmp_path_factory.mktemp("real")
    for golden in sorted((root / "tests" / "goldens").glob("hf_*/")):
        if golden.is_dir():
            for reader in ("config", "safetensors"):
                shutil.copytree(golden, place / reader / golden.name)
            (place / "tokenizer" / golden.name).mkdir(parents=True)
            for path in golden.glob("tokenizer*.json"):
                shutil.copy(path, place / "tokenizer" / golden.name)
    layouts = {"bert": ("unigram", 40), "t5": ("bpe", 137), "gpt2": ("byte_bpe", 300)}
    for layout, (algorithm, size) in layouts.items():
        vocabulary = train_vocabulary(make_texts(600), size, layout, algorithm)
        for form in ("saved", "released"):
            vocabulary.save(place / "tokenizer" / f"{form}_{layout}")
        (place / "tokenizer" / f"released_{layout}" / "vocabulary.json").unlink()
    (place / "tokenizer" / "wordpiece").mkdir()
    (place / "tokenizer" / "wordpiece" / "vocab.txt").write_text("\n".join([*WORDPIECE, ""]))
    for name, file, content in SETTINGS:
        (place / "tokenizer" / name / file).write_text(json.dumps(content))
    (place / "manifest").mkdir()
    write_tiny_store(place / "manifest" / "bert", "bert", 40)
    write_tables(place / "tables")
    golden = str(root / "tests" / "goldens" / "hf_bert")
    assert main(["import", golden, "--workdir", str(place / "imported")]) == 0
    shutil.copytree(place / "imported" / "checkpoints" / "0" / "record", place / "record/0/record")
    return place


@pytest.mark.held_by(1)
@pytest.mark.timeout(1800 if WHOLE else 300)
@pytest.mark.parametrize("reader", mutated.READERS)
def test_mutations_of_real_files(reader, place, root, record_property):
    forks.prepare_server()
    words = [sys.executable, mutated.__file__, reader, "0", str(MUTATIONS), str(place)]
    done = forks.run(words, capture_output=True, text=True, timeout=1500, cwd=root)
    seed = (place / f"{reader}.seed").read_text()
    assert done.returncode == 0, f"seed {seed}: {done.returncode}: {done.stderr[-2000:]}"
    result = json.loads(done.stdout.splitlines()[-1])
    assert not result["failed"], result["failures"]
    assert result["accepted"] and result["refused"]
    assert result["slowest"][0] < SECONDS and result["megabytes"] < MEGABYTES, result
    for name in ("accepted", "refused"):
        record_property(f"{reader} {name}", result[name])
    record_property(f"{reader} seconds", round(result["seconds"], 1))
    record_property(f"{reader} megabytes", round(result["megabytes"], 1))


# ---- any value at any place


JSON = some.recursive(
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | some.text(max_size=6)
    | some.sampled_from([1 << 63, 4_000_000_000, "Regex", "(a|aa)+$", "bert", "<u2"]),
    lambda inner: (
        some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


def list_paths(tree, path=()):
    """The paths of all values of a JSON tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from list_paths(value, (*path, key))


def set_at(tree, at, value):
    """A copy of a JSON tree with a value at the path of number `at`, counted around."""
    tree = json.loads(json.dumps(tree))
    paths = list(list_paths(tree))
    *parents, last = paths[at % len(paths)]
    box = tree
    for key in parents:
        box = box[key]
    box[last] = value
    return tree


def find_error(read, value):
    """The error with which a reader refuses a value, or None. Any other kind of error is raised."""
    try:
        read(value)
    except (ValueError, OSError) as error:
        return error
    return None


def is_read_or_refused(read, folder):
    """Whether a reader takes a folder, or refuses it in one line that names it."""
    if (error := find_error(read, folder)) is None:
        return True
    is_named = str(folder) in str(error) or isinstance(error, DamagedCheckpoint)
    assert len(str(error).splitlines()) == 1 and is_named, error
    return not isinstance(error, UnicodeError)


@pytest.fixture(scope="module")
def folders(place):
    """A copy of one folder for each reader."""
    names = {"config": "hf_bert", "tokenizer": "hf_gpt2", "manifest": "bert", "record": "0"}
    for reader, name in names.items():
        shutil.copytree(place / reader / name, place / "any" / reader / name)
    return {reader: place / "any" / reader / name for reader, name in names.items()}


@often
@given(at=some.integers(0, 500), value=JSON)
@example(0, {"a": []})
@example(0, float("nan"))
def test_any_value_in_a_configuration(folders, at, value):
    folder = folders["config"]
    golden = json.loads((folder.parents[2] / "config" / folder.name / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(set_at(golden, at, value)))
    assert is_read_or_refused(lambda path: open_model(path, report=lambda line: None), folder)


@often
@given(at=some.integers(0, 5000), value=JSON)
def test_any_value_in_a_tokenizer(folders, at, value):
    folder = folders["tokenizer"]
    real = folder.parents[2] / "tokenizer" / folder.name / "tokenizer.json"
    (folder / "tokenizer.json").write_text(
        json.dumps(set_at(json.loads(real.read_text()), at, value))
    )
    assert is_read_or_refused(read_vocabulary, folder)


@often
@given(header=JSON | some.dictionaries(some.text(max_size=4), some.fixed_dictionaries({"dtype": some.sampled_from(["F32", "I8", "X"]) | JSON, "shape": some.lists(some.integers(-1, 1 << 65), max_size=3) | JSON, "data_offsets": some.lists(some.integers(-1, 1 << 65), max_size=3) | JSON}), max_size=3), data=some.binary(max_size=16))  # fmt: skip
def test_any_header_of_tensors(tmp_path_factory, header, data):
    path = tmp_path_factory.getbasetemp() / "model.safetensors"
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    assert is_read_or_refused(read_header, path)


@often
@given(at=some.integers(0, 300), value=JSON)
def test_any_value_in_a_manifest(folders, at, value):
    folder = folders["manifest"]
    real = folder.parents[2] / "manifest" / folder.name / "manifest.json"
    (folder / "manifest.json").write_text(
        json.dumps(set_at(json.loads(real.read_text()), at, value))
    )
    assert is_read_or_refused(read_manifest, folder)


@often
@given(at=some.integers(0, 300), value=JSON)
def test_any_value_in_a_record(folders, at, value):
    folder = folders["record"]
    real = folder.parents[2] / "record" / folder.name / "record" / "metadata"
    record = set_at(json.loads(real.read_text())["record"], at, value)
    (folder / "record" / "metadata").write_text(json.dumps(seal_record(record)))
    assert is_read_or_refused(read_record, folder)


# ---- regular expressions

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
RELEASED = (
    GPT2,
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lm}]+(?i:'s|'t)?|\s+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r" {2,}",
    r"(?!\A)(?=[\p{M}\u200c\u200d\uff9e\uff9f])",
    r"[ ▁]+\z",
    r"[0-9][0-9][0-9]",
    r"(?=(?:\d{3})+\b)",
    r"<\|startoftext\|>|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"[]a]+[^\]]*",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}"
    r"\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\p{N}{1,3}(?=(?:\p{N}{3})*\b)",
    r"^\s+|\s+$",
    r"(?i)'s|'t|[^\r\n\p{L}\p{N}]?\p{L}+|\s+(?!\S)|\s+",
)
EXPONENTIAL = (
    *(r"(x+x+)+y", r"(a|aa)+$", r"(a*)*b", r"(?:a+){20}", r"(a|b)*c", "a?" * 30 + "a" * 30),
    *(r"\s*\s*\s*\s*x", r"(a)\1", r"(?<n>a|b\g<n>)", r"((a{8}){8}){8}", r"(?:a{1000}){1000}"),
    # Cubic: minutes for a word of 5,000 letters. Exponential without a quantifier.
    r"x*(?i)|x*[yz]",  # x*(?i:|x*[yz])
    *(r"x*x*[yz]", r"x*(?=x*[yz])", r"x*(x*y)?z", r"(x*)(x*)[yz]", r"x{0,999}x{0,999}[yz]"),
    *("(?:x|x)" * 30 + "[yz]", "(?:(?:x|x)(?:x|x)(?:x|x))(?:(?:x|x)(?:x|x)(?:x|x))[yz]"),
    *("(" * 100, "a+*", "(?(1)a|b)", "(*FAIL)", "a" * 5000, "[a", "x)"),
)


@pytest.mark.held_by(4)
@pytest.mark.parametrize("pattern", RELEASED)
def test_patterns_of_released_tokenizers_are_read(pattern):
    check_pattern(pattern)


@pytest.mark.held_by(4)
@pytest.mark.parametrize("pattern", EXPONENTIAL, ids=lambda pattern: pattern[:20])
def test_patterns_that_may_take_too_long_are_refused(pattern):
    with pytest.raises(ValueError, match="the regular expression '"):
        check_pattern(pattern)


@often
@given(some.text("ab()[]{}|*+?\\^$.,1:=!<>k ", max_size=30))
def test_any_pattern_is_read_or_refused(pattern):
    error = find_error(check_pattern, pattern)
    assert error is None or str(error).startswith("the regular expression ")
