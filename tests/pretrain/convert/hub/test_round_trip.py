"""A pushed model comes back bit for bit, by `import hf://...`, through the real client."""

import json
import shutil

import numpy as np
import pytest

from data.corpus.hub.client import HubError
from pretrain.__main__ import main
from pretrain.config import override_run
from pretrain.publish import push
from pretrain.publish.upload import Target, push_folder
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import open_trained


def flatten(tree, prefix=""):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}/")
        else:
            yield prefix + name, np.asarray(value)


def assert_same_params(one, other):
    one, other = (dict(flatten(open_trained(workdir).params)) for workdir in (one, other))
    assert one.keys() == other.keys() and one
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name


def test_pushed_and_imported(hub, imported, tmp_path, capsys):
    assert main(["push", "--workdir", str(imported), "--repo", "ann/small"]) == 0
    output = capsys.readouterr().out
    repository, files = hub.repositories["ann/small"], hub.files("ann/small")
    commit = repository.refs["main"]
    size = sum(len(files[name]) for name in files if name != ".gitattributes")
    assert f"ann/small: commit {commit}, {size:,} bytes" in output
    assert f"{hub.url}/ann/small/commit/{commit}\n" in output
    assert repository.messages == ["initial", "Upload a model at step 0"]
    assert set(files) == {
        *(".gitattributes", "README.md", "config.json", "model.safetensors"),
        *("special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"),
    }
    card = files["README.md"].decode()
    assert 'from_pretrained("ann/small")' in card and "FOLDER" not in card

    back = tmp_path / "back"
    assert main(["import", "hf://ann/small", "--workdir", str(back)]) == 0
    assert f"hf://ann/small@{commit}: 5 files of " in capsys.readouterr().out
    assert_same_params(imported, back)
    origin = json.loads((back / "origin.json").read_text())
    assert (origin["repository"], origin["revision"], origin["commit"]) == (
        *("ann/small", "main"),
        commit,
    )
    # what is pushed again names where it comes from
    assert main(["push", "--workdir", str(back), "--repo", "lab/copy", "--private"]) == 0
    card = hub.files("lab/copy")["README.md"].decode()
    assert 'base_model: "ann/small"\n---' in card and f"`hf://ann/small@{commit}`" in card
    assert hub.repositories["lab/copy"].private
    assert hub.files("lab/copy")["model.safetensors"] == hub.files("ann/small")["model.safetensors"]


def test_a_push_names_the_rates_that_it_loses(hub, imported, monkeypatch, capsys):
    """As an export; the form of JAX loses none."""
    monkeypatch.setattr(push, "list_lost_rates", lambda model, encoding: ["model.x=0.5 is lost"])
    for form, expected in (("transformers", 1), ("jax", 0)):
        repository = f"ann/{form}"
        words = ["push", "--workdir", str(imported), "--repo", repository, "--format", form]
        assert main(words) == 0
        assert capsys.readouterr().out.count("model.x=0.5 is lost\n") == expected


@pytest.mark.more
def test_a_stranger_loads_it_with_transformers(hub, exported, tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    push_folder(exported, Target("ann/small"))
    model = transformers.AutoModelForPreTraining.from_pretrained(
        "ann/small", cache_dir=tmp_path / "theirs"
    )
    ours = transformers.AutoModelForPreTraining.from_pretrained(exported)
    theirs = model.state_dict()
    assert all(np.array_equal(theirs[name], value) for name, value in ours.state_dict().items())
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        "ann/small", cache_dir=tmp_path / "theirs"
    )
    assert tokenizer.mask_token == "[MASK]"
    assert hub.count("^GET .*/storage/") >= 1


def test_a_push_in_the_form_of_jax(hub, imported, tmp_path, capsys):
    from orbax.checkpoint import StandardCheckpointer

    assert main(["push", "--workdir", str(imported), "--repo", "ann/jax", "--format", "jax"]) == 0
    files = hub.files("ann/jax")
    assert {"load.py", "program.bin", "example.npz", "models/bert.py", "params/_METADATA"} <= set(
        files
    )
    assert not any("commit_success" in name for name in files)  # it has a path of this machine
    folder = tmp_path / "theirs"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    params = dict(flatten(StandardCheckpointer().restore(folder / "params")))
    ours = dict(flatten(open_trained(imported).params))
    assert params.keys() == ours.keys()
    assert all(np.array_equal(params[name], value) for name, value in ours.items())
    # who loads it leaves compiled modules, which are not pushed
    (folder / "models" / "__pycache__").mkdir()
    (folder / "models" / "__pycache__" / "bert.cpython-311.pyc").touch()
    (folder / ".gitattributes").unlink()
    assert main(["push", "--folder", str(folder), "--repo", "ann/jax2", "--format", "jax"]) == 2
    assert "--folder names a finished export" in capsys.readouterr().err
    assert main(["push", "--folder", str(folder), "--repo", "ann/jax2"]) == 0
    assert set(hub.files("ann/jax2")) == set(files)


@pytest.fixture(scope="session")
def adapted(imported, tmp_path_factory):
    """Return the workdir of that model with LoRA, before its first step."""
    trained = open_trained(imported)
    run = override_run(
        trained.run,
        ["train.lora_rank=2", "train.lora_dropout=0.25", "train.ema_decay=0"],
    )
    workdir = tmp_path_factory.mktemp("adapted") / "run"
    origin = {"folder": "imported", "pretrained_step": 0}
    start_workdir(workdir, run, trained.params, trained.encoding, origin)
    return workdir


def test_an_adapter_names_its_base(hub, adapted, exported, tmp_path, capsys):
    from huggingface_hub import ModelCard

    words = ["push", "--workdir", str(adapted), "--repo", "ann/adapter", "--format", "peft"]
    assert main(words) == 2
    assert "nobody can use an adapter without its base" in capsys.readouterr().err
    assert "ann/adapter" not in hub.repositories
    given = ["--base-model", "ann/small", "--license", "apache-2.0"]
    assert main([*words, *given]) == 0
    assert "load it with `peft`, as its README.md does: ann/adapter" in capsys.readouterr().out
    files = hub.files("ann/adapter")
    assert set(files) - {".gitattributes"} == {
        *("README.md", "adapter_config.json", "adapter_model.safetensors")
    }
    settings = json.loads(files["adapter_config.json"])
    assert (settings["base_model_name_or_path"], settings["lora_dropout"]) == ("ann/small", 0.25)
    text = files["README.md"].decode()
    card = ModelCard(text).data
    assert (card.base_model, card.library_name, card.license) == ("ann/small", "peft", "apache-2.0")
    assert "lora" in card.tags and "The weights have the licence apache-2.0;" in text
    assert 'model = PeftModel.from_pretrained(model, "ann/adapter")' in text
    assert 'tokenizer = AutoTokenizer.from_pretrained("ann/small")' in text
    # the folder is an export like others, and does not replace a whole model
    folder, export = tmp_path / "adapter", ["export", "--workdir", str(adapted), "--format", "peft"]
    assert main([*export, "--output", str(folder), *given]) == 0
    assert main([*export, "--output", str(folder), *given, "--overwrite"]) == 0
    pushed = push_folder(folder, Target("ann/adapter"))
    assert (
        not pushed.removed
        and hub.files("ann/adapter")["adapter_config.json"] == (files["adapter_config.json"])
    )
    push_folder(exported, Target("ann/small"))
    for path, place, message in (
        (folder, "ann/small", "has a whole model, which an adapter would replace"),
        (exported, "ann/adapter", "has an adapter, which a whole model would replace"),
    ):
        before = hub.files(place)
        with pytest.raises(HubError, match=message):
            push_folder(path, Target(place))
        assert hub.files(place) == before
    (folder / "adapter_config.json").write_text(json.dumps(settings | {"auto_mapping": None}))
    assert main([*export, "--output", str(folder), *given, "--overwrite"]) == 2
    assert "was saved again by `peft`" in capsys.readouterr().err


@pytest.mark.more
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_a_stranger_loads_an_adapter_with_peft(hub, adapted, exported, monkeypatch):
    """The lines of the card, run as they are; B is zero, so the base's parameters are what is left."""
    for library in ("torch", "transformers", "peft"):
        pytest.importorskip(library, reason="the extra `peers` is not installed")
    from huggingface_hub import hf_api

    monkeypatch.setattr(hf_api.api, "endpoint", hub.url)  # of the stand-in that imported it
    push_folder(exported, Target("ann/small"))
    words = ["--format", "peft", "--base-model", "ann/small", "--repo", "ann/adapter"]
    assert main(["push", "--workdir", str(adapted), *words]) == 0
    card = hub.files("ann/adapter")["README.md"].decode()
    lines = card.partition("```python\n")[2].partition("```")[0].splitlines()
    names = {}
    exec("\n".join(line for line in lines if "pipeline" not in line or "import" in line), names)
    settings = names["model"].peft_config["default"]
    assert (settings.r, settings.lora_dropout) == (2, 0.25)
    assert settings.base_model_name_or_path == "ann/small"


def test_a_second_push_replaces_what_the_first_wrote(hub, exported, tmp_path):
    earlier = {
        ".gitattributes": b"",
        "LICENSE": b"mine",
        "vocab.txt": b"a",
        "config.json": b"{}",
        "model.safetensors.index.json": b"{}",
        "model-00001-of-00002.safetensors": b"1",
    }
    first = hub.add("ann/small", earlier)
    pushed = push_folder(exported, Target("ann/small", message="again"))
    assert pushed.removed == (
        *("model-00001-of-00002.safetensors", "model.safetensors.index.json"),
        "vocab.txt",
    )
    assert set(hub.files("ann/small")) == {*pushed.files, ".gitattributes", "LICENSE"}
    assert hub.repositories["ann/small"].commits[first] == earlier
    assert hub.repositories["ann/small"].messages == ["initial", "again"]


def test_a_branch_and_a_pull_request_leave_main_as_it_is(hub, exported, capsys, monkeypatch):
    main_files = hub.files("ann/old")
    arguments = ["push", "--folder", str(exported), "--repo", "ann/old"]
    assert main([*arguments, "--revision", "runs/7"]) == 0
    assert hub.files("ann/old") == main_files
    assert "model.safetensors" in hub.files("ann/old", "runs/7")
    monkeypatch.setenv("HF_TOKEN", "hf_stranger")  # anybody may propose
    assert main([*arguments, "--create-pr"]) == 0
    assert f"{hub.url}/ann/old/discussions/2\n" in capsys.readouterr().out
    assert hub.files("ann/old") == main_files
    assert "model.safetensors" in hub.files("ann/old", "refs/pr/2")
    assert main([*arguments, "--create-pr", "--revision", "runs/7"]) == 2
    assert "a pull request begins at main" in capsys.readouterr().err


def test_a_vocabulary_is_fetched_without_the_weights(hub, exported, tmp_path, capsys):
    hub.add("ann/small", {path.name: path.read_bytes() for path in exported.iterdir()})
    text = tmp_path / "text.txt"
    text.write_text("the fox\n\nsees a dog\n\n" * 20)
    arguments = ["prepare", str(text), "--output", str(tmp_path / "store"), "--document", "block"]
    assert main([*arguments, "--vocabulary", "hf://ann/small", "--workers", "1"]) == 0
    assert hub.count("GET .*tokenizer.json") and not hub.count("safetensors|storage")


def test_a_model_in_parts_and_in_subfolders(hub, exported, tmp_path):
    from pretrain.convert.export_folder import write_tensors
    from pretrain.convert.hub.snapshot import fetch_repository
    from pretrain.convert.safe_folder import FolderTensors

    parts = shutil.copytree(exported, tmp_path / "parts")
    (parts / "model.safetensors").unlink()
    tensors = FolderTensors(exported)
    write_tensors(parts, tensors, limit=5000)
    for path in list(parts.iterdir()):
        if path.is_file():
            (parts / "generator").mkdir(exist_ok=True)
            shutil.copy(path, parts / "generator")
    push_folder(parts, Target("ann/parts"))
    snapshot = fetch_repository("hf://ann/parts")
    for folder in (snapshot.folder, snapshot.folder / "generator"):
        again = FolderTensors(folder)
        assert set(again) == set(tensors) and len(list(folder.glob("model-*"))) > 1
        assert all(np.array_equal(again[name], tensors[name]) for name in tensors)


def test_a_verb_that_reads_workdirs_names_import(capsys):
    assert main(["evaluate", "--workdir", "hf://ann/small", "--store", "no/store"]) == 2
    assert "`import hf://ann/small --workdir W`" in capsys.readouterr().err
