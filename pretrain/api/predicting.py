"""Predict with a checkpoint: fill masks, generate text, predict labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pretrain.api.loading import load
from pretrain.host.terminal import print_notice
from pretrain.inference.random_head import HeadOptions, parameters_option, step_option
from pretrain.inference.unknown_share import UnknownCounter
from pretrain.settings.arguments import PathText
from pretrain.settings.verb_options import Group, builds, format_flag, option, takes

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained


DECODING = Group("decoding, for models that generate (default: greedy)")


class PredictorOptions(HeadOptions):
    """The options of a `Predictor`; the default of many depends on the model."""

    model: PathText | Trained = option("workdir of a run", "--workdir", kw_only=False)
    step: int | None = step_option()
    parameters: str | None = parameters_option()
    top: int | None = option(
        "number of predictions per [MASK], or classes of an image (default: 5)",
        default=None,
        metavar="K",
    )
    n_best: int | None = option(
        "for questions: return the N best answers with their probabilities",
        default=None,
        metavar="N",
    )
    length: int | None = option(
        "maximum number of tokens to generate (default: 64; for a model fine-tuned to "
        "generate, the length of its training); for a diffusion model, the masks that continue a "
        "text without one",
        default=None,
        metavar="T",
    )
    field: str | None = option(
        "for a model of articles, whose texts are JSON objects: the field to generate from "
        "the others (default: the body)",
        default=None,
        metavar="NAME",
    )
    beams: int | None = option(
        "beam search with W beams", default=None, group=DECODING, metavar="W"
    )
    length_penalty: float | None = option(
        "exponent of the length penalty of --beams; larger values prefer longer texts (default: 1)",
        default=None,
        group=DECODING,
        metavar="A",
    )
    temperature: float | None = option(
        "sample with this temperature (default: 1 with --top-k or --top-p)",
        default=None,
        group=DECODING,
        metavar="T",
    )
    top_k: int | None = option(
        "sample from the K most probable tokens", default=None, group=DECODING, metavar="K"
    )
    top_p: float | None = option(
        "sample from the smallest set of tokens whose probabilities sum to P",
        default=None,
        group=DECODING,
        metavar="P",
    )
    steps: int | None = option(
        "for a diffusion model: fill all masks of a text in S steps, the most certain first "
        "(default: one mask a step)",
        default=None,
        group=DECODING,
        metavar="S",
    )
    block: int | None = option(
        "for a diffusion model: fill N masks before the next N (default: all in any order)",
        default=None,
        group=DECODING,
        metavar="N",
    )
    no_repeat_ngram: int | None = option(
        "generate no n-gram of N tokens twice", default=None, group=DECODING, metavar="N"
    )
    seed: int | None = option("seed of the sampling (default: 0)", default=None, group=DECODING)
    batch_size: int = option("texts per batch (default: %(default)s)", default=32, metavar="B")

    def check(self) -> None:
        """Raise ValueError for numbers out of range, and options that exclude each other."""
        counts = ("top", "n_best", "length", "batch_size", "beams", "top_k", "steps", "block")
        for name in (*counts, "no_repeat_ngram"):
            if (value := vars(self)[name]) is not None and value < 1:
                raise ValueError(f"{format_flag(name)} {value}: must be at least 1")
        sampling = self.list_sampling()
        if sampling and self.beams is not None:
            raise ValueError(
                "--beams searches for the most probable text, "
                f"{format_flag(next(iter(sampling)))} samples one: give one or the other"
            )
        if self.length_penalty is not None and self.beams is None:
            raise ValueError("--length-penalty needs --beams")
        if self.seed is not None and not sampling:
            raise ValueError("--seed needs sampling: add --temperature, --top-k or --top-p")
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed {self.seed}: must be at least 0 and below 2^32")

    def list_sampling(self) -> dict[str, Any]:
        """Return the options of sampling that are set."""
        values = {name: vars(self)[name] for name in ("temperature", "top_k", "top_p")}
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


class PredictOptions(PredictorOptions):
    """The options of `predict`."""

    texts: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]] = option(
        "texts of the kind the model was trained for: with [MASK] or <extra_id_0> to fill, "
        "or to continue, translate, repair or classify; for a model of images, their paths",
        "texts",
        kw_only=False,
        nargs="*",
        metavar="TEXT",
    )


class Predictor:
    """A checkpoint that predicts, with programs that are compiled once for all calls.

    Attributes:
      trained: the checkpoint.
    """

    @builds(PredictorOptions, "predict")
    def __init__(self, options: PredictorOptions) -> None:
        """Open a checkpoint.

        Raises:
          ValueError: an option that the model does not support, or an invalid one; parameters that
            are not finite.
        """
        strategy = options.make_strategy()  # its errors come before the checkpoint is read
        from pretrain.inference.answering import make_answerer, make_reader
        from pretrain.inference.random_head import check_head
        from pretrain.workdir.trained import check_finite_params

        self.trained = load(options.model, options.step, options.parameters)
        check_head(self.trained, "predict", options.allow_random_head, sentence_heads=False)
        check_finite_params(self.trained)
        self.read_record = make_reader(self.trained)
        self.answer = make_answerer(
            self.trained,
            top=options.top,
            n_best=options.n_best,
            length=options.length,
            batch_size=options.batch_size,
            field=options.field,
            strategy=strategy,
            no_repeat_ngram=options.no_repeat_ngram,
            seed=options.seed,
            steps=options.steps,
            block=options.block,
        )

    def __call__(
        self, texts: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the result of each text, as the function `predict` does."""
        several: Sequence[Any] = (
            [texts] if isinstance(texts, (str, Mapping)) else [*texts]  # one text is no list
        )
        places = [f"text {number}" for number in range(1, len(several) + 1)]
        records = [make_record(value, place) for value, place in zip(several, places, strict=True)]
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


@takes(PredictOptions)
def predict(options: PredictOptions) -> list[dict[str, Any]]:
    """Return the result of each text.

    The keys of a result depend on the model: `masks` and `filled` of BERT, `fills` and `filled` of
    a diffusion model (`draw_filling` shows their order), `spans` of T5, `written` of GPT, `label`
    and `probabilities` of a classifier (docs/python.md). A text may also be a mapping with the
    columns of a record, such as {"text": ..., "text2": ...}. A `Predictor` serves many calls
    faster.

    Raises:
      ValueError: an option that the model does not support, or a text that it cannot read.
    """
    given = {name: value for name, value in vars(options).items() if name != "texts"}
    return Predictor(**given)(options.texts)


def make_record(given: Any, place: str) -> Mapping[str, Any]:
    """Return the record of a text, or a record as it is. Raises ValueError for anything else."""
    if isinstance(given, str):
        return {"text": given}
    if not isinstance(given, Mapping):
        raise ValueError(
            f"{place}: expected a text or a mapping of columns, not {type(given).__name__}"
        )
    return given
