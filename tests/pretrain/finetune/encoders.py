"""Small encoders and decoders of every family, each with a vocabulary, for comparisons of heads with
`transformers`.
"""

import jax
import numpy as np

from data.vocabulary.load import train_vocabulary
from models.config.albert import AlbertConfig
from models.config.bert import BertConfig
from models.config.distilbert import DistilBertConfig
from models.config.electra import ElectraConfig
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.roberta import RobertaConfig
from models.config.xlnet import XLNetConfig
from pretrain.api.importing import make_initializer

TEXT = [
    "The fox and the dog. A word and another word, and so on.",
    "Gaps are left out of a text, and the reader fills them.",
    "No.",
]


FRAMES = {  # of labelled rows
    "roberta": {"separators": 2},
    "xlnet": {"cls_position": "last"},
    "gpt": {"cls_position": "none"},
    "gpt2": {"cls_position": "none"},
}


def make_encoders(length=24):
    """Return {name: configuration}."""
    sizes = dict(length=length, width=16, depth=2, num_heads=2, mlp=24)
    return {
        "bert": BertConfig(vocab=72, **sizes),
        "roberta": RobertaConfig(vocab=290, **sizes),
        "albert": AlbertConfig(vocab=72, **sizes, embedding=8),
        "electra": ElectraConfig(
            vocab=72,
            **sizes,
            embedding=8,
            generator_width=8,
            generator_num_heads=2,
            generator_mlp=8,
        ),
        "distilbert": DistilBertConfig(vocab=72, **sizes, teacher_depth=None),
        "xlnet": XLNetConfig(vocab=72, **sizes | {"length": 512}),  # a config.json has no length
    }


def make_decoders(length=24):
    """Return {name: configuration} of causal decoders."""
    sizes = dict(length=length, width=16, depth=2, num_heads=2, mlp=64)
    return {"gpt": GptConfig(vocab=72, **sizes), "gpt2": Gpt2Config(vocab=290, **sizes)}


def trained_vocabularies():
    """Return {name: vocabulary}, trained on TEXT."""
    bert = train_vocabulary(TEXT * 20, 72, algorithm="bpe")
    return dict.fromkeys(make_encoders(), bert) | {
        "roberta": train_vocabulary(TEXT * 20, 290, layout="roberta", algorithm="byte_bpe"),
        "gpt": train_vocabulary(TEXT * 20, 70, layout="gpt", algorithm="bpe"),
        "gpt2": train_vocabulary(TEXT * 20, 285, layout="gpt2", algorithm="byte_bpe"),
    }


def draw_params(run):
    """Return random parameters of a run's model, none of them 0."""
    rng = np.random.default_rng(0)

    def draw_leaf(keys, leaf):
        return rng.normal(keys[-1].key == "scale", 0.3, leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw_leaf, jax.eval_shape(make_initializer(run)))
