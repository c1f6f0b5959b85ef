"""Without TensorFlow: the way from a text to a filled mask, and one line where TensorFlow is needed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.feeds import needs_tensorflow

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parents[1]
# `sitecustomize` of a Python that finds none of these.
ABSENT = """
import sys

sys.modules |= dict.fromkeys(["tensorflow", "tensorflow_datasets", "keras", "gcsfs"])
"""
INSTALL = "install Cloze with its extra `tfdata`"
WORDS = "the model reads a text and learns to fill the gap in it one word after another".split()
TRAIN = (
    *("train.steps=4", "data.batch_size=8", "data.objective.length=12"),
    *("data.objective.max_predictions=3", "evaluate.every=4"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a text, and with `absent/sitecustomize.py`."""
    folder = tmp_path_factory.mktemp("without")
    lines = (" ".join(WORDS[i % 7 : 7 + i % 9]) + f" {i}." for i in range(300))
    (folder / "text.txt").write_text("\n\n".join(lines))
    (folder / "absent").mkdir()
    (folder / "absent" / "sitecustomize.py").write_text(ABSENT)
    return folder


@pytest.fixture(scope="module")
def python(folder):
    """Return python(*words): run this Python without TensorFlow in the folder."""
    path = os.pathsep.join([str(folder / "absent"), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "JAX_NUM_CPU_DEVICES": "1"}

    def run_python(*words):
        return subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )

    return run_python


@pytest.fixture(scope="module")
def cloze(python):
    """Return cloze(verb, ...): what the verb prints; fail if it fails."""

    def run_verb(*words):
        done = python("-m", "pretrain", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run_verb


@pytest.fixture(scope="module")
def run(cloze):
    """Prepare the text, train on it, and return what `train` prints."""
    cloze("prepare", "text.txt", *"--document block --output store --vocab-size 64".split())
    return cloze("train", "bert_tiny", "--workdir", "run", "data.store=store", *TRAIN)


def test_tensorflow_is_absent(python):
    done = python("-c", "import tensorflow")
    assert "ModuleNotFoundError: import of tensorflow halted" in done.stderr


def test_a_text_becomes_a_filled_mask(folder, cloze, run):
    rows = [
        json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert list((folder / "run" / "tensorboard").iterdir())
    assert "perplexity" in cloze("evaluate", "--workdir", "run")
    cloze("export", "--workdir", "run", "--output", "exported")
    assert (folder / "exported" / "model.safetensors").stat().st_size > 10**5
    assert "%" in cloze("predict", "--workdir", "run", "the [MASK] reads a text")
    resumed = cloze(
        "train", "bert_tiny", "--workdir", "run", "data.store=store", *TRAIN, "train.steps=6"
    )
    assert "6" in resumed
    rows = [
        json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]


def test_the_machine_is_in_order(cloze):
    printed = cloze("doctor")
    assert "batches come from threads: TensorFlow is not installed" in printed
    assert "all is well" in printed


DATASET = """
from pretrain.config import load
from pretrain.training.loop import train

run = load("bert_tiny", ["data.store=store"])
train(run, "other", dataset=lambda stream, *share: stream.make_dataset(*share))
"""
MADE = """
from data.config import Data
from data.pipeline import Stream
from data.store.reader import Store

Stream(Store.open("store"), Data()).make_dataset()
"""
TFDS = ("-m", "pretrain", "prepare", "tfds:glue/rte", "--output", "other")
BUCKET = ("-m", "pretrain", "train", "bert_tiny", "--workdir", "other", "data.store=gs://b/store")
FEED = ("-m", "pretrain", "train", "bert_tiny", "--workdir", "other", "data.store=store")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*FEED, "data.feed=tfdata"), "error: data.feed=tfdata needs TensorFlow, which is not"),
        (("-c", DATASET), "ValueError: a dataset of the user needs TensorFlow, which is not"),
        (("-c", MADE), "ValueError: tf.data needs TensorFlow, which is not"),
        (TFDS, "error: tfds:glue/rte needs TensorFlow Datasets, which is not"),
        (
            BUCKET,
            "error: gs://b/store: buckets are read through TensorFlow or gcsfs, and neither is",
        ),
    ],
    ids=["feed", "dataset", "make_dataset", "tfds", "bucket"],
)
def test_what_needs_tensorflow_says_so(folder, python, run, words, message):
    done = python(*words)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode in (1, 2) and line.startswith(message) and INSTALL in line, done.stderr
    assert ("Traceback" in done.stderr) == (words[0] == "-c")  # verbs print the one line
    assert not (folder / "other").exists()


LOADED = (
    "print('loaded', sorted(n for n in sys.modules if n.split('.')[0] in ('tensorflow', 'keras')))"
)


@needs_tensorflow
@pytest.mark.parametrize("module", ["cli.train", "cli.evaluate", "cli.prepare", "training.loop"])
def test_importing_a_verb_loads_no_tensorflow(module):
    code = f"import sys, pretrain.{module}\n{LOADED}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.endswith("loaded []\n"), done.stderr


@needs_tensorflow
def test_a_run_with_threads_loads_no_tensorflow(folder, run):
    code = f"""
import sys
from pretrain.__main__ import main

words = ["--workdir", "threads", "data.store=store", "data.feed=threads", *{TRAIN!r}]
assert main(["train", "bert_tiny", *words]) == 0
{LOADED}
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_NUM_CPU_DEVICES": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.stdout.endswith("loaded []\n"), done.stdout + done.stderr
    rows = [
        (folder / name / "metrics.jsonl").read_text().splitlines() for name in ("run", "threads")
    ]
    losses = [[json.loads(line)["loss"] for line in lines[:4]] for lines in rows]
    assert losses[0] == losses[1]
