"""Predict with a checkpoint: fill masks, generate text, predict labels."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pretrain.api.loading import load
from pretrain.host.terminal import print_notice
from pretrain.inference.unknown_share import UnknownCounter

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """The options of `predict`. None is the default of each, which may depend on the model.

    Attributes:
      top: number of predictions for each mask, or classes of an image.
      n_best: number of answers to each question.
      length: most tokens to generate.
      field: the field of an article to generate.
      beams: beams of a beam search.
      length_penalty: exponent of the length penalty of a beam search.
      temperature, top_k, top_p: sample instead of choosing the most probable token.
      no_repeat_ngram: n-grams of this length are generated at most once.
      seed: of the sampling.
      batch_size: texts computed at once.
    """

    top: int | None = None
    n_best: int | None = None
    length: int | None = None
    field: str | None = None
    beams: int | None = None
    length_penalty: float | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    no_repeat_ngram: int | None = None
    seed: int | None = None
    batch_size: int = 32

    def __post_init__(self) -> None:
        for name in ("top", "n_best", "length", "batch_size", "beams", "top_k", "no_repeat_ngram"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{_format_flag(name)} {value}: must be at least 1")
        sampling = self.list_sampling()
        if sampling and self.beams is not None:
            raise ValueError(
                "--beams searches for the most probable text, "
                f"{_format_flag(next(iter(sampling)))} samples one: give one or the other"
            )
        if self.length_penalty is not None and self.beams is None:
            raise ValueError("--length-penalty needs --beams")
        if self.seed is not None and not sampling:
            raise ValueError("--seed needs sampling: add --temperature, --top-k or --top-p")
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed {self.seed}: must be at least 0 and below 2^32")

    def list_sampling(self) -> dict[str, Any]:
        """Return the options of sampling that are set."""
        values = {name: getattr(self, name) for name in ("temperature", "top_k", "top_p")}
        return {name: value for name, value in values.items() if value is not None}

    def make_strategy(self) -> Any:
        """Return how tokens are chosen, see `models.generation.decoding`; None for greedy."""
        from models.generation.decoding import BeamSearch, Sample

        if sampling := self.list_sampling():
            return Sample(**sampling)
        if self.beams is None:
            return None
        penalty = {} if self.length_penalty is None else {"length_penalty": self.length_penalty}
        return BeamSearch(self.beams, **penalty)


OPTIONS = tuple(field.name for field in dataclasses.fields(PredictOptions))


class Predictor:
    """A checkpoint that predicts, with programs that are compiled once for all calls.

    Attributes:
      trained: the checkpoint.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Trained,
        *,
        step: int | None = None,
        allow_random_head: bool = False,
        **options: Any,
    ) -> None:
        """Open a checkpoint.

        Args:
          model: a workdir or a loaded checkpoint.
          step: the step of the checkpoint of a workdir; None: the newest sound one.
          allow_random_head: use an imported model whose head is random.
          options: the fields of `PredictOptions`.

        Raises:
          ValueError: an option that the model does not support, or an invalid one; parameters that
            are not finite.
        """
        if unknown := [name for name in options if name not in OPTIONS]:
            raise ValueError(f"predict has no option {unknown[0]!r}; it has {', '.join(OPTIONS)}")
        given = {name: value for name, value in options.items() if value is not None}
        chosen = PredictOptions(**given)
        strategy = chosen.make_strategy()  # its errors come before the checkpoint is read
        from pretrain.inference.answering import make_answerer, make_reader
        from pretrain.inference.random_head import check_head
        from pretrain.workdir.trained import check_finite_params

        self.trained = load(model, step)
        check_head(self.trained, "predict", allow_random_head, sentence_heads=False)
        check_finite_params(self.trained)
        self.read_record = make_reader(self.trained)
        self.answer = make_answerer(
            self.trained,
            top=chosen.top,
            n_best=chosen.n_best,
            length=chosen.length,
            batch_size=chosen.batch_size,
            field=chosen.field,
            strategy=strategy,
            no_repeat_ngram=chosen.no_repeat_ngram,
            seed=chosen.seed,
        )

    def __call__(
        self, texts: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the result of each text, as the function `predict` does."""
        several: Sequence[Any] = (
            [texts] if isinstance(texts, (str, Mapping)) else [*texts]  # one text is no list
        )
        places = [f"text {number}" for number in range(1, len(several) + 1)]
        records = [_make_record(each, place) for each, place in zip(several, places, strict=True)]
        read = [
            self.read_record(record, place) for record, place in zip(records, places, strict=True)
        ]
        if not read:
            return []
        unknown = UnknownCounter(self.trained.encoding)
        unknown.add_texts(read)
        for line in unknown.describe():
            print_notice(line)
        return self.answer(read, places, 0)


def predict(
    model: str | os.PathLike[str] | Trained,
    texts: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]],
    *,
    step: int | None = None,
    allow_random_head: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Return the result of each text.

    The keys of a result depend on the model: `masks` and `filled` of BERT, `spans` of T5, `written`
    of GPT, `label` and `probabilities` of a classifier (docs/python.md).

    Args:
      model: a workdir or a loaded checkpoint. A `Predictor` serves many calls faster.
      texts: a text or several, of the kind that the model was trained for: with [MASK] or
        <extra_id_0> to fill, or to continue, translate, repair or classify. A mapping has the
        columns of a record, such as {"text": ..., "text2": ...}. For a model of images, paths.
      step: the step of the checkpoint of a workdir; None: the newest sound one.
      allow_random_head: use an imported model whose head is random.
      options: fields of `PredictOptions`, such as top=3 or beams=4.

    Raises:
      ValueError: an option that the model does not support, or a text that it cannot read.
    """
    predictor = Predictor(model, step=step, allow_random_head=allow_random_head, **options)
    return predictor(texts)


def _make_record(given: Any, place: str) -> Mapping[str, Any]:
    """Return the record of a text, or a record as it is. Raises ValueError for anything else."""
    if isinstance(given, str):
        return {"text": given}
    if not isinstance(given, Mapping):
        raise ValueError(
            f"{place}: expected a text or a mapping of columns, not {type(given).__name__}"
        )
    return given


def _format_flag(name: str) -> str:
    """Return the flag of an option of the command line."""
    return f"--{name.replace('_', '-')}"
