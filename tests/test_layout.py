"""The rules of the code base, checked on its source: imports, sizes, and tables that must have the
same keys.
"""

import ast
import dataclasses
import functools
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
ROOMS = ("models", "data", "pretrain", "configs")
OURS = {
    "models": {"models"},
    "data": {"data"},
    "pretrain": {"pretrain", "models", "data"},
    "configs": {"pretrain.config", "models.config", "data.config", "data.mixed", "data.objectives"},
}
THEIRS = {
    "models": {"jax", "flax", "numpy"},
    "data": {
        *("numpy", "tensorflow", "tensorflow_datasets", "apache_beam", "sentencepiece"),
        *("tokenizers", "google", "google_crc32c", "etils", "rich", "mido", "music21", "PIL"),
        *("pyarrow", "zstandard"),
    },
    "configs": set(),
}
# Within a part of the code, a folder, or a file next to folders, imports only from itself and from
# those listed before it.
ORDER = {
    "data": (
        *("data.members", "data.source", "data.tensorflow_import"),
        *("data.corpus", "data.vocabulary", "data.store", "data.cleaning", "data.prepare"),
        "data.rows",
        *("data.images", "data.saved_encoding", "data.batch_spec", "data.inspection"),
        *("data.objectives", "data.mixed", "data.music", "data.examples", "data.config"),
        *("data.read_ahead", "data.tf_dataset", "data.thread_feed", "data.pipeline"),
        *("data.mixed_stream", "data.composed"),
    ),
    "pretrain": (
        *("pretrain.host", "pretrain.settings", "pretrain.families", "pretrain.run"),
        *(
            "pretrain.stairs",
            "pretrain.phases",
            "pretrain.config",
            "pretrain.processes",
            "pretrain.mesh",
            "pretrain.kernels",
        ),
        *("pretrain.workdir", "pretrain.reporting", "pretrain.convert", "pretrain.evaluation"),
        *("pretrain.training", "pretrain.inference", "pretrain.publish", "pretrain.finetune"),
        *("pretrain.plan", "pretrain.pod", "pretrain.api", "pretrain.cli", "pretrain.__main__"),
    ),
}
NO_TENSORFLOW = (
    *("pretrain/training/step.py", "pretrain/convert", "pretrain/families", "pretrain/config.py"),
    *("data/store/reader.py", "data/vocabulary/load.py", "data/batch_spec.py"),
)
# 300 lines and 20 files ask whether two things live there; the test stops only what is well past the question.
LINES, FUNCTION_LINES, FOLDER_FILES, CONFIG_FIELDS = 340, 60, 23, 16
# Folders with one file per paper, family, objective, verb, run or benchmark may have any number.
OPEN_ENDED = {
    *("models", "models/config", "pretrain/families", "pretrain/cli"),
    *("data/objectives", "pretrain/training/losses", "configs"),
    *("benchmarks/speed", "benchmarks/papers"),
}


@functools.cache
def parse_file(path):
    return ast.parse(path.read_text())


@functools.cache
def find_imports(path):
    """Return the dotted names that a file imports, lazily too; `from a import b` as `a.b`."""
    names = []
    for node in ast.walk(parse_file(path)):
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
def test_folders_import_only_what_is_allowed(room):
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

    def rank_module(module):
        folder = ".".join(module.split(".")[:2])
        assert folder in order, f"{folder} has no place in ORDER"
        return order.index(folder)

    for module, imported in find_edges().items():
        for other in imported:
            if module.startswith(f"{room}.") and other.startswith(f"{room}."):
                assert rank_module(other) <= rank_module(module), f"{module} imports {other}"


def find_circle(edges):
    """Return a list of modules each of which imports the next, the last one the first, or None."""
    done, path = set(), []

    def visit_module(module):
        if module in path:
            return [*path[path.index(module) :]]
        if module in done:
            return None
        path.append(module)
        for other in sorted(edges.get(module, ())):
            if circle := visit_module(other):
                return circle
        done.add(path.pop())
        return None

    return next((circle for circle in map(visit_module, sorted(edges)) if circle), None)


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


def test_a_paper_imports_another_only_to_extend_it():
    from pretrain.families import FAMILIES

    for path in (ROOT / "models").glob("*.py"):
        if path.stem in FAMILIES:
            extended = {f"models.{name}" for name in FAMILIES[path.stem].extends}
            allowed = {"models.layers", "models.config", "models.build", *extended}
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
def test_shared_parts_of_models_name_no_family(folder, allowed):
    for path in (ROOT / folder).glob("*.py"):
        for name in find_imports(path):
            assert not name.startswith("models.") or is_within(name, allowed), (
                f"{path.relative_to(ROOT)} imports {name}"
            )


# Words that do not belong in models/: they are of pretrain/kernels.
MACHINE = (
    r"custom_vjp|custom_jvp|custom_gradient|platform_dependent|optimization_barrier"
    r"|\b(XLA|CPU|TPU|GPU|[Cc]ompiler)s?\b"
)


def find_machine_words(text):
    """Return the words of a text that name a device, a compiler or a hand-written derivative."""
    return [match.group() for match in re.finditer(MACHINE, text)]


def test_the_machine_stays_out_of_the_models():
    for path in list_files("models"):
        found = find_machine_words(path.read_text())
        assert not found, f"{path.relative_to(ROOT)} has {', '.join(found)}"


def test_machine_words_are_found():
    words = "jax.custom_vjp XLA's CPUs compilers compiled xlabel"
    assert find_machine_words(words) == ["custom_vjp", "XLA", "CPUs", "compilers"]


# ---- a family is declared once -------------------------------------------------

# Generic words are not names; these names belong to one family alone.
OTHER_NAMES = {
    "transformer": {"marian", "transformerconfig"},
    "sparse_transformer": {"sparsetransformer", "sparsetransformerconfig"},
    "music_transformer": {"musictransformer", "musictransformerconfig"},
    "lstm_lm": {"lstmlm", "lstmlmconfig"},
    "gpt_bert": {"gptbert", "gptbertconfig"},
    "deep_averaging": {"deepaveraging", "deepaveragingconfig"},
    "recurrent_encoder": {"recurrentencoder", "recurrentencoderconfig"},
    "deit_student": {"deitstudent", "deitstudentconfig"},
}
# The tokenizers library's own names.
LIBRARY_NAMES = {"BertNormalizer", "BertPreTokenizer", "RobertaProcessing"}
# Saved stores and scripts name a layout of special tokens by the first model that used it.
NAMED_LAYOUTS = "data/vocabulary/layouts.py"


@functools.cache  # most texts are in many files
def find_words(text):
    """Return the words in a text, in lower case, each also joined with those that follow it without
    a blank or a mark.

    Words end at anything but letters and digits, and before a capital: DistilBert has distil,
    distilbert and bert.
    """
    words = []
    for chunk in re.findall(r"[A-Za-z0-9]+", text):
        humps = re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|[A-Z]|\d+", chunk)
        ends = range(1, len(humps) + 1)
        joined = {(i, j): "".join(humps[i:j]).lower() for j in ends for i in range(j)} | {
            (0, len(humps)): chunk.lower()
        }
        words.append(joined)
    return words


def find_names(text, names):
    """Return the names that occur in a text; one within a longer name does not count."""
    found = set()
    for joined in find_words(text):
        hits = {span: word for span, word in joined.items() if word in names}
        for (i, j), word in hits.items():
            if not any(a <= i and j <= b and (a, b) != (i, j) for a, b in hits):
                found.add(word)
    return found


# Of sentence-transformers, in the folder of any embedder.
FOREIGN_FILES = ("sentence_bert_config.json",)


@functools.cache
def list_texts(path):
    """Return the identifiers and strings of a file, docstrings aside."""
    tree = parse_file(path)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_named = id(node) in docstrings or node.value in FOREIGN_FILES
            texts += [] if is_named else [node.value]
        for field in ("id", "attr", "name", "arg", "asname", "module"):
            value = getattr(node, field, None)
            texts += [value] if isinstance(value, str) and value not in LIBRARY_NAMES else []
    return texts


# The files of models/config that are a head on any family's encoder.
HEADS = ("choice", "classifier", "embedder", "span_reader", "tagger")


def list_family_names():
    """Return {name: its family}."""
    stems = {path.stem for path in (ROOT / "models/config").glob("*.py")}
    stems -= {"__init__", "base", "heads", *HEADS}
    return {name: stem for stem in stems for name in OTHER_NAMES.get(stem, {stem})}


def test_names_are_found_in_identifiers_and_texts():
    names = {"bert", "distilbert", "gpt2", "t5", "roberta", "gpt"}
    assert find_names("DistilBertConfig", names) == {"distilbert"}
    assert find_names("bert_base of BERT's, RoBERTa", names) == {"bert", "roberta"}
    assert find_names("models.gpt2:Gpt2 T5Config start5 albertus gpt", names) == {
        "gpt2",
        "t5",
        "gpt",
    }


def test_a_family_is_in_its_own_files_alone():
    from pretrain.families import FAMILIES

    names = list_family_names()
    assert set(names.values()) == FAMILIES.keys()
    for path in [*list_files("models"), *list_files("data"), *list_files("pretrain")]:
        place = path.relative_to(ROOT).as_posix()
        own = {path.stem, *FAMILIES[path.stem].extends} if path.stem in FAMILIES else set()
        if path.parent.name not in ("models", "config", "families", "remote_code"):
            own = set()
        if place == NAMED_LAYOUTS:
            continue
        for text in list_texts(path):
            for name in find_names(text, names):
                assert names[name] in own, f"{place} names {names[name]}: {text[:80]!r}"


def test_a_run_is_configured_for_one_family():
    from pretrain.families import FAMILIES

    names = list_family_names()
    for path in (ROOT / "configs").glob("[!_]*.py"):
        found = {names[name] for text in list_texts(path) for name in find_names(text, names)}
        extended = [{family, *FAMILIES[family].extends} for family in found]
        assert not found or any(found <= allowed for allowed in extended), (
            f"{path.name} names {', '.join(sorted(found))}"
        )


# ---- an objective is declared once ---------------------------------------------

# Objectives of labelled examples. A fine-tuning task is such an objective, so its files for reading
# examples, computing metrics and predicting name it.
TASKS = {
    *("answer_span", "classification", "regression"),
    *("tagging", "multiple_choice", "text2text", "contrastive", "similarity", "teacher_vectors"),
}
OF_TASKS = (
    *("data/examples", "data/objectives/tagging.py", "pretrain/finetune", "pretrain/evaluation"),
    *(
        "pretrain/inference/record_files.py",
        "pretrain/inference/answering.py",
        "pretrain/inference/tasks",
        "pretrain/training/fits/label_checks.py",
        "pretrain/cli/embed.py",
        "pretrain/cli/finetune.py",
        "pretrain/cli/import_.py",
        "pretrain/api",
    ),
    *("pretrain/run.py", "pretrain/convert", "pretrain/publish/cards"),
    *(f"models/config/{name}.py" for name in HEADS),
)
# Other files that name an objective, and why.
NAMING = {
    "pretrain/training/losses": {"masked_lm"},  # a term of several losses
    "data/objectives/distillation.py": {"masked_lm"},  # the class that it extends
    "data/objectives/image_distillation.py": {"image_classification"},  # likewise
    # terms of its loss
    "pretrain/training/losses/image_distillation.py": {"image_classification", "distillation"},
    "data/objectives/partitioned_fields.py": {"causal_lm"},  # as which it trains
    "data/objectives/words_and_pictures.py": {"sentence_pair"},  # likewise
    "data/objectives/masked_diffusion.py": {"masked_lm"},  # likewise
    "data/config.py": {"masked_lm"},  # the default
    "data/composed.py": {"masked_lm"},  # a remedy that an error names
    "data/rows/sentence_pairs.py": {"sentence_pair"},  # likewise
    "pretrain/cli/distil.py": {"distillation"},  # the record of a family, of the same name
    "pretrain/api/evaluating.py": {"masked_lm"},  # a sentence head is not part of it
    "pretrain/evaluation/task_metrics.py": {"seq2seq"},  # its pairs have BLEU
    "pretrain/cli/import_.py": {"seq2seq"},  # the stores of pairs that it reads
    "pretrain/publish/cards": {
        "masked_lm",
        "span_corruption",
    },  # how a gap is written
    # the form of a prompt for a model that continues texts, or fills gaps.
    "pretrain/inference/in_context_scorers.py": {"causal_lm", "prefix_lm", "span_corruption"},
    "pretrain/inference/scoring/text_scoring.py": {"masked_next_token"},  # masks of a hybrid
}


def find_objective_names(path):
    """Return the objectives, by name or class, in a file's identifiers and strings, docstrings
    excluded.
    """
    from data.objectives import OBJECTIVES

    found, text = set(), "\n".join(list_texts(path))
    for name, kind in OBJECTIVES.items():
        if re.search(rf"(?<![A-Za-z0-9_])({name}|{kind.__name__})(?![A-Za-z0-9_])", text):
            found.add(name)
    return found


def test_an_objective_is_in_its_own_files_alone():
    named = {place: set() for place in NAMING}
    for path in [*list_files("models"), *list_files("data"), *list_files("pretrain")]:
        place = path.relative_to(ROOT).as_posix()
        found = find_objective_names(path)
        if path.parent.name in ("objectives", "losses"):
            found.discard(path.stem)
        if path.parent.name == "families":  # they record what their models train on
            continue
        if place.startswith(OF_TASKS):
            found -= TASKS
        for prefix, names in NAMING.items():
            if place.startswith(prefix):
                named[prefix] |= found & names
                found = found - names
        assert not found, f"{place} names {', '.join(sorted(found))}"
    assert named == NAMING, "an exception that is none any more goes"


# ---- sizes -------------------------------------------------------------------


def test_files_fit_on_a_few_screens():
    for room in (*ROOMS, "benchmarks"):
        for path in list_files(room):
            count = path.read_text().count("\n")
            assert count <= LINES, f"{path.relative_to(ROOT)} has {count} lines"


def test_functions_fit_on_a_screen():
    for room in (*ROOMS, "benchmarks"):
        for path in list_files(room):
            for node in ast.walk(parse_file(path)):
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
    from pretrain.config import SECTION_CLASSES

    for name, kind in SECTION_CLASSES.items():
        count = len(dataclasses.fields(kind))
        # Muon has the settings of two optimizers, its own and AdamW's.
        assert count <= CONFIG_FIELDS + (name == "Muon"), f"{name} has {count} fields"


# ---- what importing costs ----------------------------------------------------


def test_the_step_and_the_conversion_need_no_tensorflow():
    names = [".".join(pathlib.Path(name).with_suffix("").parts) for name in NO_TENSORFLOW]
    code = f"import sys, {', '.join(names)}; print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_configurations_and_help_need_no_jax_and_no_tokenizers():
    code = (
        "import sys, pretrain.__main__, pretrain.config\n"
        "pretrain.__main__.main(['--help']); pretrain.config.load('bert_tiny', ['train.steps=3'])\n"
        "print({'jax', 'tensorflow', 'flax', 'tokenizers', 'sentencepiece', 'google.protobuf'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("set()\n"), done.stdout


# What a BERT needs to train: its configuration, record, loss and model, and ...
LOADED = """
import sys, models, PARTS
from pretrain.config import load
from pretrain.families import find_family
from pretrain.training.losses import make_loss
run = load("bert_base")
find_family(run.model), make_loss(run.data.objective), models.build(run.model)
for name, module in sys.modules.items():
    if name.split(".")[0] in ("pretrain", "data", "models", "configs") and module.__file__:
        print(name, open(module.__file__).read().count("\\n"))
"""


@pytest.mark.parametrize(
    ("parts", "files", "lines"),
    [
        ("pretrain.training.program, data.pipeline, data.store.kinds", 110, 15_000),  # ... a step
        ("pretrain.training.loop", 206, 25_500),  # ... the whole loop
    ],
    ids=["step", "loop"],
)
def test_a_bert_imports_only_what_it_uses(parts, files, lines):
    done = subprocess.run(
        [sys.executable, "-c", LOADED.replace("PARTS", parts)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(line.split() for line in done.stdout.splitlines())
    unused = (
        "data.music", "data.images", "data.examples", "data.inspection", "pretrain.evaluation",
    )  # fmt: skip
    rare = ("models.layers.block_sparse", "models.layers.long_rows", "models.layers.relative")
    assert not [name for name in found if is_within(name, (*unused, *rare))]
    assert len(found) <= files and sum(map(int, found.values())) <= lines


def test_the_data_side_never_loads_jax():
    code = "import sys, data.pipeline, data.prepare.build, data.inspection.batch_report, data.corpus.sources; print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_attention_kernels_are_asked_through_one_door():
    """`choice.py` imports a kernel when it is first asked, so a run on a CPU imports none."""
    room = "pretrain.kernels.attention."
    doors = (f"{room}choice.", f"{room}plain.")
    for path in list_files("pretrain"):
        if "kernels/attention" in path.as_posix():
            continue
        found = [name for name in find_imports(path) if name.startswith(room)]
        assert all(name.startswith(doors) for name in found), f"{path.relative_to(ROOT)}: {found}"
    code = f"import sys, pretrain.kernels.model_hooks; print([n for n in sys.modules if n.startswith({room!r})])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[3] for name in ast.literal_eval(done.stdout)}
    assert loaded == {"choice", "plain"}


def test_objectives_have_the_same_names_on_both_sides():
    from data.objectives import OBJECTIVES
    from pretrain.training.losses import find_loss

    for name, objective in OBJECTIVES.items():
        loss, spec = find_loss(name), objective().describe_batch()
        assert {*loss.weight_keys.values(), *loss.token_keys, *loss.input_keys} <= spec.keys()
        assert set(loss.loss_weights) <= set(loss.loss_terms) <= loss.weight_keys.keys()
        assert OBJECTIVES[name].name == name


def test_every_model_is_built_from_its_configuration():
    from models import build
    from pretrain.config import SECTION_CLASSES
    from pretrain.families.kinds import list_trained

    for config in list_trained():
        assert type(build(config())).__name__ == config.module.partition(":")[2]
        assert SECTION_CLASSES[config.__name__] is config
    with pytest.raises(ValueError, match="no model is configured by a int"):
        build(3)


# Objects whose class declares what is asked of them, by the last word of the code that names one.
ASKED = re.compile(r"\b(objective|model|config|encoder|headed|part|self|mask)$")


def find_undeclared_questions(tree):
    """Return (line, code) of `getattr` with a default, and `hasattr`, of objectives and models."""
    return [
        (node.lineno, ast.unparse(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and (node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3))
        and isinstance(node.args[1], ast.Constant)
        and ASKED.search(ast.unparse(node.args[0]))
    ]


@pytest.mark.parametrize("room", ["data", "models", "pretrain"])
def test_what_is_asked_of_an_objective_or_a_model_is_declared(room):
    undeclared = [
        f"{path.relative_to(ROOT)}:{line} {code}"
        for path in (ROOT / room).rglob("*.py")
        for line, code in find_undeclared_questions(parse_file(path))
    ]
    assert undeclared == []


def test_an_undeclared_question_is_found():
    source = "getattr(run.data.objective, 'order', 0); hasattr(model, 'length'); getattr(x, 'y', 0)"
    assert len(find_undeclared_questions(ast.parse(source))) == 2


def test_a_model_has_the_methods_that_its_class_declares():
    from models import build
    from models.layers.model import Model
    from pretrain.families.kinds import list_trained

    for config in list_trained():
        kind = type(build(config()))
        assert issubclass(kind, Model) and hasattr(Model, "collections")
        assert kind.encodes == hasattr(kind, "encode"), kind
        assert kind.decodes == hasattr(kind, "decode"), kind
        assert not hasattr(kind, "compute_logits") or hasattr(kind, kind.logits_method), kind
        assert bool(kind(config()).collections) == config().keeps_state, kind
