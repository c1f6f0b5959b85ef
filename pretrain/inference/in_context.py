"""Evaluation on in-context tasks: `evaluate --task` (Brown et al. 2020, section 2.4).

It measures how often a model finds the right answer the likeliest, or would write it.

B rows   L row length   M input length   T scored tokens   D width   V vocabulary
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from data.mixed import split_objective
from models import build
from pretrain.convert import name_of, tokenizer
from pretrain.distributed.model_hooks import make_model_hooks
from pretrain.distributed.precision import cast_params
from pretrain.distributed.sharding import batch_sharding, gathered, replicated
from pretrain.inference import batching
from pretrain.inference.in_context_tasks import Question, examples_for, joined, prompt
from pretrain.inference.modes import add_mode, list_modes
from pretrain.inference.trained import Trained

ScoredRow = tuple[list[int], list[int]]  # (ids that are read, ids that are scored)
# (log probability, whether every token is the likeliest, number of tokens) of a choice
Score = tuple[float, bool, int]


def evaluate_task(
    trained: Trained,
    mesh: Mesh,
    questions: Sequence[Question],
    *,
    pool: Sequence[Question],
    shots: int = 0,
    delimiter: str = "\n\n",
    answer_context: str | None = None,
    seed: int = 0,
    batch_size: int = 32,
    attention: list[str] | None = None,
) -> tuple[dict[str, int | float], list[dict[str, Any]]]:
    """Return ({name: number}, [{scores, tokens, chosen, right}] of each question).

    Choices are compared by log p, by log p per token, and, with `answer_context`, by log p minus
    log p after that context alone. An open question is right if each of its tokens is the
    likeliest; the perplexity is that of whole answers.

    Args:
      trained: the model.
      mesh: the mesh of its parameters.
      questions: the questions, all of one form.
      pool: the questions from which examples are drawn.
      shots: the number of examples before a question, fewer if the row would be too long.
      delimiter: the text between examples.
      answer_context: a context that is independent of the question, e.g. "Answer:".
      seed: the seed of the draw of examples.
      batch_size: the largest number of rows of a batch.
      attention: a list to which a line is appended for each attention kernel that is chosen.
    """
    scorer = make_scorer(trained, mesh, [] if attention is None else attention)
    rows, num_shortened, num_cut = [], 0, 0
    for number, question in enumerate(questions):
        question_rows, is_shortened, is_cut = _make_prompted_rows(
            scorer, question, examples_for(number, question, pool, shots, seed), delimiter
        )
        rows.append(question_rows)
        num_shortened += is_shortened
        num_cut += is_cut
    scores = _dealt(rows, scorer, batch_size)
    prior = None
    if answer_context is not None and not questions[0].open:
        prior_rows = [scorer.rows(q.place, answer_context, q.choices)[0] for q in questions]
        prior = _dealt(prior_rows, scorer, batch_size)
    found = [_found(question, choices) for question, choices in zip(questions, scores)]
    numbers: dict[str, Any] = {
        "questions": len(questions),
        "shots": shots,
        **_summarize(questions, found, scores, prior),
        "fewer_examples": num_shortened,
        "cut": num_cut,
    }
    return {
        name: value if isinstance(value, int) else float(value) for name, value in numbers.items()
    }, found


def _make_prompted_rows(
    scorer: "Scorer", question: Question, examples: list[Question], delimiter: str
) -> tuple[list[ScoredRow], bool, bool]:
    """Return (rows of the choices, whether examples were dropped, whether the prompt was cut).

    Examples are dropped from the front until the rows fit into the model.
    """
    for start in range(len(examples) + 1):
        text = prompt(question, examples[start:], delimiter)
        rows, is_cut = scorer.rows(question.place, text, question.choices)
        if not is_cut:
            break
    return rows, start > 0, is_cut


def _summarize(
    questions: Sequence[Question],
    found: Sequence[Mapping[str, Any]],
    scores: Sequence[Sequence[Score]],
    prior: Sequence[Sequence[Score]] | None,
) -> dict[str, Any]:
    """Return {name: number}: accuracies, their standard error, the perplexity of open questions."""
    numbers: dict[str, Any] = {}
    if questions[0].open:
        numbers["accuracy"] = np.mean([answer["right"] for answer in found])
        mean_log_p = np.mean([answer["scores"][0] for answer in found])
        numbers["perplexity"] = math.exp(min(-mean_log_p, 700.0))
    else:
        # {name: (scores of a question's choices, their prior scores) -> values to compare}
        rankings: dict[str, Callable[..., list[float]]] = {
            "accuracy": lambda choices, _: [p for p, _, _ in choices],
            "accuracy_per_token": lambda choices, _: [p / count for p, _, count in choices],
        }
        if prior:
            rankings["accuracy_over_prior"] = lambda choices, alone: [
                p - q for (p, _, _), (q, _, _) in zip(choices, alone)
            ]
        for name, rank in rankings.items():
            best = [
                int(np.argmax(rank(choices, alone)))
                for choices, alone in zip(scores, prior or scores)
            ]
            numbers[name] = np.mean([q.answer == choice for q, choice in zip(questions, best)])
        numbers["chance"] = np.mean([1 / len(question.choices) for question in questions])
    numbers["standard_error"] = math.sqrt(
        numbers["accuracy"] * (1 - numbers["accuracy"]) / len(questions)
    )
    return numbers


def _dealt(
    rows: Sequence[Sequence[ScoredRow]], scorer: "Scorer", batch_size: int
) -> list[list[Score]]:
    """Return the scores of rows [question][choice], as lists of the same form."""
    flat: Iterator[Score] = iter(
        scorer([row for question_rows in rows for row in question_rows], batch_size)
    )
    return [[next(flat) for _ in question_rows] for question_rows in rows]


def _found(question: Question, choices: Sequence[Score]) -> dict[str, Any]:
    """Return the JSON value of the answer to a question."""
    scores, tokens = [p for p, _, _ in choices], [count for _, _, count in choices]
    if question.open:
        return {"scores": scores, "tokens": tokens, "right": choices[0][1]}
    best = int(np.argmax(scores))
    return {"scores": scores, "tokens": tokens, "chosen": best, "right": best == question.answer}


def make_scorer(trained: Trained, mesh: Mesh, attention: list[str]) -> "Scorer":
    """Return the `Scorer` of a trained model; attention: see `evaluate_task`.

    Raises ValueError for a model that does not generate text.
    """
    names = [part.name for part in split_objective(trained.run.data.objective).values()]
    for name in names:
        if name in SCORERS:
            return SCORERS[name](trained, mesh, make_model_hooks(mesh, attention))
    raise ValueError(
        f"--task is for models that write ({', '.join(SCORERS)}); this "
        f"{type(trained.run.model).__name__} was trained by {', '.join(names)}"
    )


class Scorer:
    """The base of both kinds of scorers: rows of one shape at a time through the model."""

    # Methods of the subclasses.
    states: Callable[..., Any]
    rows: Callable[[str, str, Sequence[str]], tuple[list[ScoredRow], bool]]
    shape: Callable[[ScoredRow], tuple[int, int]]
    arrays: Callable[[Sequence[ScoredRow], int, int], tuple[np.ndarray, ...]]

    def __init__(self, trained: Trained, mesh: Mesh, hooks: Mapping[str, Any]) -> None:
        """Build the model; hooks: see `make_model_hooks`."""
        config: Any = trained.run.model
        model, gather = build(config, **hooks), gathered(mesh)
        self.mesh, self.params, self.vocabulary = mesh, trained.params, trained.vocabulary
        self.tokenizer = tokenizer.build(trained.vocabulary, name_of(config))
        self.longest: Any = getattr(config, "length", None)
        self.modes = list_modes(trained.run.data.objective, trained.vocabulary)
        score = partial(_score, model, self.states, trained.run.train.compute_dtype, gather)
        self.score = jax.jit(score, out_shardings=replicated(mesh))

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of texts, without special tokens around them."""
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def __call__(self, rows: Sequence[ScoredRow], batch_size: int) -> list[Score]:
        """Return the scores of rows that `rows` has made."""
        scores: list[Any] = [None] * len(rows)
        for batch in batching.batches([self.shape(row) for row in rows], batch_size):
            arrays = self.arrays([rows[i] for i in batch], *self.shape(rows[batch[0]]))
            loss_B, correct_B = jax.device_get(
                self.score(self.params, *(self._place(array) for array in arrays))
            )
            for index, loss, correct in zip(batch, loss_B.tolist(), correct_B.tolist()):
                count = len(rows[index][-1])
                scores[index] = (-loss, round(correct) == count, count)
        return scores

    def _place(self, array: np.ndarray) -> jax.Array:
        """Return an array on the mesh. Every process has all rows and places those of its devices."""
        shards = self.mesh.shape["data"] * self.mesh.shape["fsdp"]
        short = -len(array) % shards
        array = np.pad(array, ((0, short), *((0, 0),) * (array.ndim - 1)))
        return jax.make_array_from_callback(
            array.shape, batch_sharding(self.mesh), lambda index: array[index]
        )


def _score(
    model: Any,
    states: Callable[..., jax.Array],
    compute_dtype: str,
    gather: Callable[[Any], Any],
    params: Any,
    *arrays: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return the loss sum and the number of correct predictions of each row, float32 [B] each."""
    *inputs, targets_BT, weights_BT = arrays
    compute_params = cast_params(params, compute_dtype)
    hidden_BTD = states(partial(model.apply, {"params": compute_params}), *inputs, targets_BT)
    logits_BTV = model.apply({"params": gather(compute_params)}, hidden_BTD, method="logits")
    logits_BTV = logits_BTV.astype(jnp.float32)
    target_logits_BT = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
    loss_BT = jax.nn.logsumexp(logits_BTV, axis=-1) - target_logits_BT
    correct_BT = (jnp.argmax(logits_BTV, axis=-1) == targets_BT).astype(jnp.float32)
    return (loss_BT * weights_BT).sum(axis=1), (correct_BT * weights_BT).sum(axis=1)


class Decoder(Scorer):
    """Scores with a decoder: a choice follows its prompt in one row.

    A text is tokenized as a whole, and scored from the position where its ids differ from those of
    the prompt alone. If a piece has the end of the prompt and the beginning of a choice, it is
    scored too, for all choices of the question. An empty prompt is represented by the token that
    ends a text, which GPT (2018) does not have.
    """

    @staticmethod
    def states(
        apply: Callable[..., Any],
        tokens_BL: jax.Array,
        positions_BT: jax.Array,
        targets_BT: jax.Array,
    ) -> jax.Array:
        """Return the hidden states that predict the targets, [B, T, D]."""
        hidden_BLD = apply(tokens_BL, method="states")
        return jnp.take_along_axis(hidden_BLD, positions_BT[..., None], axis=1)

    def rows(self, place: str, text: str, choices: Sequence[str]) -> tuple[list[ScoredRow], bool]:
        """Return (row of each choice, whether the text was cut on the left).

        Raises ValueError, which begins with the place, for a choice that is too long.
        """
        before, *whole = self.ids([text, *(joined(text, choice) for choice in choices)])
        shared = min(_shared(before, row) for row in whole)
        if shared == 0:
            if self.vocabulary.eos is None:
                raise ValueError(
                    f"{place}: there is nothing before the first token, and the vocabulary has no "
                    "end of text to begin with"
                )
            whole, shared = [[self.vocabulary.eos, *row] for row in whole], 1
        longest = max(map(len, whole))
        surplus = max(longest - 1 - self.longest, 0)
        if surplus >= shared:
            raise ValueError(
                f"{place}: a choice of {longest - shared} tokens leaves no room for a context "
                f"(model.length={self.longest})"
            )
        return [(row[surplus:-1], row[shared:]) for row in whole], bool(surplus)

    def shape(self, row: ScoredRow) -> tuple[int, int]:
        """Return the padded lengths (L, T) of a row."""
        read, scored = row
        return min(batching.padded(len(read)), self.longest), batching.power(len(scored))

    def arrays(self, rows: Sequence[ScoredRow], L: int, T: int) -> tuple[np.ndarray, ...]:
        """Return ids [B, L], the positions [B, T] that predict, targets [B, T], weights [B, T]."""
        B = batching.power(len(rows))
        tokens_BL, positions_BT = np.zeros((B, L), np.int32), np.zeros((B, T), np.int32)
        for b, (read, scored) in enumerate(rows):
            tokens_BL[b, : len(read)] = read
            positions_BT[b, : len(scored)] = np.arange(len(read) - len(scored), len(read))
        return tokens_BL, positions_BT, *_targets([scored for _, scored in rows], B, T)


class EncoderDecoder(Scorer):
    """Scores with an encoder-decoder: the prompt is the input, and a choice is the target.

    Both are tokenized separately. The end of the target is scored too.
    """

    @staticmethod
    def states(
        apply: Callable[..., Any],
        inputs_BM: jax.Array,
        inputs_valid_BM: jax.Array,
        targets_BT: jax.Array,
    ) -> jax.Array:
        """Return the hidden states that predict the targets, [B, T, D]."""
        return apply(inputs_BM, inputs_valid_BM, targets_BT, method="states")

    def rows(self, place: str, text: str, choices: Sequence[str]) -> tuple[list[ScoredRow], bool]:
        """Return (row of each choice, whether the text was cut on the left).

        Raises ValueError, which begins with the place, for a choice that is too long.
        """
        end: Any = self.vocabulary.eos
        read, *scored = ([*ids, end] for ids in self.ids([text, *choices]))
        read = add_mode(read, self.modes)
        surplus = max(len(read) - (self.longest or len(read)), 0)
        if self.longest and max(map(len, scored)) > self.longest:
            raise ValueError(
                f"{place}: a choice of {max(map(len, scored))} tokens is longer than the model "
                f"(model.length={self.longest})"
            )
        return [(read[surplus:], row) for row in scored], bool(surplus)

    def shape(self, row: ScoredRow) -> tuple[int, int]:
        """Return the padded lengths (M, T) of a row."""
        read, scored = row
        longest = self.longest or len(read) * 2 + batching.SHORTEST
        return min(batching.padded(len(read)), longest), batching.power(len(scored))

    def arrays(self, rows: Sequence[ScoredRow], M: int, T: int) -> tuple[np.ndarray, ...]:
        """Return inputs [B, M], their mask [B, M], targets [B, T] and weights [B, T]."""
        B = batching.power(len(rows))
        pad: Any = self.vocabulary.pad
        inputs_BM, valid_BM = np.full((B, M), pad, np.int32), np.zeros((B, M), bool)
        for b, (read, _) in enumerate(rows):
            inputs_BM[b, : len(read)] = read
            valid_BM[b, : len(read)] = True
        valid_BM[len(rows) :, 0] = True
        return inputs_BM, valid_BM, *_targets([scored for _, scored in rows], B, T)


# {objective that trained the model: its scorer}
SCORERS = {"causal_lm": Decoder, "prefix_lm": EncoderDecoder, "span_corruption": EncoderDecoder}


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix of two rows."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _targets(rows: Sequence[Sequence[int]], B: int, T: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scored ids as targets int32 [B, T] and weights float32 [B, T]."""
    targets_BT, weights_BT = np.zeros((B, T), np.int32), np.zeros((B, T), np.float32)
    for b, row in enumerate(rows):
        targets_BT[b, : len(row)] = row
        weights_BT[b, : len(row)] = 1
    return targets_BT, weights_BT
