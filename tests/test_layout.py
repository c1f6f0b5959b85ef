"""The rules of the house, read off the code: who may import whom, sizes, and tables that must have the same keys."""

import ast
import dataclasses
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
        *("numpy", "tensorflow", "tensorflow_datasets", "apache_beam", "sentencepiece"),
        *("tokenizers", "google", "google_crc32c", "etils", "rich"),
    },
    "configs": set(),
}
# Within a room a folder, or a file that stands beside folders, imports only from itself and from what stands before it.
ORDER = {
    "data": (
        *("data.corpus", "data.vocabulary", "data.store", "data.prepare", "data.rows"),
        *("data.objectives", "data.examples", "data.config", "data.batch_spec"),
        *("data.tf_dataset", "data.composed"),
        *("data.pipeline", "data.inspection"),
    ),
    "pretrain": (
        *(
            "pretrain.extras",
            "pretrain.overrides",
            "pretrain.fields",
            "pretrain.schema",
            "pretrain.families",
            "pretrain.config",
            "pretrain.distributed",
        ),
        *("pretrain.workdir", "pretrain.reporting", "pretrain.convert", "pretrain.inference"),
        *("pretrain.evaluation", "pretrain.training", "pretrain.finetune", "pretrain.plan"),
        *("pretrain.pod", "pretrain.cli", "pretrain.__main__"),
    ),
}
NO_TENSORFLOW = (
    *("pretrain/training/step.py", "pretrain/convert", "pretrain/families", "pretrain/config.py"),
    *("data/store/reader.py", "data/vocabulary/load.py", "data/batch_spec.py"),
)
LINES, FUNCTION_LINES, FOLDER_FILES, CONFIG_FIELDS = 300, 60, 20, 16
# One file a paper, a family, an objective, a verb, a run or a benchmark: as many as there are.
OPEN_ENDED = {
    *("models", "models/config", "pretrain/convert", "pretrain/families", "pretrain/cli"),
    *("data/objectives", "configs", "benchmarks"),
}


@functools.cache
def find_imports(path):
    """Return the dotted names that a file imports, lazily too; `from a import b` as `a.b`."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def list_files(room):
    return sorted((ROOT / room).rglob("*.py"))


@functools.cache
def list_modules():
    """Return {dotted name: path} of the program's modules; a package stands for its __init__."""
    modules = {}
    for room in ("models", "data", "pretrain"):
        for path in list_files(room):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            modules[name.removesuffix(".__init__")] = path
    return modules


def find_module(name):
    """Return the longest beginning of a dotted name that is a module of the program, or None."""
    parts = name.split(".")
    heads = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((head for head in heads if head in list_modules()), None)


def find_edges():
    """Return {module: modules of the program that it imports}."""
    edges = {}
    for module, path in list_modules().items():
        found = {find_module(name) for name in find_imports(path)}
        edges[module] = found - {None, module}
    return edges


def is_within(name, allowed):
    return any(name == one or name.startswith(one + ".") for one in allowed)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_what_the_house_allows(room):
    for path in list_files(room):
        for name in find_imports(path):
            top = name.split(".")[0]
            if top in ROOMS:
                assert is_within(name, OURS[room]), f"{path.relative_to(ROOT)} imports {name}"
            elif room in THEIRS and top not in sys.stdlib_module_names:
                assert top in THEIRS[room], f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("room", ORDER)
def test_folders_import_only_from_those_before_them(room):
    order = ORDER[room]

    def rank(module):
        folder = ".".join(module.split(".")[:2])
        assert folder in order, f"{folder} has no place in ORDER"
        return order.index(folder)

    for module, imported in find_edges().items():
        for other in imported:
            if module.startswith(f"{room}.") and other.startswith(f"{room}."):
                assert rank(other) <= rank(module), f"{module} imports {other}"


def find_circle(edges):
    """Return a list of modules each of which imports the next, the last one the first, or None."""
    done, path = set(), []

    def visit(module):
        if module in path:
            return [*path[path.index(module) :]]
        if module in done:
            return None
        path.append(module)
        for other in sorted(edges.get(module, ())):
            if circle := visit(other):
                return circle
        done.add(path.pop())
        return None

    return next((circle for circle in map(visit, sorted(edges)) if circle), None)


def test_a_circle_is_found():
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": set()}) is None
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_no_module_imports_itself_through_others():
    circle = find_circle(find_edges())
    assert circle is None, " -> ".join(circle)


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_imports_configs(room):
    for path in list_files(room):
        assert not any(is_within(name, {"configs"}) for name in find_imports(path)), path


EXTENDS = {"gpt2": {"models.gpt"}, "gpt3": {"models.gpt", "models.gpt2"}}


def test_a_paper_imports_another_only_to_extend_it():
    for path in (ROOT / "models").glob("*.py"):
        if path.stem != "__init__":
            allowed = {"models.layers", "models.config", *EXTENDS.get(path.stem, ())}
            for name in find_imports(path):
                assert not name.startswith("models.") or is_within(name, allowed), (
                    f"{path.name} imports {name}"
                )


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("models/layers", {"models.layers"}),
        ("models/heads", {"models.heads", "models.layers", "models.config", "models.build"}),
        ("models/generation", {"models.generation", "models.layers"}),
    ],
)
def test_parts_of_models_know_no_paper(folder, allowed):
    for path in (ROOT / folder).glob("*.py"):
        for name in find_imports(path):
            assert not name.startswith("models.") or is_within(name, allowed), (
                f"{path.relative_to(ROOT)} imports {name}"
            )


# ---- sizes -------------------------------------------------------------------


def test_files_fit_on_a_few_screens():
    for room in ROOMS:
        for path in list_files(room):
            count = path.read_text().count("\n")
            assert count <= LINES, f"{path.relative_to(ROOT)} has {count} lines"


def test_functions_fit_on_a_screen():
    for room in ROOMS:
        for path in list_files(room):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    count = node.end_lineno - node.lineno + 1
                    assert count <= FUNCTION_LINES, (
                        f"{path.relative_to(ROOT)}: {node.name} has {count} lines"
                    )


def test_folders_can_be_taken_in_at_a_glance():
    for room in ROOMS:
        for folder in {path.parent for path in list_files(room)}:
            name = folder.relative_to(ROOT).as_posix()
            count = len(list(folder.glob("*.py")))
            assert count <= FOLDER_FILES or name in OPEN_ENDED, f"{name} has {count} files"


def test_configurations_nest_what_belongs_together():
    from pretrain.config import KINDS

    for name, kind in KINDS.items():
        count = len(dataclasses.fields(kind))
        assert count <= CONFIG_FIELDS, f"{name} has {count} fields"


# ---- what importing costs ----------------------------------------------------


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
    from pretrain.training.losses import find_loss

    assert OBJECTIVES.keys() == BATCHES.keys()
    for name, loss in ((name, find_loss(name)) for name in OBJECTIVES):
        assert set(loss.weights.values()) | set(loss.tokens) <= BATCHES[name].keys()
        assert set(loss.loss_weights) <= set(loss.loss_terms) <= loss.weights.keys()
        assert OBJECTIVES[name].name == name


def test_every_model_is_built_from_its_configuration():
    from models import MODELS, build
    from pretrain.config import KINDS

    for config, (_, name) in MODELS.items():
        assert type(build(config())).__name__ == name
        assert KINDS[config.__name__] is config
    with pytest.raises(ValueError, match="no model is configured by a int"):
        build(3)
