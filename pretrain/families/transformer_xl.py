"""Transformer-XL: models/transformer_xl.py, and `TransfoXLLMHeadModel` of transformers 4."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from data.objectives.causal_lm import CausalLm
from models.config.transformer_xl import Clusters, TransformerXLConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import Fixed, Key, Same
from pretrain.families.rules import (
    JOINED,
    KERNEL,
    KERNEL_OUT,
    SAME,
    JoinLayout,
    Rules,
    SplitLayout,
    map_linear,
    map_norm,
)
from pretrain.families.tensor_steps import add, add_prefix, copy, drop_constant, tie

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

TABLES, PROJECTIONS = "transformer.word_emb.emb_layers", "transformer.word_emb.emb_projs"
BIASES = (("content_bias", "r_w_bias"), ("position_bias", "r_r_bias"))
FREQUENCIES = "transformer.pos_emb.inv_freq"  # of the sinusoids, which their model saves


def map_layer(config: TransformerXLConfig) -> Rules:
    """Return the rules of a layer, with queries, keys and values in one matrix without a bias."""
    ours, theirs = "decoder/layers", "transformer.layers.{i}"
    attention, their_attention = f"{ours}/attention", f"{theirs}.dec_attn"
    fused = tuple(f"{attention}/{part}/kernel" for part in ("query", "key", "value"))
    biases = tuple(
        (f"{attention}/{name}", f"{their_attention}.{letters}", SAME) for name, letters in BIASES
    )
    return (
        (fused, f"{their_attention}.qkv_net.weight", JoinLayout(KERNEL)),
        (f"{attention}/position/kernel", f"{their_attention}.r_net.weight", KERNEL),
        (f"{attention}/out/kernel", f"{their_attention}.o_net.weight", KERNEL_OUT),
        *(biases if config.untie_r else ()),
        *map_norm(f"{ours}/attention_norm", f"{their_attention}.layer_norm"),
        *map_linear(f"{ours}/mlp/up", f"{theirs}.pos_ff.CoreNet.0"),
        *map_linear(f"{ours}/mlp/down", f"{theirs}.pos_ff.CoreNet.3"),
        *map_norm(f"{ours}/mlp_norm", f"{theirs}.pos_ff.layer_norm"),
    )


def map_tables(config: TransformerXLConfig) -> Rules:
    """Return the rules of the embeddings and of the adaptive softmax."""
    clusters, head = config.clusters, "embeddings/lm_head"
    cluster_rules = (
        ()
        if clusters is None
        else (
            (f"{head}/clusters/kernel", "crit.cluster_weight", KERNEL),
            (f"{head}/clusters/bias", "crit.cluster_bias", JOINED),
        )
    )
    if clusters is None or clusters.divisor == 1:
        return (
            ("embeddings/token_embedding/embedding", f"{TABLES}.0.weight", SAME),
            (f"{head}/bias", "crit.out_layers.0.bias", SAME),
            *cluster_rules,
        )
    edges = (0, *clusters.cutoffs, config.vocab)
    sizes = tuple(high - low for low, high in itertools.pairwise(edges))
    names = tuple(f"crit.out_layers.{i}.bias" for i in range(len(sizes)))
    return (
        *(
            (f"embeddings/cluster_{i}/token_embedding/embedding", f"{TABLES}.{i}.weight", SAME)
            for i in range(len(sizes))
        ),
        *(
            (f"embeddings/cluster_{i}/embedding_projection/kernel", f"{PROJECTIONS}.{i}", KERNEL)
            for i in range(len(sizes))
        ),
        (f"{head}/bias", names, SplitLayout(SAME, sizes)),
        (f"{head}/projection/kernel", "crit.out_projs.0", SAME),
        *cluster_rules,
    )


def make_rules(config: TransformerXLConfig) -> Rules:
    """Return the rules of a model, which depend on its clusters and on its biases."""
    shared = tuple((name, f"transformer.{letters}", SAME) for name, letters in BIASES)
    return (*map_tables(config), *map_layer(config), *(() if config.untie_r else shared))


def list_shared_biases(config: TransformerXLConfig) -> dict[str, str]:
    """Return {name: original} of u and v in each layer where all layers share them."""
    if config.untie_r:
        return {}
    return {
        f"transformer.layers.{i}.dec_attn.{letters}": f"transformer.{letters}"
        for i in range(config.depth)
        for _, letters in BIASES
    }


def make_frequencies(config: TransformerXLConfig) -> np.ndarray:
    """Return the frequencies of the sinusoids."""
    exponents = np.arange(0, config.width, 2) / config.width
    return (10_000.0**-exponents).astype(np.float32)


def list_copies(config: TransformerXLConfig) -> dict[str, str]:
    """Return {name: original} of the tables and projections that the output shares."""
    num_tables = len(config.clusters.cutoffs) + 1 if config.clusters else 1
    if config.clusters is None or config.clusters.divisor == 1:
        return {"crit.out_layers.0.weight": f"{TABLES}.0.weight"}
    return {f"crit.out_layers.{i}.weight": f"{TABLES}.{i}.weight" for i in range(num_tables)} | {
        f"crit.out_projs.{i}": f"{PROJECTIONS}.{i}" for i in range(1, num_tables)
    }


KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 267_735, ("n_token",)),
    Key("width", "d_model", 1_024, ("hidden_size",)),
    Key("depth", "n_layer", 18, ("num_hidden_layers",)),
    Key("num_heads", "n_head", 16, ("num_attention_heads",)),
    Key("head_width", "d_head", 64),
    Key("mlp", "d_inner", 4_096),
    Key("memory", "mem_len", 1_600),
    Key("same_length", "same_length", True),
    Key("untie_r", "untie_r", True),
    Key("dropout", "dropout", 0.1),
    Key("attention_dropout", "dropatt", 0.0),
    Key("epsilon", "layer_norm_epsilon", 1e-5),
    Fixed("adaptive", True),
    Fixed("attn_type", 0),
    Fixed("pre_lnorm", False),
    Fixed("proj_share_all_but_first", True),
    Fixed("sample_softmax", -1),
    Fixed("tie_word_embeddings", True),
    Same("d_embed", "d_model"),
)


def describe_settings(config: TransformerXLConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    clusters = config.clusters
    return {
        "clamp_len": -1 if config.clamp_len is None else config.clamp_len,
        "cutoffs": list(clusters.cutoffs) if clusters else [],
        "div_val": clusters.divisor if clusters else 1,
        "eos_token_id": vocabulary.eos,
        "init_std": 0.02,
        "proj_init_std": 0.01,
    }


def read_settings(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return our fields with the clusters and the longest distance.

    Raises:
      ValueError: a key has a value of another type.
    """
    cutoffs, divisor = theirs.get("cutoffs", [20_000, 40_000, 200_000]), theirs.get("div_val", 4)
    clamp_len = theirs.get("clamp_len", 1_000)
    if type(cutoffs) is not list or any(type(cutoff) is not int for cutoff in cutoffs):
        raise ValueError(f"cutoffs is {cutoffs!r:.80}; expected a list of int")
    for key, value in {"div_val": divisor, "clamp_len": clamp_len}.items():
        if type(value) is not int:
            raise ValueError(f"{key} is {value!r:.80}; expected int")
    if not cutoffs and divisor != 1:
        raise ValueError(f"div_val is {divisor} without cutoffs; it must be 1")
    clusters = Clusters(tuple(cutoffs), divisor) if cutoffs else None
    return ours | {"clusters": clusters, "clamp_len": clamp_len if clamp_len > 0 else None}


FAMILY = Family(
    name="transformer_xl",
    config=TransformerXLConfig,
    objectives=(CausalLm,),
    make_import_objective=lambda config: CausalLm(length=config.memory, order="lanes"),
    predictor="text_generation:ContinuationWriter",
    title="Transformer-XL",
    task="text-generation",
    token_roles=("eos",),
    template="none",
    describe_card_rows=lambda config: [("memory", f"{config.memory} tokens of earlier segments")],
    hugging_face=HuggingFaceMap(
        model_type="transfo-xl",
        architecture="TransfoXLLMHeadModel",
        rules=make_rules,
        stacks={"decoder": "depth"},
        body=("transformer.", "crit."),
        before_import=(
            add_prefix("transformer."),
            tie(list_shared_biases),
            tie(list_copies),
            drop_constant(FREQUENCIES, make_frequencies),
        ),
        after_export=(copy(list_shared_biases), add(FREQUENCIES, make_frequencies)),
        keys=KEYS,
        settings=describe_settings,
        read=read_settings,
    ),
)
