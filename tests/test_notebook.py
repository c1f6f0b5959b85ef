"""The notebook for Colab and Kaggle runs with the packages of Colab's image, from first to last cell.

It has Python 3.13 without venv and ensurepip, and a JAX and a Flax that Cloze does not admit.
"""

import ast
import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

from tests.test_distribution import built, call, files  # noqa: F401 (fixtures)

pytestmark = pytest.mark.more
ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "notebooks" / "own_text.ipynb"
# Of Colab's image for TPUs, as far as they matter to Cloze or to a kernel.
IMAGE = ("jax==0.7.2", "jaxlib==0.7.2", "flax==0.11.2", "ipykernel>=6", "nbclient>=0.10", "pip")
HIDDEN = "import sys\nsys.modules['ensurepip'] = sys.modules['venv'] = None\n"
EXECUTE = """
import sys, time, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], 4)
choices = next(n for n, cell in enumerate(book.cells) if cell.cell_type == "code")
book.cells.insert(choices + 1, nbformat.v4.new_code_cell(sys.argv[3]))
def show(cell, cell_index, **_):
    print(f"cell {cell_index} begins at {time.time() - began:.0f}", flush=True)
began = time.time()
client = NotebookClient(book, timeout=900, kernel_name="python3", on_cell_start=show)
try:
    client.execute()
finally:
    nbformat.write(book, sys.argv[2])
"""
LIMIT = 300  # seconds to the first loss


@pytest.fixture(scope="module")
def cells():
    """Return the cells of the notebook."""
    return json.loads(NOTEBOOK.read_text())["cells"]


def test_the_notebook_stores_the_outputs_of_one_run_and_no_paths(cells):
    """Of the run, only what every run has is compared: each verb's output, and a picture."""
    assert NOTEBOOK.stat().st_size < 1e6
    text = re.sub('"image/png": "[^"]+"', "", NOTEBOOK.read_text())
    assert not re.search(r"/work|/tmp|/root|/home|https?:", text)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell["outputs"]]
    pictures = [output["data"]["image/png"] for output in outputs if "data" in output]
    assert all(base64.b64decode(one).startswith(b"\x89PNG") for one in pictures) and pictures
    assert not any(output["output_type"] == "error" for output in outputs)
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            assert cell["outputs"] or not re.search(r"^cloze\(|^print\(", source, re.MULTILINE)
            ast.parse(source)  # no line of IPython's own, so that it runs anywhere
            assert max(map(len, source.split("\n"))) <= 100
    assert [cell["id"] for cell in cells] == [f"cell-{n}" for n in range(len(cells))]


def test_its_verbs_take_their_arguments(cells, monkeypatch):
    """The words of each command, by executing the cells with a stand-in for the environment."""
    from pretrain.cli.verbs import parse_arguments

    commands = []
    installed = []
    names = {"cloze": lambda *words: commands.append([*map(str, words)])}
    names |= dict(DEVICE="tpu", pathlib=pathlib, sys=sys, os=os, RUNS=pathlib.Path("runs"))
    names |= dict(install=installed.append, find_wheel=lambda: "a.whl", VARIABLES={})
    monkeypatch.delenv("KAGGLE_KERNEL_RUN_TYPE", raising=False)
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "ENVIRONMENT =" not in source:
            source = re.sub(r"^(from IPython.*|display.*|print.*)$", "", source, flags=re.MULTILINE)
            exec(source.replace('SAVE_TO = ""', 'SAVE_TO = "user/name"'), names)
    assert installed == ["a.whl[hub]"]
    verbs = [verb for verb, *_ in commands]
    assert verbs == ["prepare", "train", "report", "predict", "export", "push"]
    for verb, *words in commands:
        parse_arguments(verb, words)
    assert "train.steps=7500" in commands[1]


def find_python(version):
    """Return a Python of a version, of PATH or of pyenv; skip the test without one."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")))
    found = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python")]
    for python in filter(None, found):
        done = subprocess.run(
            [python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True
        )
        if done.returncode == 0:
            return str(python)
    pytest.skip(f"no Python {version} on this machine")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Return a Python with the packages of IMAGE, and without venv and ensurepip."""
    if os.environ.get("CLOZE_TEST_NOTEBOOK") != "1":
        pytest.skip("installs 3 GB: `./launch.sh test all` runs it")
    folder = tmp_path_factory.mktemp("image") / "env"
    call(find_python("3.13"), "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *IMAGE)
    target = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (pathlib.Path(target) / "hidden.pth").write_text("import hidden_modules\n")
    (pathlib.Path(target) / "hidden_modules.py").write_text(HIDDEN)
    return python


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_notebook_runs_beside_the_packages_of_an_image(image, built, tmp_path):  # noqa: F811
    before = call(image, "-m", "pip", "freeze")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "XLA_FLAGS", "JAX_NUMPY_DTYPE_PROMOTION")
    }
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "jax.py").write_text("raise ImportError('the JAX of the image')")
    (tmp_path / "image.txt").write_text("jax==0.7.2\nflax==0.11.2\n")
    (tmp_path / "temporary").mkdir()
    # As on Colab; and programs of the machine, of which none is uv.
    environment |= {"PYTHONPATH": str(tmp_path / "packages"), "MPLBACKEND": "agg"}
    environment |= {"UV_SYSTEM_PYTHON": "true", "UV_CONSTRAINT": str(tmp_path / "image.txt")}
    environment |= {"TMPDIR": str(tmp_path / "temporary"), "JAX_PLATFORMS": "cpu"}
    environment |= {"PATH": os.pathsep.join([str(image.parent), "/usr/bin", "/bin"])}
    shutil.copy(built["wheel"], tmp_path)
    began = time.time()
    printed = call(
        *(image, "-c", EXECUTE, NOTEBOOK, tmp_path / "done.ipynb", "STEPS = 80"),
        cwd=tmp_path,
        env=environment,
    )
    took = time.time() - began
    book = json.loads((tmp_path / "done.ipynb").read_text())
    outputs = [
        "".join("".join(one.get("text", "")) for one in cell.get("outputs", ()))
        for cell in book["cells"]
    ]
    shown = "\n".join(outputs)
    assert "\x1b" not in shown
    assert re.search(r"step \d+/80  loss \d", shown) and "step 80, held out: " in shown
    assert any(
        "image/png" in output.get("data", {})
        for cell in book["cells"]
        for output in cell.get("outputs", ())
    )
    predicted = next(
        text
        for cell, text in zip(book["cells"], outputs, strict=True)
        if '"predict"' in "".join(cell["source"])
    )
    assert len(re.findall(r"^ +\d+\.\d\d%  \S+$", predicted, re.MULTILINE)) == 5
    made = sorted(path.name for path in (tmp_path / "cloze_runs").iterdir())
    assert made == ["bert_mini", "bert_mini_hf", "tokens"]
    assert (tmp_path / "cloze_runs" / "bert_mini_hf" / "model.safetensors").stat().st_size > 1e6
    assert call(image, "-m", "pip", "freeze") == before  # the image's packages are as they were
    ends = dict(re.findall(r"cell (\d+) begins at (\d+)", printed))
    train = next(i for i, cell in enumerate(book["cells"]) if '"train",' in "".join(cell["source"]))
    print(f"the cell that trains begins after {ends[str(train)]} s, the whole takes {took:.0f} s")
    assert int(ends[str(train)]) < LIMIT
