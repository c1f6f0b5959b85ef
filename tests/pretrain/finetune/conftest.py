"""An untrained BERT, from which the tests fine-tune."""

import jax
import numpy as np
import pytest

from data.vocabulary.load import train_vocabulary
from models.config.bert import BertConfig
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.training.new_workdir import start_workdir
from tests.pretrain.finetune.encoders import trained_vocabularies

UNTRAINED = BertConfig(
    vocab=64, length=32, width=32, depth=2, num_heads=4, mlp=64, dropout=0.0, attention_dropout=0.0
)
WORDS = "the a fox dog river stone runs sees near old".split()


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """Return its workdir; WORDS are tokens of its vocabulary."""
    workdir, rng = tmp_path_factory.mktemp("untrained") / "bert", np.random.default_rng(0)
    params = jax.jit(make_initializer(make_starting_run(UNTRAINED)))()
    texts = [" ".join(rng.choice(WORDS, 2 + int(rng.integers(3)))) for _ in range(300)]
    start_workdir(
        workdir, make_starting_run(UNTRAINED), params, train_vocabulary(texts, 56, algorithm="bpe")
    )
    return workdir


@pytest.fixture(scope="session")
def vocabularies():
    """Return {name of an encoder of encoders.py: its vocabulary}."""
    return trained_vocabularies()
