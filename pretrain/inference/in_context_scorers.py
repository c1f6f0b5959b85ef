"""Scorers of texts: log probabilities of their tokens, on a run's mesh.

B rows   L row length   M input length   T scored tokens   D width   V vocabulary
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from data.mixed import split_objective
from models import build
from pretrain.convert import find_model_type, tokenizer
from pretrain.inference import batching
from pretrain.inference.in_context_tasks import join_texts
from pretrain.inference.modes import add_mode, list_modes
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.mesh.gradient_exchange import cast_params
from pretrain.mesh.sharding import make_batch_sharding, make_gather, make_replicated_sharding
from pretrain.workdir.trained import Trained

# Of a row: ids that are read, positions that predict (masked models alone), ids that are scored.
ScoredRow = tuple[list[int], ...]
# (log probability, whether every token is the likeliest, number of tokens) of a choice
Score = tuple[float, bool, int]


class Scorer:
    """The base of all kinds of scorers: rows of one shape at a time through the model."""

    # Methods of the subclasses.
    compute_states: Callable[..., Any]
    make_rows: Callable[[str, str, Sequence[str]], tuple[list[ScoredRow], bool]]
    get_shape: Callable[[ScoredRow], tuple[int, int]]  # (L, T) of a padded row
    make_arrays: Callable[[Sequence[ScoredRow], int, int], tuple[np.ndarray, ...]]

    def __init__(self, trained: Trained, mesh: Mesh, hooks: Mapping[str, Any]) -> None:
        """Build the model; hooks: see `make_model_hooks`."""
        config: Any = trained.run.model
        model, gather = build(config, **hooks), make_gather(mesh)
        self.mesh, self.params, self.vocabulary = mesh, trained.params, trained.vocabulary
        self.tokenizer = tokenizer.build_tokenizer(trained.vocabulary, find_model_type(config))
        self.longest: Any = config.length
        self.modes = list_modes(trained.run.data.objective, trained.vocabulary)
        score = partial(
            _score_tokens, model, self.compute_states, trained.run.train.compute_dtype, gather
        )
        self.compute_scores = jax.jit(score, out_shardings=make_replicated_sharding(mesh))

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of texts, without special tokens around them."""
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def __call__(self, rows: Sequence[ScoredRow], batch_size: int) -> list[Score]:
        """Return the scores of rows that `make_rows` has made."""
        return [
            (float(log_p_T.sum()), bool(likeliest_T.all()), len(log_p_T))
            for log_p_T, likeliest_T in self.score_tokens(rows, batch_size)
        ]

    def score_tokens(
        self, rows: Sequence[ScoredRow], batch_size: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (log probabilities, whether each is the likeliest token) of scored tokens, [T]."""
        scores: list[Any] = [None] * len(rows)
        for batch in batching.make_batches([self.get_shape(row) for row in rows], batch_size):
            arrays = self.make_arrays([rows[i] for i in batch], *self.get_shape(rows[batch[0]]))
            log_p_BT, likeliest_BT = jax.device_get(
                self.compute_scores(self.params, *(self._place_rows(array) for array in arrays))
            )
            for b, index in enumerate(batch):
                count = len(rows[index][-1])
                scores[index] = (
                    log_p_BT[b, :count].astype(np.float64),
                    likeliest_BT[b, :count],
                )
        return scores

    def _place_rows(self, array: np.ndarray) -> jax.Array:
        """Return an array on the mesh; every process has all rows and places its devices' rows."""
        shards = self.mesh.shape["data"] * self.mesh.shape["fsdp"]
        short = -len(array) % shards
        array = np.pad(array, ((0, short), *((0, 0),) * (array.ndim - 1)))
        return jax.make_array_from_callback(
            array.shape, make_batch_sharding(self.mesh), lambda index: array[index]
        )


def _score_tokens(
    model: Any,
    states: Callable[..., jax.Array],
    compute_dtype: str,
    gather: Callable[[Any], Any],
    params: Any,
    *arrays: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return log probabilities, float32 [B, T], and whether no token is likelier, bool [B, T]."""
    *inputs, targets_BT = arrays
    compute_params = cast_params(params, compute_dtype)
    hidden_BTD = states(partial(model.apply, {"params": compute_params}), *inputs, targets_BT)
    logits_BTV = model.apply(
        {"params": gather(compute_params)}, hidden_BTD, method="compute_logits"
    )
    logits_BTV = logits_BTV.astype(jnp.float32)
    target_logits_BT = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
    log_p_BT = target_logits_BT - jax.nn.logsumexp(logits_BTV, axis=-1)
    return log_p_BT, jnp.argmax(logits_BTV, axis=-1) == targets_BT


class DecoderScorer(Scorer):
    """Scores with a decoder: a choice follows its prompt in one row.

    A text is tokenized as a whole, and scored from the position where its ids differ from
    the prompt's alone. If a piece has the end of the prompt and the beginning of a choice, it is
    scored too, for all choices of the question. An empty prompt is represented by the token that
    ends a text, which GPT (2018) does not have.
    """

    @staticmethod
    def compute_states(
        apply: Callable[..., Any],
        tokens_BL: jax.Array,
        positions_BT: jax.Array,
        targets_BT: jax.Array,
    ) -> jax.Array:
        """Return the hidden states that predict the targets, [B, T, D]."""
        hidden_BLD = apply(tokens_BL, method="compute_states")
        return jnp.take_along_axis(hidden_BLD, positions_BT[..., None], axis=1)

    def make_rows(
        self, place: str, text: str, choices: Sequence[str]
    ) -> tuple[list[ScoredRow], bool]:
        """Return (row of each choice, whether the text was cut on the left).

        Raises ValueError, which begins with the place, for a choice that is too long.
        """
        before, *whole = self.encode_texts(
            [text, *(join_texts(text, choice) for choice in choices)]
        )
        shared = min(_count_shared(before, row) for row in whole)
        if shared == 0:
            if self.vocabulary.eos is None:
                raise ValueError(
                    f"{place}: there is nothing before the first token, and the vocabulary has no "
                    "end of text to begin with"
                )
            whole, shared = [[self.vocabulary.eos, *row] for row in whole], 1
        longest = max(map(len, whole))
        surplus = max(longest - 1 - (self.longest or longest), 0)
        if surplus >= shared:
            raise ValueError(
                f"{place}: a choice of {longest - shared} tokens leaves no room for a context "
                f"(model.length={self.longest})"
            )
        return [(row[surplus:-1], row[shared:]) for row in whole], bool(surplus)

    def get_shape(self, row: ScoredRow) -> tuple[int, int]:
        """Return the padded lengths (L, T) of a row."""
        read, scored = row
        L = batching.pad_length(len(read))
        return min(L, self.longest or L), batching.round_up_to_power(len(scored))

    def make_arrays(self, rows: Sequence[ScoredRow], L: int, T: int) -> tuple[np.ndarray, ...]:
        """Return ids [B, L], the positions [B, T] that predict, and targets [B, T]."""
        B = batching.round_up_to_power(len(rows))
        tokens_BL, positions_BT = np.zeros((B, L), np.int32), np.zeros((B, T), np.int32)
        for b, (read, scored) in enumerate(rows):
            tokens_BL[b, : len(read)] = read
            positions_BT[b, : len(scored)] = np.arange(len(read) - len(scored), len(read))
        return tokens_BL, positions_BT, pad_targets([scored for _, scored in rows], B, T)


class EncoderDecoderScorer(Scorer):
    """Scores with an encoder-decoder: the prompt is the input, and a choice is the target.

    Both are tokenized separately. The end of the target is scored too.
    """

    @staticmethod
    def compute_states(
        apply: Callable[..., Any],
        inputs_BM: jax.Array,
        inputs_valid_BM: jax.Array,
        targets_BT: jax.Array,
    ) -> jax.Array:
        """Return the hidden states that predict the targets, [B, T, D]."""
        return apply(inputs_BM, inputs_valid_BM, targets_BT, method="compute_states")

    def make_rows(
        self, place: str, text: str, choices: Sequence[str]
    ) -> tuple[list[ScoredRow], bool]:
        """Return (row of each choice, whether the text was cut on the left).

        Raises ValueError, which begins with the place, for a choice that is too long.
        """
        end: Any = self.vocabulary.eos
        read, *scored = ([*ids, end] for ids in self.encode_texts([text, *choices]))
        read = add_mode(read, self.modes)
        surplus = max(len(read) - (self.longest or len(read)), 0)
        if self.longest and max(map(len, scored)) > self.longest:
            raise ValueError(
                f"{place}: a choice of {max(map(len, scored))} tokens is longer than the model "
                f"(model.length={self.longest})"
            )
        return [(read[surplus:], row) for row in scored], bool(surplus)

    def get_shape(self, row: ScoredRow) -> tuple[int, int]:
        """Return the padded lengths (M, T) of a row."""
        read, scored = row
        longest = self.longest or len(read) * 2 + batching.SHORTEST
        return min(batching.pad_length(len(read)), longest), batching.round_up_to_power(len(scored))

    def make_arrays(self, rows: Sequence[ScoredRow], M: int, T: int) -> tuple[np.ndarray, ...]:
        """Return inputs [B, M], their mask [B, M] and targets [B, T]."""
        B = batching.round_up_to_power(len(rows))
        pad: Any = self.vocabulary.pad
        inputs_BM, valid_BM = np.full((B, M), pad, np.int32), np.zeros((B, M), bool)
        for b, (read, _) in enumerate(rows):
            inputs_BM[b, : len(read)] = read
            valid_BM[b, : len(read)] = True
        valid_BM[len(rows) :, 0] = True
        return inputs_BM, valid_BM, pad_targets([scored for _, scored in rows], B, T)


# {objective that trained the model: its scorer}
SCORERS = {
    "causal_lm": DecoderScorer,
    "prefix_lm": EncoderDecoderScorer,
    "span_corruption": EncoderDecoderScorer,
}


def _count_shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix of two rows."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def pad_targets(rows: Sequence[Sequence[int]], B: int, T: int) -> np.ndarray:
    """Return scored ids as int32 [B, T], padded with 0."""
    targets_BT = np.zeros((B, T), np.int32)
    for b, row in enumerate(rows):
        targets_BT[b, : len(row)] = row
    return targets_BT


def make_scorer(trained: Trained, mesh: Mesh, attention: list[str]) -> Scorer:
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
