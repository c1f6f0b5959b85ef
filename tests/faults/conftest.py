"""Fixtures of the fault tests: tiny runs, a finished workdir, a command with an injected fault.

The suite tries a few of each; `python -m benchmarks.reliability` sets CLOZE_BOARD=whole and tries
them all. Figures go to the board by `record_property(name, value)`.
"""

import dataclasses
import functools
import pathlib
import shutil
import subprocess
import sys

import pytest

from data.config import Data
from data.objectives import CausalLm, MaskedLm, SpanCorruption
from models.config.bert import BertConfig
from models.config.gpt import GptConfig
from models.config.t5 import T5Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train, to_json
from tests import forks

SMALL = dict(width=32, depth=2, num_heads=8, mlp=64, dropout=0.1)
MODELS = {
    "bert": (
        BertConfig(vocab=128, length=32, **SMALL),
        MaskedLm(length=32, max_predictions=6, rows="documents"),
    ),
    "t5": (T5Config(vocab=256, decoder_depth=2, head_width=4, **SMALL), SpanCorruption(inputs=32)),
    "gpt": (GptConfig(vocab=128, length=32, **SMALL), CausalLm(length=32, end_of_text=False)),
}
LAYOUTS = {"bert": ("bert", 40), "t5": ("t5", 138), "gpt": ("gpt", 37)}
WORDS = "the a of and old grey fox dog river stone walks runs sees finds under over near with quick slow house".split()


def make_texts(count):
    """Return deterministic sentences, all different."""
    return [
        " ".join(WORDS[(i * i + 7 * i * j + j * j) % len(WORDS)] for j in range(4 + i % 9)) + "."
        for i in range(count)
    ]


def write_tiny_store(folder, layout, size, algorithm="unigram"):
    """Write a token store of 100 documents with its own vocabulary."""
    from data.vocabulary.load import train_vocabulary
    from tests.small_store import write_store

    vocabulary = train_vocabulary(make_texts(600), size, layout, algorithm)
    encoded = iter(vocabulary.encode_batch(make_texts(600)))
    documents = [[next(encoded) for _ in range(1 + i % 9)] for i in range(100)]
    return write_store(folder, vocabulary, documents[:90], heldout=documents[90:])


@pytest.fixture(scope="session")
def tiny_store():
    """Return `write_tiny_store` above."""
    return write_tiny_store


def write_config(folder, name):
    """(path of the saved configuration of a run of 12 steps with dropout, its Run, its Store), in a
    folder.
    """
    store = write_tiny_store(folder / f"{name}.store", *LAYOUTS[name])
    model, objective = MODELS[name]
    run = Run(
        model=model,
        data=Data(objective=objective, store=str(store.path), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2),
        train=Train(steps=12, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )
    path = folder / f"{name}.json"
    path.write_text(to_json(run))
    return path, run, store


@pytest.fixture(scope="session")
def configured(tmp_path_factory):
    """Return configured(name), which is `write_config` above, once for each name."""
    root = tmp_path_factory.mktemp("faults")
    return functools.cache(lambda name: write_config(root, name))


@pytest.fixture(scope="session")
def finished(configured, tmp_path_factory):
    """Return (run, workdir) of a small BERT with checkpoints 4, 8 and 12; read-only."""
    from pretrain.training.loop import train

    _, run, _ = configured("bert")
    workdir = tmp_path_factory.mktemp("finished") / "run"
    train(run, workdir)
    return run, workdir


@pytest.fixture
def copied(finished, tmp_path):
    """Return (run, a copy of the finished workdir, which a test may damage)."""
    shutil.copytree(finished[1], tmp_path / "run")
    return finished[0], tmp_path / "run"


@pytest.fixture
def small_disk(tmp_path):
    """Return small_disk(size): a folder on a disk of that many bytes. Needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def mount_disk(size):
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"a disk cannot be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount_disk
    for one in mounted:  # lazily: Orbax's threads may still have a file open
        subprocess.run(["umount", "-l", one], check=True)


FAULTY = pathlib.Path(__file__).parent / "faulty.py"


def run_pretrain(*words, fault=None, timeout=240, **options):
    """Run `python -m pretrain WORDS` to its end, with a fault of tests/faults/faulty.py such as
    "kill:step:5".
    """
    program = [str(FAULTY), fault] if fault else ["-m", "pretrain"]
    return forks.run(
        [sys.executable, *program, *map(str, words)],
        cwd=FAULTY.parents[2],
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )


@pytest.fixture(scope="session")
def command():
    """Return `run_pretrain` above."""
    return run_pretrain


@pytest.fixture
def refused(capsys):
    """Return refused(*words): the one-line error of a command run in this process; its exit status
    must be 2.
    """
    from pretrain.__main__ import main

    def expect_refusal(*words):
        capsys.readouterr()
        status = main([str(word) for word in words])
        captured = capsys.readouterr()
        assert status == 2, f"{words} gave {status}: {captured.out}{captured.err}"
        (line,) = [line for line in captured.err.splitlines() if line.startswith("error: ")]
        return line

    return expect_refusal


@pytest.fixture(scope="session")
def restorable():
    """Return restorable(run): (shapes, shardings) of its state on one device, as
    `Checkpoints.restore_state` takes them.
    """
    import jax

    from pretrain.config import Mesh
    from pretrain.mesh.sharding import make_mesh
    from pretrain.training.program import make_program

    @functools.cache  # a trace of the whole model
    def describe_state(run):
        program = make_program(
            dataclasses.replace(run, mesh=Mesh(1)), make_mesh(Mesh(1), jax.devices()[:1])
        )
        return program.abstract_state, program.state_shardings

    return describe_state
