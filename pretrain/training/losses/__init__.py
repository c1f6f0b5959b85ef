"""What each objective's batch is worth: sums over targets, and the weights that they are divided by, once, at the end.

B batch   L row length   P masked positions of a row   T target length   D width   V vocab   C classes, tags or choices

A mean of means over micro-batches or devices would weigh rows by how few targets they have. So nothing here divides: sums add up
over micro-batches, devices and evaluation batches alike, in float32.
"""

from functools import partial

from models.electra import Fill
from pretrain.training import span_loss
from pretrain.training.losses.base import Loss
from pretrain.training.losses.terms import (
    classification,
    distillation,
    masked_lm,
    multiple_choice,
    regression,
    replaced_token,
    sentence_order,
    sentence_pair,
    tagging,
    told,
    told_at,
    words,
    written,
)

LOSSES = {
    "masked_lm": Loss(
        arguments=lambda batch: (
            batch["tokens"],
            batch["valid"],
            None,
            batch["positions"],
            batch.get("pieces"),
        ),
        score=masked_lm,
        weights={"masked_lm": "weights", "masked_lm_accuracy": "weights"},
        terms=("masked_lm",),
        tokens=("valid",),
    ),
    "distillation": Loss(
        arguments=lambda batch: (
            batch["tokens"],
            batch["valid"],
            None,
            batch["positions"],
            batch.get("pieces"),
        ),
        score=distillation,
        weights={
            "masked_lm": "weights",
            "masked_lm_accuracy": "weights",
            "distillation": "weights",
            "states": "valid",
        },
        terms=("masked_lm", "distillation", "states"),
        tokens=("valid",),
        factors={
            "masked_lm": 2.0,
            "distillation": 5.0,
        },  # as the authors' code was run; the paper names none
    ),
    "sentence_pair": Loss(
        arguments=lambda batch: (
            batch["tokens"],
            batch["valid"],
            batch["segments"],
            batch["positions"],
        ),
        score=sentence_pair,
        weights={
            "masked_lm": "weights",
            "masked_lm_accuracy": "weights",
            "next_sentence": "next_weights",
            "next_sentence_accuracy": "next_weights",
        },
        terms=("masked_lm", "next_sentence"),
        tokens=("valid",),
    ),
    "sentence_order": Loss(
        arguments=lambda batch: (
            batch["tokens"],
            batch["valid"],
            batch["segments"],
            batch["positions"],
        ),
        score=sentence_order,
        weights={
            "masked_lm": "weights",
            "masked_lm_accuracy": "weights",
            "sentence_order": "order_weights",
            "sentence_order_accuracy": "order_weights",
        },
        terms=("masked_lm", "sentence_order"),
        tokens=("valid",),
    ),
    "replaced_token": Loss(
        arguments=lambda batch: (
            *(batch["tokens"], batch["valid"], None, batch["positions"]),
            Fill(batch["targets"], batch["weights"] > 0, batch["chances"]),
            batch.get("pieces"),
        ),
        score=replaced_token,
        weights={
            "masked_lm": "weights",
            "masked_lm_accuracy": "weights",
            "replaced_token": "token_weights",
            "replaced_token_accuracy": "token_weights",
            "replaced_token_share": "token_weights",
        },
        terms=("masked_lm", "replaced_token"),
        tokens=("valid",),
        factors={"replaced_token": 50.0},  # the paper's lambda (appendix A)
    ),
    "span_corruption": written(
        "span_corruption"
    ),  # the dropped spans, each behind its sentinel (Raffel et al. 2019, section 3.1.4)
    "denoising": written("denoising"),  # the text as it was (Lewis et al. 2020, section 2.2)
    "prefix_lm": written("prefix_lm"),  # the rest of the text (Raffel et al. 2019, section 3.3.1)
    "text2text": written("text2text"),  # the answer (Raffel et al. 2019, section 2.4)
    "seq2seq": written(
        "seq2seq", "inputs_segments", "targets_segments"
    ),  # each target, given its source (Vaswani et al. 2017, section 5)
    "classification": Loss(
        arguments=lambda batch: (batch["tokens"], batch["valid"], batch["segments"]),
        score=classification,
        weights={"classification": "weights", "classification_accuracy": "row_weights"},
        terms=("classification",),
        tokens=("valid",),
        judged=lambda states_BC, batch: told(
            states_BC.argmax(-1), batch["labels"], batch["row_weights"]
        ),
    ),
    "regression": Loss(
        arguments=lambda batch: (batch["tokens"], batch["valid"], batch["segments"]),
        score=regression,
        weights={"regression": "weights"},
        terms=("regression",),
        tokens=("valid",),
        judged=lambda states_BC, batch: told(states_BC[:, 0], batch["scores"], batch["weights"]),
    ),
    "tagging": Loss(
        arguments=lambda batch: (batch["tokens"], batch["valid"]),
        score=tagging,
        weights={"tagging": "weights", "tagging_accuracy": "word_weights"},
        terms=("tagging",),
        tokens=("valid",),
        judged=lambda states_BLC, batch: told_at(
            states_BLC.argmax(-1), batch["word_weights"], batch["row_weights"]
        ),
    ),
    "multiple_choice": Loss(
        arguments=lambda batch: (batch["tokens"], batch["valid"], batch["segments"]),
        score=multiple_choice,
        weights={"multiple_choice": "weights", "multiple_choice_accuracy": "weights"},
        terms=("multiple_choice",),
        tokens=("valid",),
        judged=lambda states_BC, batch: told(
            states_BC.argmax(-1), batch["labels"], batch["weights"]
        ),
    ),
    "answer_span": Loss(
        arguments=lambda batch: (batch["tokens"], batch["valid"], batch["segments"]),
        score=span_loss.answer_span,
        weights={"answer_span": "weights", "answer_span_accuracy": "weights"},
        terms=("answer_span",),
        tokens=("valid",),
        judged=span_loss.judged,
    ),
    "causal_lm": Loss(
        arguments=lambda batch: (batch["tokens"],),
        score=partial(
            words, "causal_lm"
        ),  # the next word (Radford et al. 2018, section 3.1, equation 1)
        weights={"causal_lm": "weights", "causal_lm_accuracy": "weights"},
        terms=("causal_lm",),
        tokens=("weights",),
    ),
}
