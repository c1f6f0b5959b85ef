"""Score texts and minimal pairs with a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pretrain.api.loading import find_checkpoint
from pretrain.api.predicting import make_record
from pretrain.host.terminal import print_notice
from pretrain.inference.random_head import HeadOptions, parameters_option, step_option
from pretrain.settings.arguments import PathText, list_optional
from pretrain.settings.verb_options import Group, format_flag, option, takes

if TYPE_CHECKING:
    from pretrain.inference.scoring.minimal_pairs import MinimalPair
    from pretrain.inference.scoring.text_scoring import Text, TextScore, TextScorer
    from pretrain.workdir.trained import Trained

PAIRS = Group("minimal pairs (fields good and bad, or sentence_good and sentence_bad)")
MUTATIONS = Group("mutations of one text, such as a protein")
Given = str | Mapping[str, Any]


class ScorerOptions(HeadOptions):
    """The options of a scorer of texts."""

    model: PathText | Trained = option("workdir of a run", "--workdir", kw_only=False)
    step: int | None = step_option()
    parameters: str | None = parameters_option()
    by: str | None = option(
        "how a text is scored: by the likelihood of each token after those before it, by the "
        "probability of each token when it is masked, or with the later tokens of its word masked "
        "too, or by a bound of the likelihood from masks of any share (default: likelihood for a "
        "model that writes, bound for a diffusion model, masked for others that fill masks)",
        default=None,
        choices=("likelihood", "masked", "within_word_l2r", "bound"),
    )
    draws: int = option(
        "masked copies of a text for its bound; more are more exact (default: %(default)s)",
        default=128,
        metavar="M",
    )
    dtype: str = option(
        "dtype of the computation (default: %(default)s)",
        default="float32",
        choices=("float32", "bfloat16"),
    )
    batch_size: int = option(
        "rows per batch; a row is a text, or copies of it with one masked token each (default: "
        "%(default)s)",
        default=64,
        metavar="B",
    )
    both_strands: bool = option(
        "DNA: score a text by the mean over it and its reverse complement", default=False
    )
    good: str | None = option(
        "the field of the better text", default=None, group=PAIRS, metavar="FIELD"
    )
    bad: str | None = option(
        "the field of the worse text", default=None, group=PAIRS, metavar="FIELD"
    )
    group: str | None = option(
        "the field that groups the pairs (default: group or UID)",
        default=None,
        group=PAIRS,
        metavar="FIELD",
    )

    def check(self) -> None:
        """Raise ValueError for values that are not valid, and for one field of a pair alone."""
        self.check_choices("dtype", *(["by"] if self.by is not None else []))
        for name in ("batch_size", "draws"):
            if (value := vars(self)[name]) < 1:
                raise ValueError(f"{format_flag(name)} {value}: must be at least 1")
        if bool(self.good) != bool(self.bad):
            raise ValueError("--good and --bad name the two fields of a pair: give both")


class ScoringOptions(ScorerOptions):
    """The options of `score`."""

    texts: str | Mapping[str, Any] | Iterable[Given] = option(
        "texts to score", "texts", kw_only=False, nargs="*", metavar="TEXT"
    )
    mutations: list[str] | None = option(
        "score changes of letters instead, such as A23T, or A23T:G45V for several at once",
        default=None,
        group=MUTATIONS,
        converter=list_optional,
        nargs="+",
        metavar="CHANGE",
    )
    marginals: str = option(
        "mask the letters that change (masked), or read the text as it is, once for all mutations "
        "(wild_type) (default: %(default)s)",
        default="masked",
        group=MUTATIONS,
        choices=("masked", "wild_type"),
    )

    def check(self) -> None:
        """Raise ValueError for values that are not valid, and for two ways of scoring."""
        super().check()
        self.check_choices("marginals")
        if self.mutations and self.by:
            raise ValueError(f"--by {self.by}: mutations are scored by --marginals alone")


@takes(ScoringOptions)
def score(options: ScoringOptions) -> list[dict[str, Any]]:
    """Return the score of each text, of each minimal pair, or of each mutation of one text.

    The score of a text has `log_probability` in nats, `tokens` and `bytes`, their numbers,
    `bits_per_byte`, and `pieces`, each with its own `log_probability`. With `both_strands` it also
    has `strands`, the log probabilities of the text, to which the pieces belong, and of its reverse
    complement; `log_probability` is their mean. A text may be a mapping with
    `text`, and `span`, the characters [begin, end) that are scored. A pair is a mapping such as
    {"good": ..., "bad": ...}; its result has the scores of both, `right`, whether the good text is
    more probable, and `tie`, whether they are equal. A mutation has its name, `mutation`, and
    `log_odds` in nats, above 0 where the new letters are more probable.

    Raises:
      ValueError: a model that does not score texts, a text without a token, or one that is longer
        than the model.
    """
    given = options.texts
    several: Sequence[Any] = (
        [given] if isinstance(given, (str, Mapping)) else [*given]  # one text is no list
    )
    places = [f"text {number}" for number in range(1, len(several) + 1)]
    records = [make_record(each, place) for each, place in zip(several, places, strict=True)]
    requests = make_requests(zip(places, records, strict=True), options)
    if not requests:
        return []
    scorer = open_scorer(options)
    if options.mutations:
        return score_changes(scorer, requests, options)
    results = score_requests(scorer, requests)
    note_unknown(scorer, requests)
    return results


def make_requests(
    records: Iterable[tuple[str, Mapping[str, Any]]], options: ScorerOptions
) -> list[Text] | list[MinimalPair]:
    """Return what is to be scored, all texts or all pairs as the first record is.

    Args:
      records: (place, record) of each.

    Raises:
      ValueError: a record is of the other kind, or has no text; begins with its place.
    """
    from pretrain.inference.scoring.minimal_pairs import MinimalPair, find_fields, make_pair

    requests: list[Any] = []
    for place, record in records:
        if fields := find_fields(record, options.good, options.bad):
            requests.append(make_pair(record, place, fields, options.group))
        else:
            requests.append(make_text(record, place))
        if type(requests[-1]) is not type(requests[0]):
            first = "pairs" if isinstance(requests[0], MinimalPair) else "texts"
            raise ValueError(f"{place}: is not one of the {first} that the input begins with")
    return requests


def make_text(record: Mapping[str, Any], place: str) -> Text:
    """Return the text of a record, with its span. Raises ValueError for a span outside of it."""
    from pretrain.inference.record_files import get_text
    from pretrain.inference.scoring.text_scoring import Text

    text, span = get_text(record, place), record.get("span")
    if span is None:
        return Text(place, text)
    is_pair = isinstance(span, Sequence) and len(span) == 2
    if not (is_pair and all(type(end) is int for end in span)):
        raise ValueError(f"{place}: span is two numbers, [begin, end)")
    if not 0 <= span[0] < span[1] <= len(text):
        raise ValueError(f"{place}: span {[*span]} is not in the text of {len(text)} characters")
    return Text(place, text, (span[0], span[1]))


def open_scorer(options: ScorerOptions) -> TextScorer:
    """Return the scorer of a checkpoint, on the devices of its run's mesh.

    Raises:
      ValueError: the model does not score texts, parameters are not finite, or both strands are
        asked for and the vocabulary has no complements.
    """
    from pretrain.inference.random_head import check_head
    from pretrain.inference.scoring.both_strands import BothStrandScorer
    from pretrain.inference.scoring.text_scoring import TextScorer
    from pretrain.workdir.trained import check_finite_params, open_placed

    trained, mesh = open_placed(*find_checkpoint(options.model, options.step, options.parameters))
    check_head(trained, "score", options.allow_random_head, sentence_heads=False)
    check_finite_params(trained, "a score means nothing")
    return (BothStrandScorer if options.both_strands else TextScorer)(
        trained.with_compute_dtype(options.dtype),
        mesh,
        options.by,
        options.batch_size,
        draws=options.draws,
    )


def score_requests(
    scorer: TextScorer, requests: Sequence[Text] | Sequence[MinimalPair]
) -> list[dict[str, Any]]:
    """Return the result of each text or pair, see `score`."""
    from pretrain.inference.scoring.minimal_pairs import MinimalPair

    found = iter([describe_score(score) for score in scorer(list_texts(requests))])
    results = []
    for request in requests:
        score = next(found)
        if isinstance(request, MinimalPair):
            other = next(found)
            good, bad = score["log_probability"], other["log_probability"]
            facts = {"group": request.group, "right": good > bad, "tie": good == bad}
            score = {"good": score, "bad": other, **facts}
        results.append(score)
    return results


def score_changes(
    scorer: TextScorer, requests: Sequence[Any], options: ScoringOptions
) -> list[dict[str, Any]]:
    """Return the results of `options.mutations` of the one text. Raises ValueError for several."""
    from pretrain.inference.scoring.both_strands import BothStrandScorer
    from pretrain.inference.scoring.minimal_pairs import MinimalPair
    from pretrain.inference.scoring.mutations import score_mutations

    if len(requests) > 1 or isinstance(requests[0], MinimalPair):
        raise ValueError("--mutations are of one text; give one")
    names = options.mutations or []
    if isinstance(scorer, BothStrandScorer):
        odds = scorer.score_mutations(requests[0], names, options.marginals)
    else:
        odds = score_mutations(scorer, requests[0], names, options.marginals)
    return [{"mutation": name, "log_odds": one} for name, one in zip(names, odds, strict=True)]


def list_texts(requests: Sequence[Text] | Sequence[MinimalPair]) -> list[Text]:
    """Return the texts of requests, two of each pair."""
    from pretrain.inference.scoring.minimal_pairs import MinimalPair

    return [
        text
        for request in requests
        for text in (
            (request.good, request.bad) if isinstance(request, MinimalPair) else (request,)
        )
    ]


def note_unknown(scorer: TextScorer, requests: Sequence[Text] | Sequence[MinimalPair]) -> None:
    """Print a line on the standard error if the vocabulary does not know much of the texts."""
    from pretrain.inference.unknown_share import UnknownCounter

    unknown = UnknownCounter(scorer.vocabulary)
    unknown.add_texts(text.text for text in list_texts(requests))
    for line in unknown.describe():
        print_notice(line)


def describe_score(score: TextScore) -> dict[str, Any]:
    """Return the JSON value of a score."""
    pieces = zip(score.pieces, score.spans, score.log_probabilities.tolist(), strict=True)
    strands = (
        {} if score.other_strand is None else {"strands": [score.own_strand, score.other_strand]}
    )
    return {
        "log_probability": score.total,
        **strands,
        "tokens": len(score.pieces),
        "bytes": score.num_bytes,
        "bits_per_byte": score.bits_per_byte,
        "pieces": [
            {"piece": piece, "span": [*span], "log_probability": log_p}
            for piece, span, log_p in pieces
        ],
    }
