"""NeoBERT: models/neobert.py, and `NeoBERTLMHead` of the authors' own code.

Hugging Face transformers has no such model: it opens a folder with the code that the authors
release on the Hub, whose names are below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.objectives.masked_lm import MaskedLm
from models.config.neobert import NeoBertConfig
from pretrain.families import bert
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import Constant, Fixed, Key
from pretrain.families.rules import (
    KERNEL,
    KERNEL_OUT,
    SAME,
    JoinLayout,
    Layout,
    map_linear,
    map_scores,
)
from pretrain.families.tensor_steps import add_prefix

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

CODE = "chandar-lab/NeoBERT"
CLASSES = {  # {Auto class of transformers: theirs, in CODE's model.py}
    "AutoConfig": "NeoBERTConfig",
    "AutoModel": "NeoBERT",
    "AutoModelForMaskedLM": "NeoBERTLMHead",
    "AutoModelForSequenceClassification": "NeoBERTForSequenceClassification",
}
OURS, THEIRS = "encoder/layers", "model.transformer_encoder.{i}"
QKV = tuple(f"{OURS}/attention/{part}/kernel" for part in ("query", "key", "value"))


def alternate_halves(kernel_DHK: np.ndarray) -> np.ndarray:
    """Return a kernel whose dimensions i and i + K/2 of a head become 2i and 2i + 1."""
    D, H, K = kernel_DHK.shape
    return kernel_DHK.reshape(D, H, 2, K // 2).swapaxes(2, 3).reshape(D, H, K)


def join_halves(kernel_DHK: np.ndarray) -> np.ndarray:
    """Return a kernel whose dimensions 2i and 2i + 1 of a head become i and i + K/2."""
    D, H, K = kernel_DHK.shape
    return kernel_DHK.reshape(D, H, K // 2, 2).swapaxes(2, 3).reshape(D, H, K)


# The kernel of queries or keys. Rotary positions turn pairs of dimensions: ours i and i + K/2,
# theirs 2i and 2i + 1, of which scores are the same sums in another order.
TURNED = Layout(
    theirs=lambda a: KERNEL.theirs(alternate_halves(a)),
    ours=lambda a, shape: join_halves(KERNEL.ours(a, shape)),
)
RULES = (
    ("token_embedding/embedding", "model.encoder.weight", SAME),
    (QKV, f"{THEIRS}.qkv.weight", JoinLayout((TURNED, TURNED, KERNEL), interleave=-2)),
    (f"{OURS}/attention/out/kernel", f"{THEIRS}.wo.weight", KERNEL_OUT),
    (f"{OURS}/attention_norm/scale", f"{THEIRS}.attention_norm.weight", SAME),
    (
        (f"{OURS}/mlp/gate/kernel", f"{OURS}/mlp/up/kernel"),
        f"{THEIRS}.ffn.w12.weight",
        JoinLayout(KERNEL),
    ),
    *map_scores(f"{OURS}/mlp/down", f"{THEIRS}.ffn.w3"),
    (f"{OURS}/mlp_norm/scale", f"{THEIRS}.ffn_norm.weight", SAME),
    ("norm/scale", "model.layer_norm.weight", SAME),
    *map_linear("lm_head", "decoder"),
)
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 30522),
    Key("length", "max_length", 1024),
    Key("width", "hidden_size", 768),
    Key("depth", "num_hidden_layers", 28),
    Key("num_heads", "num_attention_heads", 12),
    Key("mlp", "intermediate_size", 2048),  # as `read_hidden_width` has it
    Key("epsilon", "norm_eps", 1e-6),
    Constant("rotary_base", 10_000.0),
    Constant("dropout", 0.0),
    Fixed("hidden_act", "SwiGLU", also=("swiglu",)),
    Fixed("rope", True),
    Fixed("rms_norm", True),
    Fixed("ngpt", False),
    Fixed("tie_word_embeddings", False),
)


def compute_hidden_width(intermediate: int) -> int:
    """Return the hidden width that their `intermediate_size` means.

    It is two thirds, so that three matrices have the parameters of two, rounded up to a multiple
    of 8.
    """
    return -(-int(2 * intermediate / 3) // 8) * 8


def describe_settings(config: NeoBertConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json.

    Raises:
      ValueError: the hidden width is one that no `intermediate_size` means.
    """
    intermediate = -(-3 * config.mlp // 2)
    if compute_hidden_width(intermediate) != config.mlp:
        raise ValueError(
            f"a NeoBERT with model.mlp={config.mlp} cannot be exported: its code rounds the width "
            "to a multiple of 8"
        )
    return {
        "auto_map": {auto: f"{CODE}--model.{theirs}" for auto, theirs in CLASSES.items()},
        "intermediate_size": intermediate,
        "embedding_init_range": 0.02,
        "decoder_init_range": 0.02,
        "pad_token_id": vocabulary.pad,
    }


def read_hidden_width(theirs: dict[str, Any]) -> dict[str, Any]:
    """Return their configuration with the hidden width itself as `intermediate_size`.

    Raises:
      ValueError: it is no whole number.
    """
    intermediate = theirs.get("intermediate_size", 3072)
    if type(intermediate) is not int:
        raise ValueError(f"intermediate_size is {intermediate!r:.80}; expected int")
    return theirs | {"intermediate_size": compute_hidden_width(intermediate)}


FAMILY = Family(
    name="neobert",
    config=NeoBertConfig,
    extends=("bert",),
    objectives=(MaskedLm,),
    make_import_objective=bert.import_masked_lm,
    predictor="fill_mask:MaskFiller",
    title="NeoBERT encoder",
    task="fill-mask",
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_sep",
    hugging_face=HuggingFaceMap(
        model_type="neobert",
        architecture="NeoBERTLMHead",
        rules=RULES,
        stacks={"encoder": "depth"},
        body=("model.",),
        heads=("decoder.",),
        buffers=("model.freqs_cis", "model.freqs_cos", "model.freqs_sin"),
        before_import=(add_prefix("model.", ("encoder.", "transformer_encoder.", "layer_norm.")),),
        keys=KEYS,
        settings=describe_settings,
        prepare=read_hidden_width,
        head_map=HeadMap(
            prefix="NeoBERT",
            classes={
                "ForTokenClassification": None,
                "ForQuestionAnswering": None,
                "ForMultipleChoice": None,
                "Model": None,
            },
            rules={
                "ForSequenceClassification": (
                    *map_linear("classifier/transform", "dense"),
                    *map_linear("classifier/scores/out", "classifier"),
                )
            },
            dropout=("classifier_dropout", 0.1),
        ),
        code=CODE,
    ),
)
