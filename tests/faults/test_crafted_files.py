"""Row 14: malicious files are refused, nothing in them is executed or written, and the source
contains no way to do so.
"""

import ast
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest

# Calls that would execute or write what a file contains. A configuration in Python is code by design,
# and belongs to the user.
MODULES = {
    "pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "torch",
    "zipfile",
}  # fmt: skip
NAMES = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {"extractall", "extract", "unpack_archive", "exec_module"}
MODULE_CALLS = {
    ("np", "load"), ("numpy", "load"), ("os", "system"), ("os", "popen"), ("torch", "load"),
    ("pickle", "loads"),
}  # fmt: skip
KEYWORDS = {"shell", "allow_pickle", "trust_remote_code"}
ALLOWED = {
    ("pretrain/config.py", "exec_module"),
    # yaml.BaseLoader makes texts, lists and mappings alone; tests/pretrain/convert/hub/test_datasets.py has a tag of Python
    ("data/corpus/hub/layout.py", "yaml"),
    # exports carry them, and nothing here imports them
    *(
        (f"pretrain/families/remote_code/{name}.py", module)
        for name in ("gpt_bert", "linformer", "lstm_lm", "music_transformer", "sparse_transformer")
        for module in ("torch", "torch.nn.functional")
    ),
}


class Trap:
    """Unpickling it makes a folder."""

    def __reduce__(self):
        return os.mkdir, (os.environ["TRAP"],)


def make_pickle(trap):
    return pickle.dumps(Trap())


def make_array(trap):
    out = io.BytesIO()
    np.save(out, np.array([Trap()], object), allow_pickle=True)
    return out.getvalue()


def make_tar(trap):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        file.addfile(tarfile.TarInfo(f"../../../../../..{trap}"))
    return out.getvalue()


def make_zip(trap):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(f"../../../../../..{trap}", "")
    return out.getvalue()


def make_yaml(trap):
    return f"!!python/object/apply:os.mkdir ['{trap}']\n".encode()


def huge_header(trap):
    return struct.pack("<Q", 1 << 62) + b"{"


def header_beyond_the_file(trap):
    return (
        struct.pack("<Q", 1000)
        + b'{"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,18446744073709551615]}}'
    )


CRAFTED = {
    "pkl": make_pickle, "npy": make_array, "tar.gz": make_tar, "zip": make_zip,
    "yaml": make_yaml, "safetensors": huge_header,
}  # fmt: skip
HARMFUL = (
    make_pickle, make_array, make_tar, make_zip, make_yaml, huge_header, header_beyond_the_file,
)  # fmt: skip


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """Return a path that must not exist afterwards."""
    path = tmp_path / "trapped"
    monkeypatch.setenv("TRAP", str(path))
    yield path
    assert not path.exists()


@pytest.mark.held_by(3)
@pytest.mark.parametrize("suffix", CRAFTED)
def test_as_a_source_a_configuration_or_a_store(trap, refused, tmp_path, record_property, suffix):
    bait = tmp_path / "bait"
    bait.mkdir()
    file = bait / f"bait.{suffix}"
    file.write_bytes(CRAFTED[suffix](trap))
    assert "bait" in refused("prepare", file, "--output", tmp_path / "store")
    assert "bait" in refused("prepare", bait, "--output", tmp_path / "store")
    assert "no configuration" in refused("train", file, "--workdir", tmp_path / "run")
    (bait / "config.json").write_bytes(file.read_bytes())
    assert "config.json" in refused("train", bait / "config.json", "--workdir", tmp_path / "run")
    (bait / "manifest.json").write_bytes(file.read_bytes())
    assert "manifest.json is broken" in refused("inspect", "bert_tiny", f"data.store={bait}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bait"]
    record_property("files refused", 5)


@pytest.mark.held_by(3)
@pytest.mark.parametrize("make", HARMFUL, ids=lambda make: make.__name__)
def test_as_weights_to_import(trap, refused, tmp_path, root, record_property, make):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_bytes(
        (root / "tests" / "goldens" / "hf_bert" / "config.json").read_bytes()
    )
    (folder / "model.safetensors").write_bytes(make(trap))
    assert "model.safetensors" in refused("import", folder, "--workdir", tmp_path / "run")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pytorch_model.bin" in refused("import", folder, "--workdir", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    record_property("files refused", 2)


def test_a_folder_that_asks_for_remote_code(trap, tmp_path, root, record_property):
    from pretrain.convert.safe_folder import read_config

    asked = json.loads((root / "tests" / "goldens" / "hf_bert" / "config.json").read_text())
    asked |= {"auto_map": {"AutoModel": "modeling.Harm"}, "trust_remote_code": True}
    (tmp_path / "config.json").write_text(json.dumps(asked))
    (tmp_path / "modeling.py").write_text(f"import os\nos.mkdir({str(trap)!r})\n")
    messages = []
    read_config(tmp_path, messages.append)
    assert "auto_map names code of its own (AutoModel), which Cloze never runs" in messages[0]
    record_property("files refused", 1)


def find_harm(path, tree):
    """Return (line, name) of all code in a file that could execute or unpack the contents of
    another file.
    """
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
            )
            yield from ((node.lineno, name) for name in names if name.split(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in NAMES:
                yield node.lineno, called.id
            if isinstance(called, ast.Attribute):
                owner = called.value.id if isinstance(called.value, ast.Name) else None
                refuses = any(
                    keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True) is False
                    for keyword in node.keywords
                )
                harms = (owner, called.attr) in MODULE_CALLS and not refuses
                if called.attr in ATTRIBUTES or harms:
                    yield node.lineno, called.attr
                if called.attr == "import_module" and node.args:
                    name = str(getattr(node.args[0], "value", ""))
                    if name.split(".")[0] in MODULES:
                        yield node.lineno, name
            for keyword in node.keywords:
                if keyword.arg in KEYWORDS and getattr(keyword.value, "value", True) is not False:
                    yield node.lineno, keyword.arg


def test_the_source_has_nothing_that_executes_or_unpacks(root, record_property):
    files = [
        path
        for room in ("data", "models", "pretrain", "configs")
        for path in sorted((root / room).rglob("*.py"))
    ]
    found = []
    for path in files:
        name = str(path.relative_to(root))
        found += [
            f"{name}:{line}: {what}"
            for line, what in find_harm(path, ast.parse(path.read_text()))
            if (name, what) not in ALLOWED
        ]
    assert not found
    record_property("source files read", len(files))


@pytest.mark.parametrize(
    "code",
    [
        "import pickle", "from torch import load", "eval('1')", "a.extractall('.')",
        "run('ls', shell=True)", "np.load('x')", "os.system('ls')",
        "np.load('x', allow_pickle=True)", "importlib.import_module('yaml')",
    ],
)  # fmt: skip
def test_the_scan_of_the_source_finds_forbidden_calls(code):
    assert list(find_harm("x.py", ast.parse(code)))
