"""Counts of the code's names: verb phrases, one meaning a name, types of public functions.

`python tests/test_language.py` prints the counts.
"""

import ast
import collections
import functools
import io
import pathlib
import re
import tokenize

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = ("models", "data", "pretrain", "configs", "benchmarks", "tests")
MAX_ONE_WORD = 0.30
MIN_TYPED = 0.90
MAX_README_LINES = 120
# Words that may not be in the name of a function, class, parameter, variable or attribute.
BANNED = frozenset("told said kept lies stands dealt spoken".split())
# Words that are not in docstrings and comments either.
ODD = r"\b(told|tells|dealt|spoken|lies|whoever|anew|way (back|forth))\b"
ODD_WORDS = re.compile(rf'(?<!"){ODD}', re.IGNORECASE)
# Names that others define: a configuration's function, flax's setup.
IMPOSED = frozenset({"config", "setup", "main"})
# Stems that two files share on purpose, besides the files of a family, an objective or a command.
SHARED_STEMS = frozenset({"__init__", "__main__", "base", "config", "mixed"})
BY_RECORD = ("models", "models/config", "pretrain/families", "data/objectives")
BY_RECORD += ("pretrain/training/losses", "models/heads", "data/examples")
OF_COMMANDS = ("pretrain/cli", "benchmarks", "benchmarks/speed", "benchmarks/papers")


@functools.cache
def parse_files(folder: str) -> dict[str, ast.Module]:
    """Return {path from the root: its syntax tree} of a top-level folder."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}


def find_functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return all functions of a file, methods and nested ones included, except those with dunder
    names.
    """
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return [node for node in found if not re.fullmatch(r"__\w+__", node.name)]


def find_public_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return the public functions of a file and the public methods of its public classes."""
    bodies = [tree.body]
    bodies += [
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    functions = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef)]
    return [
        node
        for node in functions
        if not node.name.startswith("_") or node.name in ("__call__", "__init__")
    ]


def find_names(tree: ast.AST) -> list[tuple[int, str]]:
    """Return (line, name) of every function, class, parameter, variable, attribute and keyword of a
    file.
    """
    found = []
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                found.append((node.lineno, name))
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.append((node.lineno, name))
            case ast.keyword(arg=str(name)):
                found.append((node.value.lineno, name))
            case ast.alias(name=name, asname=asname):
                found += [(node.lineno, part) for part in (*name.split("."), asname or "")]
    return found


def count_one_word_names(folder: str) -> tuple[int, int]:
    """Return (functions with a name of one word, functions) of a top-level folder."""
    functions = [node for tree in parse_files(folder).values() for node in find_functions(tree)]
    names = [node.name.strip("_") for node in functions if node.name not in IMPOSED]
    return sum("_" not in name for name in names), len(names)


def count_typed_parameters(folder: str) -> tuple[int, int]:
    """Return (typed parameters, parameters) of the public functions of a folder; a return value
    counts as one.
    """
    typed = total = 0
    for tree in parse_files(folder).values():
        for node in find_public_functions(tree):
            arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            annotations = [each.annotation for each in arguments if each.arg not in ("self", "cls")]
            annotations += [] if node.name == "__init__" else [node.returns]
            typed += sum(annotation is not None for annotation in annotations)
            total += len(annotations)
    return typed, total


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_are_verb_phrases(folder):
    one_word, total = count_one_word_names(folder)
    assert one_word <= MAX_ONE_WORD * total, f"{one_word} of {total} functions have one word"


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_have_no_banned_words(folder):
    found = [
        f"{path}:{line}: {name}"
        for path, tree in parse_files(folder).items()
        for line, name in find_names(tree)
        if BANNED & set(name.lower().strip("_").split("_"))
    ]
    assert not found, "\n".join(found)


def find_prose(source: str) -> list[tuple[int, str]]:
    """Return (line, text) of the docstrings and comments of a file."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    found = [(node.body[0].lineno, ast.get_docstring(node) or "") for node in nodes if node.body]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found += [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_have_no_odd_words(folder):
    found = [
        f"{path}:{line}: {text}"
        for path in parse_files(folder)
        if re.search(ODD, source := (ROOT / path).read_text(), re.IGNORECASE)  # few have any
        for line, text in find_prose(source)
        if ODD_WORDS.search(text) and path != "tests/test_language.py"
    ]
    assert not found, "\n".join(found)


def test_odd_prose_is_found():
    source = '"""What is told."""\ntold = "told"  # lies here\ndef f():\n    """Return told."""\n'
    assert [line for line, text in find_prose(source) if ODD_WORDS.search(text)] == [1, 4, 2]


@pytest.mark.parametrize("folder", ["models", "data", "pretrain", "benchmarks"])
def test_public_functions_have_types(folder):
    typed, total = count_typed_parameters(folder)
    assert typed >= MIN_TYPED * total, f"{typed} of {total} parameters and results have types"


def find_shared_stems() -> dict[str, list[str]]:
    """Return {stem: paths} of the production files that share a stem without a reason."""
    paths = [pathlib.PurePath(path) for folder in FOLDERS[:5] for path in parse_files(folder)]
    stems = collections.defaultdict(list)
    for path in paths:
        parent = path.parent.as_posix()
        if parent not in (*BY_RECORD, *OF_COMMANDS) and path.parts[0] != "configs":
            stems[path.stem].append(path.as_posix())
    return {
        stem: files for stem, files in stems.items() if len(files) > 1 and stem not in SHARED_STEMS
    }


def test_a_file_name_means_one_thing():
    assert not find_shared_stems()


def find_shared_classes() -> dict[str, list[str]]:
    """Return {name: paths} of the public classes of production code that are in two files.

    The files that exports carry name their classes as transformers does.
    """
    classes = collections.defaultdict(list)
    for folder in FOLDERS[:5]:
        for path, tree in parse_files(folder).items():
            for node in tree.body:
                is_public = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
                if is_public and "remote_code" not in str(path):
                    classes[node.name].append(path)
    return {name: paths for name, paths in classes.items() if len(paths) > 1}


def test_a_class_name_means_one_thing():
    assert not find_shared_classes()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


def test_odd_names_are_found():
    tree = ast.parse("def f(told=1):\n  x.kept = g(said=2)\n  return lies_here")
    words = [name for _, name in find_names(tree) if BANNED & set(name.split("_"))]
    assert sorted(words) == ["kept", "lies_here", "said", "told"]


if __name__ == "__main__":
    for each in FOLDERS:
        (words, functions), (types, places) = (
            count_one_word_names(each),
            count_typed_parameters(each),
        )
        print(
            f"{each:<12}{words:>5} of {functions:>5} functions of one word ({words / max(functions, 1):.0%}), "
            f"{types:>5} of {places:>5} parameters and results with types ({types / max(places, 1):.0%})"
        )
    print("shared stems:", find_shared_stems())
    print("shared classes:", find_shared_classes())
