"""Row 16: a Hugging Face folder that was made to do harm is refused within 2 seconds and 500 MB,
with the file and the value.
"""

import json
import os
import shutil
import struct
import sys

import pytest

from tests import forks
from tests.faults import measured

SECONDS, MEGABYTES = 2, 500


def change_json(folder, name, change):
    """Apply a function to the JSON object in a file."""
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))


def set_config(**entries):
    return lambda folder: change_json(folder, "config.json", lambda config: config.update(entries))


def set_tokenizer(path, value):
    """Set the value at a path of keys in tokenizer.json."""

    def change(settings):
        *parents, last = path
        for key in parents:
            settings = settings[key]
        settings[last] = value

    return lambda folder: change_json(folder, "tokenizer.json", change)


def add_token(token_id):
    token = {"id": token_id, "content": "<far>", "single_word": False, "lstrip": False}
    token |= {"rstrip": False, "normalized": False, "special": True}
    return lambda folder: change_json(
        folder, "tokenizer.json", lambda settings: settings["added_tokens"].append(token)
    )


def split_by(pattern):
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return set_tokenizer(["pre_tokenizer"], step)


def replace_by(*contents):
    steps = [{"type": "Replace", "pattern": {"Regex": "x"}, "content": one} for one in contents]
    return set_tokenizer(["normalizer"], {"type": "Sequence", "normalizers": steps})


def write_text(name, text):
    return lambda folder: (folder / name).write_text(text)


def link_to(name, target):
    def replace(folder):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
        if name == "model.safetensors.index.json":  # which is read where the one file is not there
            (folder / "model.safetensors").unlink()

    return replace


def make_pipe(name):
    def replace(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return replace


def make_sparse(name, size):
    def extend(folder):
        with open(folder / name, "ab") as file:
            file.truncate(size)

    return extend


def write_header(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = struct.pack("<Q", len(text) if length is None else length) + text + data
    return lambda folder: (folder / "model.safetensors").write_bytes(content)


def tensor(shape, start, stop, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def claim_terabytes(folder):
    """A sparse file of a whole model of 4 TB, with its configuration."""
    name = "bert.embeddings.word_embeddings.weight"
    header = json.dumps({name: tensor([1 << 20, 1 << 20], 0, 1 << 42)}).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + (1 << 42))


def name_many_files(folder):
    (folder / "model.safetensors").unlink()
    places = {f"t{i}": f"{i}.safetensors" for i in range(100_000)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


LAYERS = 100_000
NESTED = '{"a":' * 100_000
# {name: (the golden folder, a function that damages a copy, parts of the message)}
FOLDERS = {
    "layers": ("bert", set_config(num_hidden_layers=LAYERS), "config.json", "num_hidden_layers is 100,000"),
    "shared layers": ("albert", set_config(num_hidden_layers=LAYERS), "config.json", "100,000"),
    "layers of T5": ("t5", set_config(num_layers=LAYERS), "config.json", "num_layers is 100,000"),
    "decoder layers": ("t5", set_config(num_decoder_layers=LAYERS), "config.json", "100,000"),
    "layers of GPT-2": ("gpt2", set_config(n_layer=LAYERS), "config.json", "n_layer is 100,000"),
    "layers within the limit": ("bert", set_config(num_hidden_layers=999), "config.json", "999"),
    "vocab_size": ("bert", set_config(vocab_size=1 << 40), "config.json", "vocab_size is 1,099,511"),
    "hidden_size": ("bert", set_config(hidden_size=1 << 62), "config.json", "hidden_size"),
    "intermediate_size": ("bert", set_config(intermediate_size=10**30), "config.json", "intermediate_size"),
    "positions": ("bert", set_config(max_position_embeddings=1 << 31), "config.json", "2,147,483,648"),
    "heads": ("t5", set_config(num_heads=1 << 30), "config.json", "num_heads is 1,073,741,824"),
    "a size of 5,000 digits": ("bert", lambda folder: (folder / "config.json").write_text((folder / "config.json").read_text().replace('"vocab_size"', f'"num_labels": {"9" * 5000}, "vocab_size"')), "config.json", "digits"),
    "a rate of 400 digits": ("bert", set_config(layer_norm_eps=10**400), "config.json", "layer_norm_eps"),
    "a rate that is infinite": ("bert", lambda folder: (folder / "config.json").write_text('{"model_type": "bert", "layer_norm_eps": 1e999}'), "config.json", "1e999"),
    "a long text": ("bert", set_config(model_type="x" * 4_000_000), "config.json", "model_type"),
    "many architectures": ("bert", set_config(architectures=["x"] * 400_000), "config.json", "architectures has 400,000"),
    "a key twice": ("bert", lambda folder: (folder / "config.json").write_text('{"model_type": "bert", "vocab_size": 1, "vocab_size": 2}'), "config.json", "'vocab_size' occurs twice"),
    "nested JSON": ("bert", write_text("config.json", NESTED), "config.json", "nested too deeply"),
    "nested lists": ("bert", write_text("config.json", "[" * 4_000_000), "config.json", "values"),
    "many lists": ("bert", write_text("config.json", f'{{"a":[{"[]," * 2_000_000}[]]}}'), "config.json", "values"),
    "a nested tokenizer": ("bert", write_text("tokenizer.json", NESTED), "tokenizer.json", "nested too deeply"),
    "nested settings": ("bert", write_text("tokenizer_config.json", NESTED), "tokenizer_config.json", "nested"),
    "an added token": ("bert", add_token(4_000_000_000), "tokenizer.json", "'<far>' has id 4000000000"),
    "an id": ("bert", set_tokenizer(["model", "vocab", "far"], 4_000_000_000), "tokenizer.json", "'far' has id 4000000000"),
    "an id below 0": ("bert", set_tokenizer(["model", "vocab", "far"], -1), "tokenizer.json", "has id -1"),
    "an id of vocab.json": ("gpt2", lambda folder: ((folder / "tokenizer.json").unlink(), (folder / "vocab.json").write_text('{"a": 4000000000}'), (folder / "merges.txt").write_text("")), "vocab.json", "'a' has id 4000000000"),
    "a split that backtracks": ("gpt2", split_by("(x+x+)+y"), "tokenizer.json", "(x+x+)+y"),
    "a replacement that backtracks": ("t5", set_tokenizer(["normalizer"], {"type": "Replace", "pattern": {"Regex": "(a|aa)+$"}, "content": ""}), "tokenizer.json", "(a|aa)+$"),
    "many added tokens": ("bert", lambda folder: write_text("tokenizer_config.json", json.dumps({"added_tokens_decoder": {str(47 + i): {"content": f"<{i}>"} for i in range(60_000)}}))(folder), "tokenizer_config.json", "added_tokens_decoder has 60,000 tokens"),
    "many tokens of tokenizer.json": ("bert", set_tokenizer(["added_tokens"], [{}] * 60_000), "tokenizer.json", "added_tokens has 60,000 tokens"),
    "a cubic split": ("gpt2", split_by("x*x*[yz]"), "tokenizer.json", "x*x*[yz]", "follows 2 repetitions"),
    "a split of many ways": ("gpt2", split_by("(?:x|x)" * 30 + "[yz]"), "tokenizer.json", "may match in 64 ways"),
    "long words": ("bert", set_tokenizer(["model", "max_input_chars_per_word"], 10**9), "tokenizer.json", "max_input_chars_per_word is 1000000000"),
    "replacements that grow": ("t5", replace_by(*["x" * 30] * 10), "tokenizer.json", "normalizer"),
    "values of a tokenizer": ("bert", set_tokenizer(["extra"], [[]] * 2_000_000), "tokenizer.json", "values"),
    "a large tokenizer": ("bert", make_sparse("tokenizer.json", 1 << 33), "tokenizer.json", "8,589,934,592 bytes"),
    "a large configuration": ("bert", make_sparse("config.json", 1 << 34), "config.json", "17,179,869,184 bytes"),
    "large settings": ("bert", make_sparse("tokenizer_config.json", 1 << 34), "tokenizer_config.json", "17,179,869,184"),
    "large weights": ("bert", make_sparse("model.safetensors", 1 << 40), "model.safetensors", "1,099,511,627,776"),
    "whole weights of 4 TB": ("bert", claim_terabytes, "1,099,511,627,776 values"),
    **{f"{name} is a link out": ("bert", link_to(name, "/etc/passwd"), name, "is a link to /etc/passwd") for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "model.safetensors.index.json")},
    **{f"{name} is a device": ("bert", link_to(name, "/dev/zero"), name, "is a link to /dev/zero") for name in ("config.json", "model.safetensors")},
    **{f"{name} is a pipe": ("bert", make_pipe(name), name, "is a named pipe") for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "vocab.txt")},
    "a circle of links": ("bert", link_to("config.json", "config.json"), "config.json", "link"),
    "a header beyond the file": ("bert", write_header(b"{}", length=1 << 62), "model.safetensors", "4,611,686,018,427,387,904"),
    "a long header": ("bert", write_header(b'{"a":' + b" " * 90_000_000 + b"1}"), "model.safetensors", "90,000,007"),
    "many tensors": ("bert", lambda folder: write_header({f"t{i}": tensor([0], 0, 0) for i in range(200_000)})(folder), "model.safetensors", "values"),
    "data that overlap": ("bert", write_header({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, b"0" * 12), "model.safetensors", "'b' begin at byte 4"),
    "data out of the file": ("bert", write_header({"a": tensor([2], 8, 16)}, b"0" * 8), "model.safetensors", "'a' begin at byte 8"),
    "a shape that overflows": ("bert", write_header({"a": tensor([1 << 33, 1 << 33], 0, 4)}, b"0" * 4), "model.safetensors", "8589934592"),
    "a tensor twice": ("bert", write_header(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"0000"), "model.safetensors", "'a' occurs twice"),
    "many files": ("bert", name_many_files, "model.safetensors.index.json", "100,000 files"),
}  # fmt: skip


@pytest.fixture(scope="module")
def imported_process():
    forks.prepare_server()


@pytest.mark.held_by(12)
@pytest.mark.parametrize("name", FOLDERS)
def test_is_refused_within_bounds(name, root, tmp_path, imported_process, record_property):
    golden, damage, *parts = FOLDERS[name]
    folder = tmp_path / "folder"
    shutil.copytree(root / "tests" / "goldens" / f"hf_{golden}", folder)
    damage(folder)
    words = [sys.executable, measured.__file__, "import", str(folder), "--workdir"]
    done = forks.run(
        [*words, str(tmp_path / "run")], capture_output=True, text=True, timeout=120, cwd=root
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["status"] == 2, result
    (line,) = [line for line in result["output"].splitlines() if line.strip()]
    assert line.startswith("error: ") and len(line) <= 2000, line
    for part in parts:
        assert part in line, line
    assert result["seconds"] < SECONDS and result["megabytes"] < MEGABYTES, result
    assert not (tmp_path / "run").exists()
    record_property("folders refused", 1)
    record_property("most seconds", round(result["seconds"], 2))
    record_property("most megabytes", round(result["megabytes"]))


def test_links_within_the_cache_of_the_hub_are_read(root, tmp_path):
    """The snapshot of a model in the hub's cache has links to blobs/ next to snapshots/."""
    from pretrain.convert.read_write import open_model

    golden, cached = root / "tests" / "goldens" / "hf_bert", tmp_path / "models--a--b"
    snapshot = cached / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (cached / "blobs").mkdir()
    for number, path in enumerate(golden.iterdir()):
        shutil.copy(path, cached / "blobs" / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    assert open_model(snapshot).vocabulary.size > 0


@pytest.mark.parametrize("mark", [True, False])
def test_links_to_the_shared_blobs_of_the_hub_are_read(tmp_path, mark):
    """huggingface_hub 2 links a repository's blob to CACHE/blobs, which has a mark of its own."""
    from data.corpus.untrusted import check_own_file

    name, snapshot = "ab" + "0" * 62, tmp_path / "models--a--b" / "snapshots" / "0123"
    shared = tmp_path / "blobs"
    (shared / "ab").mkdir(parents=True)
    (shared / "ab" / name).touch()
    (shared / "ab" / "other").touch()
    snapshot.mkdir(parents=True)
    (tmp_path / "models--a--b" / "blobs").mkdir()
    for blob, target in (("1", name), ("2", "other")):
        (tmp_path / "models--a--b" / "blobs" / blob).symlink_to(f"../../blobs/ab/{target}")
        (snapshot / blob).symlink_to(f"../../blobs/{blob}")
    if not mark:
        with pytest.raises(ValueError, match="outside of the folder"):
            check_own_file(snapshot / "1")
        return
    (shared / ".huggingface-shared-blobs").write_text("1\n")
    check_own_file(snapshot / "1")
    with pytest.raises(ValueError, match="outside of the folder"):
        check_own_file(snapshot / "2")
    (tmp_path / "plain").mkdir()  # no snapshot
    (tmp_path / "plain" / "1").symlink_to(shared / "ab" / name)
    with pytest.raises(ValueError, match="outside of the folder"):
        check_own_file(tmp_path / "plain" / "1")
