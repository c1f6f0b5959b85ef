"""An untrained BERT, from which the tests fine-tune."""

import numpy as np
import pytest

from data.vocabulary.load import train_vocabulary
from models.config.bert import BertConfig
from tests.pretrain.finetune.encoders import trained_vocabularies
from tests.pretrain.workdirs import start_untrained

UNTRAINED = BertConfig(
    vocab=64, length=32, width=32, depth=2, num_heads=4, mlp=64, dropout=0.0, attention_dropout=0.0
)
WORDS = "the a fox dog river stone runs sees near old".split()


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """Return its workdir; WORDS are tokens of its vocabulary."""
    workdir, rng = tmp_path_factory.mktemp("untrained") / "bert", np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 2 + int(rng.integers(3)))) for _ in range(300)]
    return start_untrained(workdir, UNTRAINED, train_vocabulary(texts, 56, algorithm="bpe"))


@pytest.fixture(scope="session")
def vocabularies():
    """Return {name of an encoder of encoders.py: its vocabulary}."""
    return trained_vocabularies()
