"""What each objective's batch is worth: sums over targets, and the weights that they are divided by, once, at the end.

B batch   L row length   P masked positions of a row   T target length   D width   V vocab   C classes, tags or choices

A mean of means over micro-batches or devices would weigh rows by how few targets they have. So nothing here divides: sums add up
over micro-batches, devices and evaluation batches alike, in float32.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp

from models.electra import Fill
from pretrain.distributed.precision import cast_params
from pretrain.training import span_loss
from pretrain.training.cross_entropy import (
    SCORES,
    binary_cross_entropy,
    cross_entropy,
    vocabulary_loss,
)


class Loss(NamedTuple):
    """The training side of one objective.

    arguments: batch -> the positional arguments of the model
    score:     (what the model's `states` returned, scorer, batch) -> {name: float32 sum over the batch's targets}, where
               scorer(y_BTD, targets_BT, weights_BT) is the `cross_entropy` of the model's `logits`
    weights:   the name of a sum -> the batch key whose sum it is divided by
    terms:     the names whose means add up to the loss; the others are metrics
    tokens:    the batch keys whose sum is the number of tokens that the model reads and writes, padding left out
    factors:   the name of a term -> what its mean is multiplied by, where that is not 1
    judged:    of objectives whose targets are labels: (states, batch) -> float32 [B, K] of each row: what is predicted, what is right (K = 3;
               `tagging` and `answer_span` differ), and last 1 if the row counts. Scores that are no sums, such as a correlation, are computed of all of them
    """

    arguments: Callable
    score: Callable
    weights: dict[str, str]
    terms: tuple[str, ...]
    tokens: tuple[str, ...]
    factors: Mapping[str, float] = MappingProxyType({})
    judged: Callable | None = None

    def value(self, means):
        """The loss, of {name: mean}."""
        return sum(self.factors.get(name, 1.0) * means[name] for name in self.terms)

    def totals(self, batch):
        """{name: the weight of the whole batch}, float32."""
        sums = {
            key: batch[key].sum(dtype=jnp.float32) for key in dict.fromkeys(self.weights.values())
        }  # in one order in every process
        return {name: sums[key] for name, key in self.weights.items()}

    def sums(self, model, params, batch, **how):
        """{name: float32 sum}; how: as in `scored`."""
        return self.scored(model, params, batch, **how)[0]

    def scored(
        self,
        model,
        params,
        batch,
        *,
        compute="float32",
        gather=lambda params: params,
        scores=SCORES,
        smoothing=0.0,
        **kw,
    ):
        """({name: float32 sum}, what `judged` gives or None), computed in the type `compute`; kw: what the model takes besides (train, rngs).

        scores: how many scores of words a row may have at once. gather: applied to the parameters that make them, where a trainer that
        spreads parameters brings them together: once, not for each part of the targets. smoothing: of words, as `cross_entropy` says.
        """
        lean = cast_params(params, compute)
        states = model.apply({"params": lean}, *self.arguments(batch), method="states", **kw)
        logits = partial(model.apply, {"params": gather(lean)}, method="logits")
        sums = self.score(
            states, partial(vocabulary_loss, logits, scores=scores, smoothing=smoothing), batch
        )
        return sums, self.judged and self.judged(states, batch)


def words(name, y_BTD, scorer, batch):
    """The two sums of an objective whose targets are words."""
    nats, hits = scorer(y_BTD, batch["targets"], batch["weights"])
    return {name: nats, f"{name}_accuracy": hits}


def masked_lm(states, scorer, batch):
    """The masked words (Devlin et al. 2018, section 3.1, task 1)."""
    x_BPD, _ = states
    return words("masked_lm", x_BPD, scorer, batch)


def sentence_pair(states, scorer, batch):
    """The masked words, and whether B follows A (task 2)."""
    _, next_BC = states
    nats, hits = cross_entropy(next_BC, batch["next_sentence"], batch["next_weights"])
    return masked_lm(states, scorer, batch) | {
        "next_sentence": nats,
        "next_sentence_accuracy": hits,
    }


def sentence_order(states, scorer, batch):
    """The masked words, and whether A stands before B (Lan et al. 2020, section 3.1)."""
    _, order_BC = states
    nats, hits = cross_entropy(order_BC, batch["order"], batch["order_weights"])
    return masked_lm(states, scorer, batch) | {
        "sentence_order": nats,
        "sentence_order_accuracy": hits,
    }


def distillation(states, scorer, batch):
    """The masked words, what the teacher thinks of them, and its states (Sanh et al. 2019, section 3)."""
    x_BPD, lesson = states
    towards = {
        "distillation": (lesson.words_BP * batch["weights"]).sum(),
        "states": jnp.where(batch["valid"], lesson.states_BL, 0.0).sum(),
    }
    return words("masked_lm", x_BPD, scorer, batch) | towards


def replaced_token(states, scorer, batch):
    """The masked words, told by the generator, and which words are its own, told by the discriminator (Clark et al. 2020, section 2)."""
    x_BPD, judged_BL, replaced_BL = states
    nats, hits = binary_cross_entropy(judged_BL, replaced_BL, batch["token_weights"])
    share = jnp.where(
        replaced_BL, batch["token_weights"], 0.0
    ).sum()  # what is wrong where every word is taken for the text's
    return words("masked_lm", x_BPD, scorer, batch) | {
        "replaced_token": nats,
        "replaced_token_accuracy": hits,
        "replaced_token_share": share,
    }


def classification(states_BC, scorer, batch):
    """The class of a row (Devlin et al. 2018, section 4.1)."""
    nats, _ = cross_entropy(states_BC, batch["labels"], batch["weights"])
    _, hits = cross_entropy(states_BC, batch["labels"], batch["row_weights"])
    return {"classification": nats, "classification_accuracy": hits}


def tagging(states_BLC, scorer, batch):
    """The tag of a word, at its first piece (Devlin et al. 2018, section 5.3)."""
    nats, _ = cross_entropy(states_BLC, batch["labels"], batch["weights"])
    _, hits = cross_entropy(states_BLC, batch["labels"], batch["word_weights"])
    return {"tagging": nats, "tagging_accuracy": hits}


def multiple_choice(states_BC, scorer, batch):
    """The right one of a question's choices (Devlin et al. 2018, section 4.4)."""
    nats, hits = cross_entropy(states_BC, batch["labels"], batch["weights"])
    return {"multiple_choice": nats, "multiple_choice_accuracy": hits}


def regression(states_BC, scorer, batch):
    """The square of what a row's score is missed by."""
    return {"regression": (jnp.square(states_BC[:, 0] - batch["scores"]) * batch["weights"]).sum()}


def told(predicted_B, right_B, weights_B):
    """float32 [B, 3], as `Loss.judged` says."""
    return jnp.stack(
        [predicted_B.astype(jnp.float32), right_B.astype(jnp.float32), weights_B], axis=1
    )


def told_at(predicted_BL, weights_BL, weights_B):
    """float32 [B, L + 1], as `Loss.judged` says: what is predicted at each position, -1 where nothing is asked. What is right, the store knows."""
    at_BL = jnp.where(weights_BL > 0, predicted_BL, -1).astype(jnp.float32)
    return jnp.concatenate([at_BL, weights_B[:, None]], axis=1)


def written(name, *besides):
    """The Loss of an encoder that reads `inputs` and a decoder that writes `targets`; besides: what else of the batch the model is given."""
    return Loss(
        arguments=lambda batch: tuple(
            batch[key] for key in ("inputs", "inputs_valid", "targets", *besides)
        ),
        score=partial(words, name),
        weights={name: "weights", f"{name}_accuracy": "weights"},
        terms=(name,),
        tokens=("inputs_valid", "weights"),
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
