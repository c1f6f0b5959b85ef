"""Log probabilities of texts, token by token.

`likelihood`: each token after those before it. A decoder reads the end of a text first, where its
vocabulary has one; else the first token is not scored. The decoder of an encoder-decoder writes the
text after an empty input, and its end is scored too.

`masked`: each token in a copy of the text in which it alone is masked; the sum is the
pseudo-log-likelihood (Salazar et al. 2020, equation 1). A hybrid predicts it one position early
(Charpentier and Samuel 2024).

`within_word_l2r`: the later tokens of its word are masked too (Kauf and Ivanova 2023, section 3),
so that a rare word of several tokens is no more probable than its first one.

`bound`: a lower bound of the likelihood, from copies of the text with any share of it masked
(likelihood_bound.py). It compares with `likelihood`.

N tokens of a text
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from data.mixed import split_objective
from pretrain.families import find_family
from pretrain.inference.batching import quote_text
from pretrain.inference.in_context_scorers import SCORERS, DecoderScorer, ScoredRow, Scorer
from pretrain.inference.length_notice import LengthNotice
from pretrain.inference.scoring.likelihood_bound import Draw, add_draws, draw_masks
from pretrain.inference.scoring.masked_scorers import (
    MaskedNextScorer,
    MaskedScorer,
    PackedMaskedScorer,
)
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.workdir.trained import Trained

LIKELIHOOD, MASKED, WORD, BOUND = "likelihood", "masked", "within_word_l2r", "bound"
WAYS = (LIKELIHOOD, MASKED, WORD, BOUND)
HYBRID = "masked_next_token"  # the objective whose models are read by `masked` too


class Text(NamedTuple):
    """A text to score.

    Attributes:
      place: names it in errors.
      span: the characters [begin, end) whose tokens are scored; None: all.
    """

    place: str
    text: str
    span: tuple[int, int] | None = None


class TextScore(NamedTuple):
    """The score of a text.

    Attributes:
      pieces: its scored tokens, [N].
      spans: the characters [begin, end) of each.
      log_probabilities: float64 [N], natural logarithms.
      num_bytes: bytes (UTF-8) of what is scored.
      other_strand: the log probability of the reverse complement, in nats, where it counts too.
    """

    pieces: list[str]
    spans: list[tuple[int, int]]
    log_probabilities: np.ndarray
    num_bytes: int
    other_strand: float | None = None

    @property
    def own_strand(self) -> float:
        """The log probability of the text as it is written, in nats."""
        return float(self.log_probabilities.sum())

    @property
    def total(self) -> float:
        """The log probability, in nats; the mean of both strands where both count."""
        if self.other_strand is None:
            return self.own_strand
        return (self.own_strand + self.other_strand) / 2

    @property
    def bits_per_byte(self) -> float:
        """Bits for each byte of the text, which compare models of different vocabularies."""
        return count_bits_per_byte(self.total, self.num_bytes)


def count_bits_per_byte(log_probability: float, num_bytes: int) -> float:
    """Return the bits for each byte of texts with a log probability in nats."""
    return -log_probability / math.log(2) / num_bytes


class _Rows(NamedTuple):
    """The rows that score a text, and its tokens.

    Attributes:
      draws: the tokens that each row scores; (): the rows score them in turn.
    """

    rows: list[ScoredRow]
    ids: list[int]
    spans: list[tuple[int, int]]
    draws: Sequence[Draw] = ()

    def add_scores(self, scores: Sequence[np.ndarray]) -> np.ndarray:
        """Return the score of each token, [N], by the scores of each row."""
        if self.draws:
            return add_draws(len(self.ids), self.draws, scores)
        return np.concatenate(scores)


def list_ways(trained: Trained) -> tuple[str, ...]:
    """Return the ways in which a model scores texts, its own first.

    Raises ValueError for a model that does not.
    """
    parts = split_objective(trained.run.data.objective).values()
    names = [part.name for part in parts]
    if find_family(trained.run.model).predictor.startswith("fill_mask:"):
        learned_bound = any(part.masks_any_share for part in parts)
        return (BOUND, MASKED, WORD) if learned_bound else (MASKED, WORD, BOUND)
    ways = [LIKELIHOOD] if SCORERS.keys() & {*names} else []
    if HYBRID in names:
        ways += [MASKED, WORD, BOUND]
    if not ways:
        raise ValueError(
            f"this {type(trained.run.model).__name__} was trained by {', '.join(names)}; `score` "
            "is for models that write a text or fill its masks"
        )
    return tuple(ways)


class TextScorer:
    """A model that scores texts in one way, with programs that are compiled once for all calls."""

    def __init__(
        self,
        trained: Trained,
        mesh: Mesh,
        way: str | None = None,
        batch_size: int = 32,
        attention: list[str] | None = None,
        draws: int = 128,
    ) -> None:
        """Build the model.

        Args:
          way: one of WAYS; None: the model's own.
          batch_size: rows of a batch; a row has a whole text, a copy of it with a masked token, or
            several short copies.
          attention: a list to which a line is appended for each attention kernel that is chosen.
          draws: copies of a text for its bound.

        Raises:
          ValueError: the model does not score texts in this way.
        """
        ways = list_ways(trained)
        self.trained, self.mesh, self.vocabulary = trained, mesh, trained.vocabulary
        self.way, self.batch_size, self.draws = way or ways[0], batch_size, draws
        if self.way not in ways:
            raise ValueError(
                f"--by {way}: this {type(trained.run.model).__name__} scores by {', '.join(ways)}"
            )
        hooks = make_model_hooks(mesh, [] if attention is None else attention)
        self.notice = LengthNotice(trained)
        self.scorer = self._find_scorer(trained)(trained, mesh, hooks)

    def _find_scorer(self, trained: Trained) -> type[Scorer]:
        """Return the class of the scorer of rows."""
        parts = split_objective(trained.run.data.objective).values()
        names = [part.name for part in parts]
        if self.way == LIKELIHOOD:
            return next(SCORERS[name] for name in names if name in SCORERS)
        if HYBRID in names:
            return MaskedNextScorer
        packs = all("segment_ids" in part.describe_batch() for part in parts)
        return PackedMaskedScorer if packs else MaskedScorer

    def __call__(self, texts: Sequence[Text]) -> list[TextScore]:
        """Return the score of each text.

        Raises ValueError, which begins with the place: a text without a token to score, one that is
        longer than the model, or a score that is not a number.
        """
        plans = [self._plan_text(text) for text in texts]
        rows = [row for plan in plans for row in plan.rows]
        self.notice.report(max((len(row[0]) for row in rows), default=0))
        with jax.set_mesh(self.mesh):
            scored = iter(self.scorer.score_tokens(rows, self.batch_size))
        scores = []
        for text, plan in zip(texts, plans, strict=True):
            log_p_N = plan.add_scores([next(scored)[0] for _ in plan.rows])
            if np.isnan(log_p_N).any():
                raise ValueError(
                    f"{text.place}: a score is not a number, since the parameters or what is "
                    "computed from them are not finite; use another --step"
                )
            scores.append(self._select_span(text, plan, log_p_N))
        return scores

    def _plan_text(self, text: Text) -> _Rows:
        """Return the rows that score a text."""
        encoding = self.scorer.tokenizer.encode(
            text.text, add_special_tokens=type(self.scorer) in (MaskedScorer, PackedMaskedScorer)
        )
        if all(encoding.special_tokens_mask):
            raise ValueError(f"{text.place}: there is no token in {quote_text(text.text)}")
        if self.way == LIKELIHOOD:
            return self._plan_likelihood(text, encoding)
        return self._plan_masks(text, encoding)

    def _plan_likelihood(self, text: Text, encoding: Any) -> _Rows:
        """Return the one row that scores a text from left to right."""
        ids, spans, eos = list(encoding.ids), list(encoding.offsets), self.vocabulary.eos
        if not isinstance(self.scorer, DecoderScorer):
            rows, _ = self.scorer.make_rows(text.place, "", [text.text])
            end = (len(text.text), len(text.text))
            return _Rows(rows, rows[0][-1], [*spans, end])
        row = ids if eos is None else [eos, *ids]
        if len(row) < 2:
            raise ValueError(
                f"{text.place}: its only token has nothing before it, and the vocabulary has no "
                "end of text to begin with"
            )
        self.check_length(text, len(row) - 1)
        scored = row[1:]
        return _Rows([(row[:-1], scored)], scored, spans[-len(scored) :])

    def _plan_masks(self, text: Text, encoding: Any) -> _Rows:
        """Return a row for each token, in which it is masked, or of a bound for each draw."""
        ids, spans, words = list(encoding.ids), list(encoding.offsets), list(encoding.word_ids)
        own = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
        if isinstance(self.scorer, MaskedNextScorer):
            eos: Any = self.vocabulary.eos
            ids, own = [eos, *ids, eos], [i + 1 for i in own]
            spans, words = [(0, 0), *spans, (0, 0)], [None, *words, None]
        self.check_length(text, len(ids))
        own = [i for i in own if text.span is None or _overlaps(spans[i], text.span)]
        if not own:
            raise ValueError(f"{text.place}: there is no token in the span {list(text.span or ())}")
        mask: Any = self.vocabulary.mask
        rows, draws = [], draw_masks(len(own), self.draws) if self.way == BOUND else ()
        for draw in draws:
            places = [own[number] for number in draw.places]
            row = [mask if i in {*places} else token for i, token in enumerate(ids)]
            rows.append((row, places, [ids[i] for i in places]))
        for i in own if not draws else ():
            row = list(ids)
            row[i] = mask
            if self.way == WORD:
                for later in range(i + 1, len(ids)):
                    if words[later] is not None and words[later] == words[i]:
                        row[later] = mask
            rows.append((row, [i], [ids[i]]))
        return _Rows(rows, [ids[i] for i in own], [spans[i] for i in own], draws)

    def check_length(self, text: Text, length: int) -> None:
        """Raise ValueError for a text that is longer than the model."""
        longest = self.scorer.longest
        if longest and length > longest:
            raise ValueError(
                f"{text.place}: {length} tokens, the model reads at most {longest}; split the text"
            )

    def _select_span(self, text: Text, plan: _Rows, log_p_N: np.ndarray) -> TextScore:
        """Return the score of the tokens in the span of a text."""
        begin, end = text.span or (0, len(text.text))
        own = [
            i
            for i, span in enumerate(plan.spans)
            if text.span is None or _overlaps(span, text.span)
        ]
        if not own:
            raise ValueError(f"{text.place}: there is no token in the span {[begin, end]}")
        return TextScore(
            [self.vocabulary.format_token(plan.ids[i]) for i in own],
            [plan.spans[i] for i in own],
            log_p_N[own],
            len(text.text[begin:end].encode("utf-8", "surrogatepass")),
        )


def _overlaps(span: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether two spans share a character."""
    return max(span[0], other[0]) < min(span[1], other[1])
