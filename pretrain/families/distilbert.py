"""DistilBERT: models/distilbert.py without its teacher, and transformers'
`DistilBertForMaskedLM`.
"""

from collections.abc import Iterable
from typing import Any

from data.objectives.distillation import Distillation
from data.objectives.masked_lm import MaskedLm
from models.config.bert import BertConfig
from models.config.distilbert import DistilBertConfig
from pretrain.families import bert
from pretrain.families.family_record import DistillationRecipe, Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import EXACT_GELU, Constant, Fixed, Key
from pretrain.families.rules import map_embeddings, map_layer, map_linear
from pretrain.families.tensor_steps import add_prefix, tie

RULES = (
    *map_embeddings(
        "student/embeddings",
        "distilbert.embeddings",
        token_embedding="word_embeddings",
        position_embedding="position_embeddings",
    ),
    *map_layer(
        "student/encoder/layers",
        "distilbert.transformer.layer.{i}",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        out="attention.out_lin",
        attention_norm="sa_layer_norm",
        up="ffn.lin1",
        down="ffn.lin2",
        mlp_norm="output_layer_norm",
    ),
    *bert.map_mlm_head(
        "student/mlm_head", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
    ),
)
HEADS = ("vocab_transform.", "vocab_layer_norm.", "vocab_projector.")
COPIES = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}

KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 30522),
    Key("length", "max_position_embeddings", 512),
    Key("width", "dim", 768, ("hidden_size",)),
    Key("depth", "n_layers", 6, ("num_hidden_layers",)),
    Key("num_heads", "n_heads", 12, ("num_attention_heads",)),
    Key("mlp", "hidden_dim", 3072),
    Key("dropout", "dropout", 0.1),
    Key("attention_dropout", "attention_dropout", 0.1),
    Fixed("activation", "gelu", also=EXACT_GELU),
    Fixed("sinusoidal_pos_embds", False),
    Fixed("tie_word_embeddings", True),
    Constant("epsilon", 1e-12),
)


def fit_student(model: DistilBertConfig, teacher: BertConfig) -> DistilBertConfig:
    """Return the configuration of a student, which names its teacher's sizes itself.

    Raises:
      ValueError: other sizes than the teacher's, or more layers.
    """
    names = ("vocab", "length", "segments", "width", "num_heads", "mlp", "epsilon")
    shared = {name: getattr(teacher, name) for name in names} | {"teacher_depth": teacher.depth}
    if remedies := [
        f"model.{name}={value}" for name, value in shared.items() if getattr(model, name) != value
    ]:
        raise ValueError(
            f"the student's model differs from its teacher's; set {' '.join(remedies)}"
        )
    if model.depth > teacher.depth:
        raise ValueError(
            f"model.depth={model.depth}: the student has more layers than its teacher, which has "
            f"{teacher.depth}"
        )
    return model


def init_student(model: DistilBertConfig, teacher: BertConfig, params: Any) -> dict[str, Any]:
    """Return the initial parameters of a student, together with its teacher's.

    The student gets every n-th layer of the teacher, starting with the first, and the teacher's
    embeddings and head.
    It has no token types: the embedding of the first type, which the teacher adds to every token of
    a single text, is added to the position embeddings.
    """
    from models.layers.layer_layout import stack_layers, unstack_layers

    embeddings = dict(params["bert"]["embeddings"])
    layers = unstack_layers(params["bert"]["encoder"])

    def select_layers(numbers: Iterable[int]) -> dict[str, Any]:
        selected = [layers[f"layer_{i}"] for i in numbers]
        if model.scan:
            return {"layers": stack_layers(selected)}
        return {f"layer_{n}": layer for n, layer in enumerate(selected)}

    token_types_TD = embeddings.pop("token_type_embedding")["embedding"]
    student_embeddings = embeddings | {
        "position_embedding": {
            "embedding": embeddings["position_embedding"]["embedding"] + token_types_TD[0]
        }
    }
    student_layers = [i * teacher.depth // model.depth for i in range(model.depth)]
    return {
        "student": {
            "embeddings": student_embeddings,
            "encoder": select_layers(student_layers),
            "mlm_head": params["mlm_head"],
        },
        "teacher": {
            "embeddings": params["bert"]["embeddings"],
            "encoder": select_layers(range(teacher.depth)),
            "mlm_head": params["mlm_head"],
        },
    }


CLASSIFIER_RULES = (
    *map_linear("classifier/transform", "pre_classifier"),
    *map_linear("classifier/scores/out", "classifier"),
)
FAMILY = Family(
    name="distilbert",
    config=DistilBertConfig,
    extends=("bert",),
    objectives=(Distillation, MaskedLm),
    make_import_objective=bert.import_masked_lm,
    predictor="fill_mask:MaskFiller",
    title="DistilBERT encoder",
    task="fill-mask",
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_sep",
    distillation=DistillationRecipe(
        teachers=(BertConfig,), fit_student=fit_student, init_params=init_student
    ),
    hugging_face=HuggingFaceMap(
        model_type="distilbert",
        architecture="DistilBertForMaskedLM",
        rules=RULES,
        stacks={"student/encoder": "depth"},
        body=("distilbert.",),
        heads=HEADS,
        before_import=(add_prefix("distilbert.", ("embeddings.", "transformer.")), tie(COPIES)),
        buffers=("distilbert.embeddings.position_ids",),
        keys=KEYS,
        read=lambda theirs, ours: ours | {"teacher_depth": None},
        head_map=HeadMap(
            prefix="DistilBert",
            rules={"ForSequenceClassification": CLASSIFIER_RULES},
            dropout=("seq_classif_dropout", 0.2),
            own_dropout={"ForQuestionAnswering": ("qa_dropout", 0.1)},
            fixed_dropout={"ForTokenClassification": True},
        ),
    ),
)
