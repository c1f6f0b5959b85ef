"""The wheel and the sdist: what is in them, and the first run from an installed wheel, away from the
checkout.
"""

import ast
import configparser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

from tests.test_layout import ROOMS

pytestmark = [pytest.mark.more, pytest.mark.slow]

ROOT = pathlib.Path(__file__).parents[1]
FILES = ("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")
CALL = "import sys, cloze_backend as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
SOURCE = re.compile(rf"(?:^|-m )((?:{'|'.join(ROOMS)})(?:\.\w+)*)\.?$")
# Strings that are keys, axes or folders, or what `import_member` completes.
KEYS = {"data.store", "data.objectives", "data.inspection", *ROOMS}
USER = """
from {prefix}data.config import Data
from {prefix}pretrain.config import load

def config():
    return load("bert_tiny", ["train.steps=3"])
"""
IMPORT_ALL = """
import importlib, pkgutil, sys
import cloze
names = [m.name for m in pkgutil.walk_packages(cloze.__path__, "cloze.")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("apache_beam", "torch"):
            raise
print(len(names), sorted({"pretrain", "models", "data", "configs"} & set(sys.modules)))
"""


def call(*words, **options):
    """Run a command and return its standard output; fail with what it has printed."""
    return get_output(subprocess.run([*map(str, words)], capture_output=True, text=True, **options))


def get_output(done):
    """Return the standard output of an ended process; fail with all of it if that has failed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the wheel and the sdist of a copy of the sources, and a wheel of the sdist."""
    folder = tmp_path_factory.mktemp("built")
    sources = folder / "sources"
    for room in (*ROOMS, "distribution"):
        shutil.copytree(ROOT / room, sources / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, sources / name)
    environment = {**os.environ, "PYTHONPATH": str(sources / "distribution")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    (sources / "build" / "lib" / "data").mkdir(parents=True)
    (sources / "build" / "lib" / "data" / "removed.py").touch()  # an earlier build's
    built = {}
    for kind in ("wheel", "sdist"):
        name = call(
            sys.executable, "-c", CALL, f"build_{kind}", folder, cwd=sources, env=environment
        )
        built[kind] = folder / name.split()[-1]
    again = folder / "again"
    # `pip wheel` reads pyproject.toml, as every other program that builds does.
    words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir")
    call(sys.executable, "-m", "pip", *words, again, built["sdist"])
    (built["wheel of the sdist"],) = again.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def files(built):
    """Return {path in the wheel: content}."""
    with zipfile.ZipFile(built["wheel"]) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def list_sources():
    """Return the paths of all files of the packages, relative to the checkout."""
    paths = (path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*"))
    return {str(path) for path in paths if path.suffix and "__pycache__" not in path.parts}


def test_the_wheel_has_one_package_and_all_its_files(files):
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    name, version = (setup["metadata"][key] for key in ("name", "version"))
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    assert {name.split("/")[0] for name in files} == {"cloze", info}
    packed = {name.removeprefix("cloze/") for name in files if name.startswith("cloze/")}
    sources = list_sources()
    assert "pretrain/pod/worker.sh" in sources and len(sources) > 600
    assert packed == sources | {"__init__.py", "__main__.py"}
    assert files[f"{info}/top_level.txt"].split() == [b"cloze"]
    assert b"cloze = cloze.pretrain.__main__:main" in files[f"{info}/entry_points.txt"]


def test_the_sdist_gives_the_same_wheel(built, files):
    with zipfile.ZipFile(built["wheel of the sdist"]) as wheel:
        again = {name: wheel.read(name) for name in wheel.namelist()}
    assert again == files
    with tarfile.open(built["sdist"]) as sdist:
        tops = {name.split("/")[1] for name in sdist.getnames() if "/" in name}
    assert "distribution" in tops and not tops & {"tests", "benchmarks", "docs", "build"}


def test_no_module_names_a_package_of_the_checkout(files):
    modules = {name[:-3].replace("/", ".") for name in list_sources() if name.endswith(".py")}
    modules |= {name.removesuffix(".__init__") for name in modules}
    for name in files:
        if not name.startswith("cloze/") or not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(files[name])):
            found = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found = [node.module]
            assert not any(top.split(".")[0] in ROOMS for top in found), f"{name} imports {found}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = SOURCE.search(node.value)
                assert not named or named[1] in KEYS or named[1] not in modules, (
                    f"{name}, line {node.lineno}: {node.value!r} names a module: derive it from "
                    "__package__ or pretrain/host/command.py"
                )


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Install the wheel in an environment without the checkout; return its folder of programs.

    The libraries are this environment's.
    """
    folder = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    target = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # Lines of the .pth files in an added folder are not run: the editable install is not seen.
    pathlib.Path(target, "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # Metadata of the checkout, on PYTHONPATH or as an editable install, are no installed Cloze.
    words = ("install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", built["wheel"])
    call(sys.executable, "-m", "pip", "--python", python, *words)
    return folder / "bin"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a working folder whose files have the names of the checkout's packages."""
    folder = tmp_path_factory.mktemp("work")
    for room in ROOMS:
        (folder / f"{room}.py").write_text("raise SystemExit('imported from the working folder')\n")
    return folder


@pytest.fixture(scope="module")
def start(installed, folder):
    """Return a function that runs a program of the environment in the working folder, to any end."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # one device, compiled quickly
    return lambda name, *words: subprocess.run(
        [installed / name, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )


@pytest.fixture(scope="module")
def run(start):
    """Return a function that runs a program of the environment and returns its standard output."""
    return lambda name, *words: get_output(start(name, *words))


@pytest.fixture(scope="module")
def workdir(run, folder):
    """Prepare text, and train on it."""
    assert "tokens" in run("cloze", "prepare", "builtin", "--output", "store", "--vocab-size", 4096)
    words = ("train", "bert_tiny", "--workdir", "run", "data.store=store", "train.steps=3")
    # `python -m cloze` has the working folder first on the path of modules.
    run("python", "-m", "cloze", *words, "optimizer.warmup_steps=1")
    assert (folder / "run" / "checkpoints" / "3").is_dir()
    return folder / "run"


def test_the_first_run(run, workdir, folder):
    run("cloze", "export", "--workdir", "run", "--output", "exported")
    assert (folder / "exported" / "model.safetensors").stat().st_size > 1e6
    text = "Return the [MASK] of the string."
    assert "%" in run("cloze", "predict", "--workdir", "run", text)


def test_an_export_to_jax_has_the_names_of_the_checkout(run, workdir, folder):
    run("cloze", "export", "--workdir", "run", "--output", "jax", "--format", "jax")
    copied = sorted((folder / "jax" / "models").rglob("*.py"))
    assert len(copied) > 10
    for path in copied:
        assert path.read_bytes() == (ROOT / path.relative_to(folder / "jax")).read_bytes(), path
    assert '"models.config.bert:BertConfig"' in (folder / "jax" / "config.json").read_text()


def test_every_module_is_imported_under_its_name(run):
    number, others = run("python", "-P", "-c", IMPORT_ALL).split(maxsplit=1)
    assert int(number) > 600 and others.strip() == "[]"


def test_a_verb_in_processes_of_its_own(run):
    assert "bert/encoder" in run("cloze", "local", 1, "describe", "bert_tiny")
    assert run("cloze", "--help").startswith("usage: cloze VERB ...")


def test_a_configuration_of_the_user(run, start, folder):
    (folder / "mine.py").write_text(USER.format(prefix="cloze."))
    assert "bert/encoder" in run("cloze", "describe", "mine.py")
    (folder / "old.py").write_text(USER.format(prefix=""))
    done = start("cloze", "describe", "old.py")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "the installed Cloze is one package: import cloze.data" in done.stderr


def test_a_pod_is_sent_a_checkout(start):
    code = "import pathlib; from cloze.pretrain.pod import archive; archive.pack_tree(pathlib.Path('a'))"
    assert "is not a git checkout" in start("python", "-P", "-c", code).stderr
