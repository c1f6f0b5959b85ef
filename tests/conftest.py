"""Fixtures and settings of all tests: eight fake CPU devices, strict types, a compilation cache,
and tiny runs.
"""

import os
from importlib import metadata

# Before JAX is imported anywhere.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
if "CLOZE_TEST_GPU" not in os.environ:  # `launch.sh test gpu` sets it
    # Tests compile much and compute little: without optimisation XLA compiles in half the time.
    os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0"
if metadata.version("jaxlib").startswith(
    "0.10."
):  # XLA ends a process with a flag that it does not know
    # The older emitter of fused loops compiles a training step in half the time again.
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
    # Compile a program as one LLVM module instead of up to 32 in parallel threads: this saves a fifth
    # of the CPU time, and the cores are busy anyway.
    os.environ["XLA_FLAGS"] += " --xla_cpu_parallel_codegen_split_count=1"
os.environ["JAX_PLATFORMS"] = "cuda,cpu" if "CLOZE_TEST_GPU" in os.environ else "cpu"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # processes of pytest-xdist share a GPU
# Dtypes promote only explicitly, in fixtures, threads and subprocesses too.
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["NO_GCE_CHECK"] = "true"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.expanduser("~/.cache/cloze/jax"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"
os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # as `sys.dont_write_bytecode` below

import dataclasses
import functools
import gc
import pathlib
import re
import signal
import sys

import pytest

from tests import draws, forks  # noqa: F401 - draws sets the profile of hypothesis
from tests.tiers import is_left_out, mark_more

# Python keeps what it has translated: else each process translates all that it imports, for 15 s.
sys.dont_write_bytecode = False

# What a caller ignores (`nohup`, `command &` in a script), the processes of tests would ignore too.
for number, handler in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

ROOT = pathlib.Path(__file__).parent.parent
# The slowest files, slowest first. `launch.sh test` starts with them, so that its two processes
# end at about the same time.
LONGEST = (
    "test_docs_run.py",
    "pretrain/training/test_step.py",
    "pretrain/training/test_meshes_and_kills.py",
    "pretrain/processes/test_hosts.py",
    "faults/test_lost_terminal.py",
    "test_notebook.py",
    "faults/test_two_writers.py",
    "pretrain/training/test_loop.py",
    "faults/test_damaged_checkpoint.py",
    "pretrain/convert/test_import.py",
    "pretrain/plan/test_plan.py",
    "pretrain/finetune/test_finetune.py",
    "faults/test_full_disk.py",
    "pretrain/finetune/test_squad.py",
    "models/test_goldens.py",
    "faults/test_asked_to_stop.py",
    "pretrain/training/test_divergence.py",
    "faults/test_undamaged_errors.py",
    "pretrain/finetune/test_multitask.py",
    "pretrain/training/test_packed.py",
    "pretrain/cli/test_predict.py",
    "pretrain/inference/test_hidden_states.py",
    "models/layers/test_packing.py",
    "faults/test_killed_saving.py",
    "faults/test_hung.py",
)
SHARED = 8  # number of cached programs of runs, each with its evaluation
WHOLE = (
    os.environ.get("CLOZE_BOARD") == "whole"
)  # all cases, as `python -m benchmarks.reliability` and the weekly board run them


# Tests in these folders compile programs or start processes, unless their file sets `pytestmark =
# pytest.mark.fast`. Slow tests elsewhere are marked one by one. `launch.sh test fast` runs the
# tests that are not slow.
SLOW = (
    *("benchmarks", "faults", "models", "pretrain/cli", "pretrain/convert"),
    *("pretrain/finetune", "pretrain/inference", "pretrain/plan", "pretrain/training"),
    *("pretrain/kernels", "pretrain/evaluation"),
)

# Tests in these folders hold no promise of the package: only `launch.sh test all` runs them.
MORE = ("benchmarks",)


def pytest_ignore_collect(collection_path, config):
    """Leave out, unread, the files of which the tier runs no test: importing all of them takes as
    long as the fast tests.
    """
    if collection_path.suffix == ".py" and collection_path.name.startswith("test_"):
        return is_left_out(find_marks(collection_path), config.option.markexpr) or None


@functools.cache
def find_marks(path):
    """Return the markers that all tests of a file have: of its folder, and of a `pytestmark` in one
    line; not `slow` if any test is marked as fast.
    """
    text = path.read_text()
    line = re.search(r"^pytestmark = .*", text, re.M)
    marks = set(re.findall(r"pytest\.mark\.(more|slow)\b", line[0] if line else ""))
    marks |= {"more"} & find_folder_marks(path)
    return marks if "pytest.mark.fast" in text else marks | find_folder_marks(path)


@functools.cache
def find_folder_marks(path):
    """Return the markers that a file's folder gives its tests."""
    folders = {"slow": SLOW, "more": MORE}
    return {
        mark
        for mark, names in folders.items()
        if any(path.is_relative_to(ROOT / "tests" / name) for name in names)
    }


def pytest_collection_modifyitems(config, items):
    mark_more(items, is_tier="not more" in config.option.markexpr)
    for item in items:
        for mark in find_folder_marks(item.path):
            if mark == "more" or not item.get_closest_marker("fast"):
                item.add_marker(mark)
    rank = {ROOT / "tests" / name: number for number, name in enumerate(LONGEST)}
    if gone := [str(path) for path in rank if not path.exists()]:
        raise pytest.UsageError(f"tests/conftest.py: LONGEST names what is not there: {gone}")
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Refuse a module whose import changes the environment of all other tests."""
    before = forks.import_settings(os.environ)
    result = yield
    after = forks.import_settings(os.environ)
    changed = {
        name: (before.get(name), after.get(name))
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }
    if changed:
        raise pytest.UsageError(
            f"what was collected has changed the environment as it was imported: {changed}"
        )
    return result


def pytest_collection_finish(session):
    """Read what hypothesis reads once, then collect garbage rarely, and not among imported modules:
    tracing makes many long-lived objects.
    """
    if any(getattr(getattr(item, "obj", None), "hypothesis", None) for item in session.items):
        draw_numbers()
    gc.collect()
    gc.freeze()
    gc.set_threshold(500_000, 20, 100)


def draw_numbers():
    """Let hypothesis read the constants of the project's modules, for 1 to 2 s, which it otherwise
    does in a draw of a test, whose time it checks.

    It does so at one draw of twenty; the draws here are the same in each process.
    """
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    @settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers())
    def draw(number):
        del number

    draw()


def pytest_runtest_setup():
    if "orbax.checkpoint" in sys.modules:
        save_small_arrays_whole()
    if "pretrain.training.phase_programs" in sys.modules:
        share_programs(sys.modules["pretrain.training.phase_programs"])


def save_small_arrays_whole():
    """Replace Orbax's slicing of tiny arrays on eight devices, which would compile a program per
    slice.

    Processes that are neither this one nor a fork (tests/forks.py) slice: the runs of test_loop.py
    that nobody disturbs.
    """
    import jax
    from orbax.checkpoint import type_handlers

    type_handlers.get_type_handler(jax.Array)._min_slice_bytes_for_replica_parallel = 1 << 20


def share_programs(phases):
    """Let runs of this process that compute the same on the same devices share one compiled
    program.
    """
    if hasattr(phases, "own_program"):
        return
    from pretrain.kernels.attention.choice import KERNELS  # Some tests give the CPU kernels.

    phases.own_program, phases.own_evaluator = phases.make_program, phases.make_evaluator
    programs, evaluators = {}, {}

    def find_or_make(programs, key, make):
        if key not in programs:
            while len(programs) >= SHARED:
                programs.pop(next(iter(programs)))
            programs[key] = make()
        return programs[key]

    def make_program(run, mesh, **options):
        if options.keys() - {"rate"}:
            return phases.own_program(run, mesh, **options)
        data = dataclasses.replace(run.data, store="", rates=(), threads=1, prefetch=1, feed="auto")
        train = dataclasses.replace(run.train, stop_at_step=0)
        key = (run.model, data, train, run.optimizer, run.guard, mesh, KERNELS.get("cpu"))
        key += tuple(options.values())
        return find_or_make(programs, key, lambda: phases.own_program(run, mesh, **options))

    def make_evaluator(model, loss, mesh, **options):
        make = functools.partial(phases.own_evaluator, model, loss, mesh, **options)
        key = (id(model), id(loss), mesh, *options.values())
        return find_or_make(evaluators, key, lambda: (make(), model, loss))[0]

    phases.make_program, phases.make_evaluator = make_program, make_evaluator


@pytest.fixture
def promoting():
    """Allow dtype promotion, for a test that differentiates a kernel of JAX that relies on it."""
    import jax

    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="session")
def root():
    """Return the project's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def corpora(root):
    """Return the folder of real corpora that benchmarks use; skip the test if it does not exist."""
    path = root.parent / "shared" / "corpora"
    if not path.is_dir():
        pytest.skip(f"{path.name}/ is not next to the project: real corpora are only for measuring")
    return path


@pytest.fixture(scope="session")
def often():
    """Return often(some, all): the number of cases to try, in the suite and on the whole board."""
    return lambda some, all: all if WHOLE else some


@pytest.fixture(scope="session")
def whole():
    """Skip a test in the suite that is only for the board, or for CLOZE_BOARD=whole."""
    if not WHOLE:
        pytest.skip("for the whole board: CLOZE_BOARD=whole")
