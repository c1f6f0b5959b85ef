"""evaluate --task: how often a model finds the right answer likeliest, or would write it (Brown et al. 2020, section 2.4).

B rows   L row length   M input length   T scored tokens   D width   V vocabulary
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from data.mixed import split_objective
from models import build
from pretrain.convert import name_of, tokenizer
from pretrain.distributed.model_hooks import make_model_hooks
from pretrain.distributed.precision import cast_params
from pretrain.distributed.sharding import batch_sharding, gathered, replicated
from pretrain.inference import batching
from pretrain.inference.in_context_tasks import examples_for, joined, prompt
from pretrain.inference.modes import add_mode, list_modes


def evaluate_task(
    trained,
    mesh,
    questions,
    *,
    pool,
    shots=0,
    delimiter="\n\n",
    answer_context=None,
    seed=0,
    batch_size=32,
    attention=None,
):
    """({name: number}, [{scores, tokens, chosen, right}] of each question).

    pool: the questions of which `shots` stand in front of each, `delimiter` between them, fewer where a row would be too long for the model.
    Choices are compared by log p and by log p a token; with `answer_context` also by log p minus what it is behind that text alone. An open
    question is right where each of its tokens is the likeliest; the perplexity is that of whole answers.
    """
    scorer = make_scorer(trained, mesh, [] if attention is None else attention)
    rows, shortened, cut = [], 0, 0
    for number, question in enumerate(questions):
        examples = given = examples_for(number, question, pool, shots, seed)
        mine, too_long = scorer.rows(
            question.place, prompt(question, examples, delimiter), question.choices
        )
        while too_long and examples:
            examples = examples[1:]
            mine, too_long = scorer.rows(
                question.place, prompt(question, examples, delimiter), question.choices
            )
        rows, shortened, cut = rows + [mine], shortened + (examples is not given), cut + too_long
    scores = _dealt(rows, scorer, batch_size)
    prior = None
    if answer_context is not None and not questions[0].open:
        prior = _dealt(
            [scorer.rows(one.place, answer_context, one.choices)[0] for one in questions],
            scorer,
            batch_size,
        )
    found = [_found(question, mine) for question, mine in zip(questions, scores)]
    numbers: dict[str, Any] = {"questions": len(questions), "shots": shots} | _summarize(
        questions, found, scores, prior
    )
    numbers |= {"fewer_examples": shortened, "cut": cut}
    return {
        name: value if isinstance(value, int) else float(value) for name, value in numbers.items()
    }, found


def _summarize(questions, found, scores, prior):
    """Return {name: number} of accuracies with their standard error, and the perplexity of open questions."""
    numbers: dict[str, Any] = {}
    if questions[0].open:
        accuracy = np.mean([one["right"] for one in found])
        numbers |= {
            "accuracy": accuracy,
            "perplexity": math.exp(min(-np.mean([one["scores"][0] for one in found]), 700.0)),
        }
    else:
        ways: dict[str, Callable] = {
            "accuracy": lambda mine, _: [p for p, _, _ in mine],
            "accuracy_per_token": lambda mine, _: [p / count for p, _, count in mine],
        }
        if prior:
            ways["accuracy_over_prior"] = lambda mine, alone: [
                p - q for (p, _, _), (q, _, _) in zip(mine, alone)
            ]
        for name, way in ways.items():
            best = [
                int(np.argmax(way(mine, alone))) for mine, alone in zip(scores, prior or scores)
            ]
            numbers[name] = np.mean([one.answer == chosen for one, chosen in zip(questions, best)])
        numbers["chance"] = np.mean([1 / len(question.choices) for question in questions])
    numbers["standard_error"] = math.sqrt(
        numbers["accuracy"] * (1 - numbers["accuracy"]) / len(questions)
    )
    return numbers


def _dealt(rows, scorer, batch_size):
    """The scores of rows [question][choice], as lists of the same form."""
    flat = iter(scorer([row for mine in rows for row in mine], batch_size))
    return [[next(flat) for _ in mine] for mine in rows]


def _found(question, mine):
    scores, tokens = [p for p, _, _ in mine], [count for _, _, count in mine]
    if question.open:
        return {"scores": scores, "tokens": tokens, "right": mine[0][1]}
    chosen = int(np.argmax(scores))
    return {
        "scores": scores,
        "tokens": tokens,
        "chosen": chosen,
        "right": chosen == question.answer,
    }


def make_scorer(trained, mesh, attention):
    """The `Scorer` of a trained model; attention: a list that is told which kernels were chosen.

    Raises ValueError for a model that does not write.
    """
    names = [one.name for one in split_objective(trained.run.data.objective).values()]
    for name in names:
        if name in SCORERS:
            return SCORERS[name](trained, mesh, make_model_hooks(mesh, attention))
    raise ValueError(
        f"--task is for models that write ({', '.join(SCORERS)}); this {type(trained.run.model).__name__} was trained by {', '.join(names)}"
    )


class Scorer:
    """What both kinds of model share: rows of one shape at a time through the model, on the run's mesh."""

    # Methods of the subclasses.
    states: Callable
    shape: Callable
    arrays: Callable

    def __init__(self, trained, mesh, how):
        model, compute, whole = (
            build(trained.run.model, **how),
            trained.run.train.compute_dtype,
            gathered(mesh),
        )
        self.mesh, self.params, self.vocabulary = mesh, trained.params, trained.vocabulary
        self.tokenizer = tokenizer.build(trained.vocabulary, name_of(trained.run.model))
        self.longest: Any = getattr(trained.run.model, "length", None)
        self.modes = list_modes(trained.run.data.objective, trained.vocabulary)
        score = partial(_score, model, self.states, compute, whole)
        self.score = jax.jit(score, out_shardings=replicated(mesh))

    def ids(self, texts):
        """Ids of texts, without special tokens around them."""
        return [
            encoding.ids
            for encoding in self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ]

    def __call__(self, rows, batch_size):
        """[(log p, whether each of its tokens is the likeliest, number of tokens)] of rows as `row` makes them."""
        answers: list[Any] = [None] * len(rows)
        for batch in batching.batches([self.shape(row) for row in rows], batch_size):
            arrays = self.arrays([rows[i] for i in batch], *self.shape(rows[batch[0]]))
            nats_B, hits_B = jax.device_get(
                self.score(self.params, *(self._place(array) for array in arrays))
            )
            for index, nats, hits in zip(batch, nats_B.tolist(), hits_B.tolist()):
                count = len(rows[index][-1])
                answers[index] = (-nats, round(hits) == count, count)
        return answers

    def _place(self, array):
        """All processes have all rows; each puts those on its devices that these hold."""
        shards = self.mesh.shape["data"] * self.mesh.shape["fsdp"]
        short = -len(array) % shards
        array = np.pad(array, ((0, short), *((0, 0),) * (array.ndim - 1)))
        return jax.make_array_from_callback(
            array.shape, batch_sharding(self.mesh), lambda index: array[index]
        )


def _score(model, states, compute, whole, params, *arrays):
    """(-log p, number of targets that are the likeliest) of each row, summed over its targets: float32 [B] each."""
    *inputs, targets_BT, weights_BT = arrays
    lean = cast_params(params, compute)
    y_BTD = states(partial(model.apply, {"params": lean}), *inputs, targets_BT)
    logits_BTV = model.apply({"params": whole(lean)}, y_BTD, method="logits").astype(jnp.float32)
    correct_BT = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
    nats_BT = jax.nn.logsumexp(logits_BTV, axis=-1) - correct_BT
    hits_BT = (jnp.argmax(logits_BTV, axis=-1) == targets_BT).astype(jnp.float32)
    return (nats_BT * weights_BT).sum(axis=1), (hits_BT * weights_BT).sum(axis=1)


class Decoder(Scorer):
    """A choice's tokens stand behind the prompt's, in one row; they are scored where the row departs from the prompt alone.

    Text is cut into pieces as a whole. Where the end of the prompt and the beginning of a choice share a piece, that piece is scored, for all choices
    of the question. An empty prompt is the end of the text before it, which GPT (2018) has no token for.
    """

    @staticmethod
    def states(apply, tokens_BL, at_BT, targets_BT):
        x_BLD = apply(tokens_BL, method="states")
        return jnp.take_along_axis(x_BLD, at_BT[..., None], axis=1)

    def rows(self, place, text, choices):
        """(rows, whether the text was cut on the left). A row: (ids read, ids scored). Raises ValueError for a choice that is too long."""
        before, *whole = self.ids([text, *(joined(text, choice) for choice in choices)])
        shared = min(_shared(before, row) for row in whole)
        if shared == 0:
            if self.vocabulary.eos is None:
                raise ValueError(
                    f"{place}: there is nothing before the first token, and the vocabulary has no end of text to begin with"
                )
            whole, shared = [[self.vocabulary.eos, *row] for row in whole], 1
        longest = max(map(len, whole))
        surplus = max(longest - 1 - self.longest, 0)
        if surplus >= shared:
            raise ValueError(
                f"{place}: a choice of {longest - shared} tokens leaves no room for a context (model.length={self.longest})"
            )
        return [(row[surplus:-1], row[shared:]) for row in whole], bool(surplus)

    def shape(self, row):
        read, scored = row
        return min(batching.padded(len(read)), self.longest), batching.power(len(scored))

    def arrays(self, rows, L, T):
        B = batching.power(len(rows))
        tokens_BL, at_BT = np.zeros((B, L), np.int32), np.zeros((B, T), np.int32)
        targets_BT, weights_BT = _targets([scored for _, scored in rows], B, T)
        for b, (read, scored) in enumerate(rows):
            tokens_BL[b, : len(read)] = read
            at_BT[b, : len(scored)] = np.arange(len(read) - len(scored), len(read))
        return tokens_BL, at_BT, targets_BT, weights_BT


class EncoderDecoder(Scorer):
    """The prompt is the input, a choice is the target; its end is scored as well. Both are cut into pieces by themselves."""

    @staticmethod
    def states(apply, inputs_BM, inputs_valid_BM, targets_BT):
        return apply(inputs_BM, inputs_valid_BM, targets_BT, method="states")

    def rows(self, place, text, choices):
        read, *scored = ([*ids, self.vocabulary.eos] for ids in self.ids([text, *choices]))
        read = add_mode(read, self.modes)
        surplus = max(len(read) - (self.longest or len(read)), 0)
        if self.longest and max(map(len, scored)) > self.longest:
            raise ValueError(
                f"{place}: a choice of {max(map(len, scored))} tokens is longer than the model (model.length={self.longest})"
            )
        return [(read[surplus:], row) for row in scored], bool(surplus)

    def shape(self, row):
        read, scored = row
        return min(
            batching.padded(len(read)), self.longest or len(read) * 2 + batching.SHORTEST
        ), batching.power(len(scored))

    def arrays(self, rows, M, T):
        B = batching.power(len(rows))
        inputs_BM, valid_BM = np.full((B, M), self.vocabulary.pad, np.int32), np.zeros((B, M), bool)
        for b, (read, _) in enumerate(rows):
            inputs_BM[b, : len(read)] = read
            valid_BM[b, : len(read)] = True
        valid_BM[len(rows) :, 0] = True
        return inputs_BM, valid_BM, *_targets([scored for _, scored in rows], B, T)


# By the objective that trained the model.
SCORERS = {"causal_lm": Decoder, "prefix_lm": EncoderDecoder, "span_corruption": EncoderDecoder}


def _shared(a, b):
    """How many ids two rows have in common at their beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _targets(rows, B, T):
    targets_BT, weights_BT = np.zeros((B, T), np.int32), np.zeros((B, T), np.float32)
    for b, row in enumerate(rows):
        targets_BT[b, : len(row)] = row
        weights_BT[b, : len(row)] = 1
    return targets_BT, weights_BT
