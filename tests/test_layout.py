"""The house's rules, read off the code: who may import whom, and which tables must have the same keys."""

import ast
import functools
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
ROOMS = ("models", "data", "pretrain", "configs")
OURS = {
    "models": {"models"},
    "data": {"data"},
    "pretrain": {"pretrain", "models", "data"},
    "configs": {"pretrain.config", "models.config", "data.config", "data.objectives"},
}
THEIRS = {
    "models": {"jax", "flax", "numpy"},
    "data": {
        *(
            "numpy",
            "tensorflow",
            "tensorflow_datasets",
            "apache_beam",
            "sentencepiece",
            "tokenizers",
            "google",
            "google_crc32c",
        ),
        *("etils", "rich"),
    },
    "configs": set(),
}
NO_TENSORFLOW = (
    "pretrain/training/step.py",
    "pretrain/convert",
    "pretrain/config.py",
    "data/store/reader.py",
    "data/vocabulary/load.py",
    "data/batch_spec.py",
)


@functools.cache
def imports(path):
    """Dotted names that a file imports, `from a import b` as `a.b`."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def files(room):
    return sorted((ROOT / room).rglob("*.py"))


def within(name, allowed):
    return any(name == one or name.startswith(one + ".") for one in allowed)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_what_the_house_allows(room):
    for path in files(room):
        for name in imports(path):
            top = name.split(".")[0]
            if top in ROOMS:
                assert within(name, OURS[room]), f"{path.relative_to(ROOT)} imports {name}"
            elif room in THEIRS and top not in sys.stdlib_module_names:
                assert top in THEIRS[room], f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_imports_configs(room):
    for path in files(room):
        assert not any(within(name, {"configs"}) for name in imports(path)), path


EXTENDS = {"gpt2": {"models.gpt"}, "gpt3": {"models.gpt", "models.gpt2"}}
# A head on any encoder; no papers.
COMPOSED = {name: {"models.heads.base"} for name in ("classifier", "tagger", "span_reader")}
COMPOSED |= {
    "headed": {"models.build", "models.config.heads"},
    "chooser": {"models.heads.base", "models.heads.classifier"},
}
DECODING = {
    "decoding": {"models.generation.beam", "models.generation.sampling"},
    "beam": {"models.generation.sampling"},
}  # no papers


def test_a_paper_imports_another_only_to_extend_it():
    for path in (ROOT / "models").glob("*.py"):
        if path.stem not in ("__init__", "config"):
            for name in imports(path):
                allowed = {
                    "models.layers",
                    "models.config",
                    *(EXTENDS | DECODING | COMPOSED).get(path.stem, ()),
                }
                assert not name.startswith("models.") or within(name, allowed), (
                    f"{path.name} imports {name}"
                )


def test_the_step_and_the_conversion_need_no_tensorflow():
    names = [".".join(pathlib.Path(name).with_suffix("").parts) for name in NO_TENSORFLOW]
    code = f"import sys, {', '.join(names)}; print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_configurations_and_help_need_no_jax():
    code = (
        "import sys, pretrain.__main__, pretrain.config\n"
        "pretrain.__main__.main(['--help']); pretrain.config.load('bert_tiny', ['train.steps=3'])\n"
        "print({'jax', 'tensorflow', 'flax'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("set()\n"), done.stdout


def test_the_data_side_never_loads_jax():
    code = "import sys, data.pipeline, data.prepare.build, data.inspection.batch_report, data.corpus.sources; print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_objectives_have_the_same_names_on_both_sides():
    from data.batch_spec import BATCHES
    from data.objectives import OBJECTIVES
    from pretrain.training.losses import LOSSES

    assert OBJECTIVES.keys() == BATCHES.keys() == LOSSES.keys()
    for name, loss in LOSSES.items():
        assert set(loss.weights.values()) | set(loss.tokens) <= BATCHES[name].keys()
        assert set(loss.factors) <= set(loss.terms) <= loss.weights.keys()
        assert OBJECTIVES[name].name == name


def test_every_model_is_built_from_its_configuration():
    from models import MODELS, build
    from pretrain.config import KINDS

    for config, (_, name) in MODELS.items():
        assert type(build(config())).__name__ == name
        assert KINDS[config.__name__] is config
    with pytest.raises(ValueError, match="no model is configured by a int"):
        build(3)
