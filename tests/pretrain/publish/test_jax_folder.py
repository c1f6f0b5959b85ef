"""An export for JAX computes the model's results in a process without Cloze, by its own code and by
its program.
"""

import dataclasses
import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from data.vocabulary.load import train_vocabulary
from models import build
from pretrain.publish.jax_folder import write_jax_folder
from pretrain.training.state import init_params, make_dummy_inputs
from tests.pretrain.conftest import RUNS, make_texts

FAMILIES = ("bert_packed", "t5_gated", "gpt3", "classifier", "seq2seq_lstm")
READER = """
import json, pathlib, sys
import jax, numpy as np, orbax.checkpoint as ocp

found = {}
for folder in map(pathlib.Path, sys.argv[1:]):
    example = np.load(folder / "example.npz")
    inputs = {name: example[name] for name in example if not name.startswith("output.")}
    right = [example[f"output.{i}"] for i in range(len(example) - len(inputs))]
    program = jax.export.deserialize((folder / "program.bin").read_bytes())
    params = ocp.StandardCheckpointer().restore(folder.resolve() / "params")
    by_program = jax.tree.leaves(program.call(params, inputs))
    three = {name: np.concatenate([value, value[:1]]) for name, value in inputs.items()}
    more = jax.tree.leaves(program.call(params, three))
    sys.path.insert(0, str(folder))
    import load, models
    assert pathlib.Path(models.__file__).is_relative_to(folder.resolve()), models.__file__
    model, params = load.load()
    by_code = jax.tree.leaves(jax.jit(lambda params, inputs: model.apply({"params": params}, **inputs))(params, inputs))
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.split(".")[0] in ("load", "models")]:
        del sys.modules[name]
    wide = lambda leaf: np.asarray(leaf, np.float32)
    far = lambda ones: max(float(np.abs(wide(a)[:2] - b).max()) for a, b in zip(ones, right, strict=True))
    found[folder.name] = {"program": far(by_program), "code": far(by_code), "rows": far(more), "size": float(max(np.abs(b).max() for b in right))}
assert not [name for name in sys.modules if name.split(".")[0] in ("pretrain", "data", "tensorflow")]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def vocabularies():
    """Return {layout: a small vocabulary}."""
    sizes = {"bert": 40, "t5": 138, "gpt": 37}
    return {
        name: train_vocabulary(make_texts(600), size, layout=name) for name, size in sizes.items()
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory, vocabularies):
    """Return {name: folder} of exports of tiny models; the last in 16 bits."""
    root, found = tmp_path_factory.mktemp("exports"), {}
    for name, dtype in (*((name, "float32") for name in FAMILIES), ("bert_packed", "bfloat16")):
        run = RUNS[name]
        model = build(run.model)
        params = jax.jit(lambda: init_params(model, run.data.objective, 1))()  # noqa: B023
        if name == "seq2seq_lstm":  # whose weights begin so small that its logits are near 0
            params = jax.tree.map(lambda leaf: 5 * leaf, params)
        inputs = make_dummy_inputs(model, run.data.objective, 1)
        kind = (
            "t5"
            if name.startswith(("t5", "seq2seq"))
            else "gpt"
            if name.startswith("gpt")
            else "bert"
        )
        found[name, dtype] = root / f"{name}_{dtype}"
        write_jax_folder(
            found[name, dtype], run.model, params, vocabularies[kind], inputs, dtype=dtype
        )
    return found


def test_a_process_without_cloze_computes_the_same(folders, tmp_path):
    done = subprocess.run(
        [sys.executable, "-I", "-c", READER, *map(str, folders.values())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == len(folders)
    for name, far in found.items():
        bound = 0.05 if "bfloat16" in name else 1e-5
        assert far["size"] > 0.01, name
        assert max(far["program"], far["code"], far["rows"]) <= bound * max(far["size"], 1), name


def test_only_what_a_model_needs_is_copied(folders):
    copied = {
        name: {
            path.relative_to(folder / "models").as_posix()
            for path in (folder / "models").rglob("*.py")
        }
        for name, folder in folders.items()
    }
    assert {"bert.py", "config/bert.py", "__init__.py"} <= copied["bert_packed", "float32"]
    assert not {"t5.py", "gpt.py", "heads/classifier.py"} & copied["bert_packed", "float32"]
    assert {"gpt3.py", "gpt2.py", "gpt.py"} <= copied["gpt3", "float32"]
    assert {"heads/classifier.py", "bert.py"} <= copied["classifier", "float32"]


def test_sixteen_bits_are_half_the_size(folders):
    def measure_size(dtype):
        folder = folders["bert_packed", dtype] / "params"
        return sum(path.stat().st_size for path in folder.rglob("d/*"))

    assert measure_size("bfloat16") < 0.8 * measure_size("float32")


def test_invalid_folders_are_refused_and_nothing_is_written(folders, tmp_path, vocabularies):
    run = RUNS["bert_packed"]
    model = build(run.model)
    inputs = make_dummy_inputs(model, run.data.objective, 1)
    params = jax.jit(lambda: init_params(model, run.data.objective, 1))()
    place = tmp_path / "out"

    def write_folder(params, **options):
        write_jax_folder(place, run.model, params, vocabularies["bert"], inputs, **options)

    broken = jax.tree.map(lambda leaf: leaf.at[...].set(np.nan), params)
    with pytest.raises(ValueError, match="not finite|NaN"):
        write_folder(broken)
    with pytest.raises(ValueError, match="which float16 has no number for"):
        write_folder(jax.tree.map(lambda leaf: leaf.at[...].set(1e6), params), dtype="float16")
    assert not place.exists()
    write_folder(params)
    with pytest.raises(FileExistsError, match="--overwrite"):
        write_folder(params)
    (place / "thesis.txt").write_text("x")
    with pytest.raises(FileExistsError, match=r"holds thesis.txt"):
        write_folder(params, overwrite=True)
    (place / "thesis.txt").unlink()
    write_folder(params, overwrite=True, dtype="bfloat16")
    (place / "program.bin").unlink()  # what is left is not recognised as an export
    with pytest.raises(FileExistsError, match="which no export writes"):
        write_folder(params, overwrite=True)


def test_the_verb_writes_it(tmp_path, vocabularies, capsys):
    from pretrain.__main__ import main
    from pretrain.training.new_workdir import start_workdir

    config = dataclasses.replace(RUNS["gpt3"].model, vocab=128)
    params = jax.jit(lambda: init_params(build(config), RUNS["gpt3"].data.objective, 1))()
    start_workdir(
        tmp_path / "w", dataclasses.replace(RUNS["gpt3"], model=config), params, vocabularies["gpt"]
    )
    words = ["export", "--workdir", str(tmp_path / "w"), "--output", str(tmp_path / "out")]
    assert main([*words, "--format", "jax"]) == 0
    assert "program.bin" in capsys.readouterr().out
    assert (tmp_path / "out" / "tokenizer.json").exists()
    with pytest.raises(SystemExit):
        main([*words, "--format", "onnx"])
    assert "choose from 'transformers', 'jax'" in capsys.readouterr().err
