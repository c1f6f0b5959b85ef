"""A folder is read without trusting it, and written whole or not at all."""

import json
import os
import pickle
import shlex
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from data.store.atomic import LOCK_MARK
from pretrain.convert import safe_folder as folders
from pretrain.convert.export_folder import replace_export, write_tensors
from pretrain.convert.hub.snapshot import choose_files
from pretrain.convert.read_write import open_model
from pretrain.convert.safe_folder import (
    FolderError,
    FolderTensors,
    read_config,
)

TENSORS = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b.bias": np.linspace(-1, 1, 5, dtype=np.float32),
    "c": np.array([1.5, np.inf, -0.0], np.float32),
    "position_ids": np.arange(4),
}


SIZES = dict(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=2)


@pytest.fixture
def model(tmp_path):
    """Write a folder with a configuration and one file of tensors."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    save_file(TENSORS, tmp_path / "model.safetensors")
    return tmp_path


def assert_same_tensors(tensors):
    assert set(tensors) == set(TENSORS)
    for name, array in TENSORS.items():
        assert tensors[name].dtype == array.dtype and tensors[name].tobytes() == array.tobytes(), (
            name
        )


# ---- reading -----------------------------------------------------------------


def test_one_file(model):
    assert_same_tensors(FolderTensors(model))
    assert FolderTensors(model).list_formats() == ("F32",)


@pytest.mark.parametrize("limit", [1, 50, 70, 10_000])
def test_written_in_parts_and_read_back(tmp_path, limit):
    write_tensors(tmp_path, TENSORS, limit=limit)
    assert_same_tensors(FolderTensors(tmp_path))
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    if limit == 10_000:
        assert files == ["model.safetensors"]
        return
    index = json.loads((tmp_path / folders.INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in TENSORS.values())
    assert files == [
        f"model-{i:05d}-of-{len(files):05d}.safetensors" for i in range(1, len(files) + 1)
    ]
    for file in files:
        held = load_file(tmp_path / file)
        assert len(held) == 1 or sum(array.nbytes for array in held.values()) <= limit
        assert all(index["weight_map"][name] == file for name in held)


def test_one_file_precedes_an_index(model):
    """As in transformers, which does not look at the files of an earlier, larger save."""
    old = "model-00001-of-00002.safetensors"
    save_file({"a.weight": np.zeros((3, 4), np.float32)}, model / old)
    (model / folders.INDEX).write_text(json.dumps({"weight_map": {"a.weight": old}}))
    assert_same_tensors(FolderTensors(model))
    names = dict.fromkeys(["config.json", "model.safetensors", folders.INDEX, old])
    assert choose_files("hf://a/b", names) == ["config.json", "model.safetensors"]
    (model / old).unlink()
    assert_same_tensors(FolderTensors(model))
    pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    bert = transformers.BertModel(transformers.BertConfig(**SIZES))
    bert.save_pretrained(model)
    (model / folders.INDEX).write_text(json.dumps({"weight_map": {"pooler.dense.bias": old}}))
    theirs = transformers.BertModel.from_pretrained(model).pooler.dense.bias.detach().numpy()
    np.testing.assert_array_equal(FolderTensors(model)["pooler.dense.bias"], theirs)


def test_arrays_that_are_views_are_written_right(tmp_path):
    views = {"turned": TENSORS["a.weight"].T, "every_other": TENSORS["b.bias"][::2]}
    write_tensors(tmp_path, views)
    for name, array in load_file(tmp_path / "model.safetensors").items():
        np.testing.assert_array_equal(array, views[name])


def test_half_precision_becomes_float32_exactly(tmp_path):
    values = np.array([1.0, 3.140625, -0.0078125, 0.0], np.float32)
    save_file(
        {"half": values.astype(np.float16), "brain": values.astype(ml_dtypes.bfloat16)},
        tmp_path / "model.safetensors",
    )
    tensors = FolderTensors(tmp_path)
    assert tensors.list_formats() == ("BF16", "F16")
    for name in tensors:
        assert tensors[name].dtype == np.float32
        np.testing.assert_array_equal(tensors[name], values)


def test_a_format_beyond_float32_is_refused(tmp_path):
    save_file({"wide": np.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(
        FolderError,
        match=r"model.safetensors: wide is stored as F64; .*\.float\(\)\.save_pretrained",
    ):
        FolderTensors(tmp_path)


def make_header(text, length=None):
    content = text.encode()
    return struct.pack("<Q", len(content) if length is None else length) + content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x08\x00",
        make_header("{}", 2**62),  # claims a header of 4 EiB
        make_header("{}", 99_000_000),
        make_header("not JSON"),
        make_header(
            '{"a": {"dtype": "F32", "shape": [1099511627776, 1099511627776], "data_offsets": [0, 4]}}'
        )
        + b"0000",
        make_header('{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}') + b"0000",
        make_header('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}') + b"00000000",
        b"PK\x03\x04 a zip, which is what a pickled checkpoint is",
    ],
)
def test_damaged_file_is_named(model, content):
    (model / "model.safetensors").write_bytes(content)
    with pytest.raises(
        FolderError,
        match=rf"model.safetensors: not a whole .safetensors file of {len(content)} bytes",
    ):
        FolderTensors(model)


def test_every_truncation_is_noticed(model):
    whole = (model / "model.safetensors").read_bytes()
    for length in (*range(40), *range(40, len(whole), 17), len(whole) - 1):
        (model / "model.safetensors").write_bytes(whole[:length])
        with pytest.raises(FolderError, match="not a whole"):
            FolderTensors(model)


def write_index(folder, places):
    (folder / "model.safetensors").unlink(missing_ok=True)
    (folder / folders.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.mark.parametrize(
    "file",
    [
        "../x.safetensors", "/etc/passwd", "sub/x.safetensors", "..\\x.safetensors", "..", "",
        "x.bin", "x.safetensors\0", "./x.safetensors",
    ],
)  # fmt: skip
def test_an_index_cannot_leave_its_folder(model, file):
    save_file(TENSORS, model.parent / "x.safetensors")
    write_index(model, {"a.weight": file})
    with pytest.raises(FolderError, match="only .safetensors files next to the index are read"):
        FolderTensors(model)


def test_an_index_and_its_files_must_agree(model):
    save_file(TENSORS, model / "x.safetensors")
    write_index(model, {"a.weight": "x.safetensors", "absent": "x.safetensors"})
    with pytest.raises(FolderError, match="x.safetensors: has no tensor absent"):
        FolderTensors(model)
    write_index(model, {"a.weight": "y.safetensors"})
    with pytest.raises(FolderError, match="y.safetensors: missing"):
        FolderTensors(model)
    for wrong in (None, [], {}, {"a.weight": 3}):
        write_index(model, wrong)
        with pytest.raises(FolderError, match="weight_map"):
            FolderTensors(model)


class Trap:
    """Unpickling it creates a file."""

    def __reduce__(self):
        return os.mkdir, (os.environ["TRAP"],)


def test_a_pickle_is_never_opened(model, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAP", str(tmp_path / "trapped"))
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(
        FolderError, match=r"pytorch_model.bin but no model.safetensors.*save_pretrained"
    ):
        FolderTensors(model)
    assert not (tmp_path / "trapped").exists()
    pickle.loads(pickle.dumps(Trap()))  # the attack would have worked
    assert (tmp_path / "trapped").exists()


def test_wrong_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        read_config(tmp_path / "absent")
    with pytest.raises(FolderError, match="no config.json"):
        read_config(tmp_path)
    for content, word in (
        ("{", "not JSON"),
        ("[1]", "holds list"),
        ('{"a": \xff', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ):
        (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
        with pytest.raises(FolderError, match=f"config.json: .*{word}"):
            read_config(tmp_path)
    with pytest.raises(FolderError, match="no model.safetensors"):
        FolderTensors(tmp_path)
    save_file(TENSORS, tmp_path / "adapter.safetensors")
    with pytest.raises(
        FolderError, match="it has adapter.safetensors and no model.safetensors.index.json"
    ):
        FolderTensors(tmp_path)


def test_a_workdir_is_named_as_such(tmp_path):
    workdir = tmp_path / "a run"
    (workdir / "checkpoints").mkdir(parents=True)
    (workdir / "config.json").write_text('{"format": 3, "type": "Run"}')
    with pytest.raises(
        FolderError, match="is a workdir of Cloze.*`export --workdir .* --output"
    ) as e:
        open_model(workdir)
    assert f"--workdir {shlex.quote(str(workdir))} --output" in str(e.value)


def test_code_in_a_folder_is_skipped_and_reported(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "bert", "auto_map": {"AutoModel": "evil.Model"}})
    )
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    messages = []
    assert read_config(tmp_path, messages.append)["model_type"] == "bert"
    assert len(messages) == 1 and "auto_map" in messages[0] and "never runs" in messages[0]


# ---- writing -----------------------------------------------------------------


def write_and_fail(part, text):
    (part / "README.md").write_text(text)
    raise RuntimeError("written in part")


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    output = tmp_path / "deep" / "out"
    with pytest.raises(RuntimeError, match="written in part"), replace_export(output) as part:
        write_and_fail(part, "cut")
    assert list((tmp_path / "deep").iterdir()) == []
    with replace_export(output) as part:
        (part / "config.json").write_text("{}")
        assert not output.exists()
    assert [path.name for path in output.iterdir()] == ["config.json"]
    assert [path.name for path in output.parent.iterdir()] == ["out"]


CARD = """---
library_name: transformers
pipeline_tag: fill-mask
tags: [bert]
---

# A 1M BERT

Pretrained from random parameters with Cloze, for {} steps.

| | |
|-|-|
| a | b |

## Evaluation

None.

## Use

```python
x
```

## Limits

Many.
"""


def test_existing_files_are_replaced_only_on_request(tmp_path):
    output, first, second = tmp_path / "out", CARD.format(1), CARD.format(2)
    output.mkdir()
    with replace_export(output) as part:  # an empty folder is no loss
        (part / "README.md").write_text(first)
    with pytest.raises(FileExistsError, match="not empty.*--overwrite"), replace_export(output):
        pass
    # A failure leaves the old folder unchanged.
    failure = pytest.raises(RuntimeError, match="written in part")
    with failure, replace_export(output, overwrite=True) as part:
        write_and_fail(part, "second")
    assert (output / "README.md").read_text() == first
    with replace_export(output, overwrite=True) as part:
        (part / "README.md").write_text(second)
    assert (output / "README.md").read_text() == second
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("card", "config", "message"),
    [
        (None, "{}", "has no README.md of an export by Cloze"),
        ("# My model\n\nTrained with Cloze.\n", "{}", "has no README.md of an export by Cloze"),
        (CARD, '{"transformers_version": "5.0.0"}', "was saved again by `transformers`"),
    ],
)
def test_a_model_that_transformers_saved_is_never_replaced(tmp_path, card, config, message):
    """Its files have the names of an export's."""
    output = tmp_path / "out"
    output.mkdir()
    (output / "config.json").write_text(config)
    (output / "model.safetensors").write_text("weeks of work")
    if card:
        (output / "README.md").write_text(card)
    with (
        pytest.raises(FileExistsError, match=message),
        replace_export(output, overwrite=True) as part,
    ):
        (part / "README.md").write_text(CARD)
    assert (output / "model.safetensors").read_text() == "weeks of work"


def test_what_is_put_there_while_an_export_is_written_stays(tmp_path):
    output = tmp_path / "out"
    filled = pytest.raises(FileExistsError, match="not empty")
    with filled, replace_export(output) as part:
        (part / "README.md").write_text(CARD)
        output.mkdir()
        (output / "thesis.txt").write_text("x")
    assert [path.name for path in output.iterdir()] == ["thesis.txt"]


def test_a_folder_that_is_no_export_is_never_replaced(tmp_path):
    output = tmp_path / "home"
    output.mkdir()
    (output / "thesis.txt").write_text("years of work")
    refusal = pytest.raises(FileExistsError, match="holds thesis.txt, which no export writes")
    with refusal, replace_export(output, overwrite=True):
        pass
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(output)
    for name in ("file", "link"):
        refusal = pytest.raises(FileExistsError, match="not a folder")
        with refusal, replace_export(tmp_path / name, overwrite=True):
            pass
    assert (output / "thesis.txt").read_text() == "years of work"


def test_files_of_a_killed_export_do_not_prevent_the_next(tmp_path):
    for rest in (".out.part-0123abcd", ".out.part-4567efgh"):
        (tmp_path / rest).mkdir()
        (tmp_path / rest / "model.safetensors").write_bytes(b"cut")
        (tmp_path / rest / "lock").write_text(LOCK_MARK)
    with replace_export(tmp_path / "out") as part:
        assert list(part.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
