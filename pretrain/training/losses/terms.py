"""The sums of each objective's loss.

B batch   T targets   P predictions   D width   C classes   L length
"""

from functools import partial

import jax.numpy as jnp

from pretrain.training.cross_entropy import (
    binary_cross_entropy,
    cross_entropy,
)
from pretrain.training.losses.base import Loss


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
