"""Answers of a trained model of any kind to texts, and their format on the command line."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pretrain import inference
from pretrain.inference.record_files import get_text

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

DECODING = "each of --beams, --temperature, --top-k, --top-p and --no-repeat-ngram"
STEPS = (
    "--steps and --block are for models that learned any share of masks, and fill them in steps "
    "(docs/diffusion.md); this one was trained by {}"
)
NOT_SEVERAL = (
    "--n-best is for answers to questions (finetune --task squad); a classifier returns all "
    "`probabilities`, and --top is for a [MASK]"
)

# (texts, their names in errors, number of texts before them) -> results
Answerer = Callable[..., list[dict[str, Any]]]


def make_reader(trained: Trained) -> Callable[..., Any]:
    """Return a function (record, place) that returns the text of a record.

    For a fine-tuned model it returns a tuple of texts, or a question with its choices.
    """
    from models.config.heads import HeadedConfig

    if isinstance(trained.run.model, HeadedConfig):
        from pretrain.inference.tasks.predictors import find_predictor

        return find_predictor(trained.run.model).make_reader(trained)
    if trained.run.data.objective.name == "text2text":
        from pretrain.inference.tasks.predict_generated import make_reader

        return make_reader(trained)
    from pretrain.inference.field_generation import ArticleReader, writes_fields
    from pretrain.inference.images.captioned_pairs import read_pair, reads_pictures

    if reads_pictures(trained):
        return read_pair
    return ArticleReader(trained) if writes_fields(trained) else get_text


def make_blank_result(trained: Trained) -> dict[str, Any]:
    """Return the result of a blank line: the fields of other results, empty or None.

    No model is asked, and each line of a file has a result.
    """
    from models.config.heads import HeadedConfig

    if isinstance(trained.run.model, HeadedConfig):
        from pretrain.inference.tasks.predictors import find_predictor

        return find_predictor(trained.run.model).make_blank(trained.run.model)
    if trained.run.data.objective.name == "text2text":
        from pretrain.inference.tasks.predict_generated import make_blank

        return make_blank(trained)
    return dict(find_predictor_class(trained).BLANK)


def make_formatter(trained: Trained) -> Callable[[Any, dict[str, Any]], str]:
    """Return a function (text, result) that formats a result, with the text of `make_reader`."""
    from models.config.heads import HeadedConfig

    if not isinstance(trained.run.model, HeadedConfig):
        from pretrain.inference.field_generation import format_article, writes_fields

        return format_article if writes_fields(trained) else format_result
    from pretrain.inference.tasks.predictors import find_predictor

    format_texts = find_predictor(trained.run.model).format_result
    return lambda texts, result: format_texts(texts, result) + "\n"


def format_result(text: Any, result: dict[str, Any]) -> str:
    """Return a text and its result, formatted for the terminal."""
    lines = list(text) if isinstance(text, tuple) else [text]
    if "picture" in result:
        return f"{lines[0]}\n  {result['picture']}\n"
    if "probabilities" in result:  # of an image
        shares = result["probabilities"].items()
        return (
            "\n".join([str(text), *(f"    {share:7.2%}  {name}" for name, share in shares)]) + "\n"
        )
    for number, mask in enumerate(result.get("masks", ()), 1):
        lines.append(f"  [{number}]" if len(result["masks"]) > 1 else "")
        lines += [f"    {answer['probability']:7.2%}  {answer['word']}" for answer in mask]
    lines += [
        f"    {answer['probability']:7.2%}  {answer['word']}" for answer in result.get("judged", ())
    ]
    if "judged" in result:
        return "\n".join(lines) + "\n"
    for sentinel, span in result.get("spans", {}).items():
        lines.append(f"  {sentinel}  {'(nothing)' if span is None else span}")
    lines.append(f"  {result.get('filled', result.get('written'))}")
    return "\n".join(line for line in lines if line) + "\n"


def make_answerer(
    trained: Trained,
    top: int | None = None,
    length: int | None = None,
    batch_size: int = 32,
    n_best: int | None = None,
    **options: Any,
) -> Answerer:
    """Return a function (texts, places, first) that returns the result of each text.

    `places` name the texts in errors (None: by their number). `first` is the number of texts before
    these, from which the random seeds follow.

    A result comes from the class that the family's record names as `predictor`:
    `filled`, the text with its gaps filled; `masks`, for each mask a list of {word, piece, id,
    probability}, most probable first; `fills`, for each mask what a diffusion model filled in, with
    its step; `judged`, for each word {word, probability that it was replaced}; `spans`, {sentinel:
    text, or None if the model generated nothing}; `written`, the generated text. For a fine-tuned
    model it is the prediction of its head (pretrain/inference/tasks/predictors.py), or what it
    generates (predict_generated.py).

    Args:
      top: number of predictions per mask; None for 5. A diffusion model predicts all masks at once
        with it, and fills them in steps without.
      length: maximum number of generated tokens; None for 64, or the length of the fine-tuning.
      n_best: number of answers to each question; None for one.
      options: of models that generate; None for the default. `strategy`, how tokens are chosen (see
        `models.generation.decoding`; greedy), and its `seed`; `no_repeat_ngram`, n-grams of this
        length are generated at most once; `field`, of an article to generate (the body); `steps`
        and `block` of a diffusion model, see `models.generation.unmasking.plan_steps`.

    Raises ValueError for an option that the model does not support.
    """
    from models.config.heads import HeadedConfig

    decoding = {name: value for name, value in options.items() if value is not None}
    _check_field(trained, options.get("field"))
    if isinstance(trained.run.model, HeadedConfig):
        if top is not None or length is not None or decoding:
            raise ValueError(
                "a fine-tuned model predicts with its head; --top, --length and the decoding "
                "options are for other models"
            )
        return _predict_with_head(trained, batch_size, n_best)
    if n_best is not None:
        raise ValueError(NOT_SEVERAL)
    kind = find_predictor_class(trained, at_once=top is not None)
    module = kind.__module__.removeprefix(f"{inference.__name__}.")
    if not module.startswith("diffusion.") and decoding.keys() & {"steps", "block"}:
        raise ValueError(STEPS.format(trained.run.data.objective.name))
    if module == "fill_mask" or module.startswith("images."):
        return _fill_masks(kind, trained, top, length, batch_size, decoding)
    if top is not None:
        raise ValueError(
            "--top is for encoders: the number of predictions per [MASK]. To sample from the most "
            "probable tokens, use --top-k"
        )
    return _generate_answers(kind, trained, length, batch_size, decoding)


def _check_field(trained: Trained, field: str | None) -> None:
    """Raise ValueError for a field of articles, if the model was not trained on them."""
    from pretrain.inference.field_generation import writes_fields

    if field is not None and not writes_fields(trained):
        raise ValueError(
            f"--field {field}: this model was not trained on articles of several fields"
        )


def find_predictor_class(trained: Trained, at_once: bool = False) -> Any:
    """Return the class that predicts with a pretrained model.

    Args:
      at_once: whether a diffusion model predicts its masks at once, as BERT does.

    Raises ValueError for a model that predicts no text.
    """
    from pretrain.families import find_family
    from pretrain.inference.images.captioned_pairs import reads_pictures

    if reads_pictures(trained):
        from pretrain.inference.images.captioned_pairs import PairFiller

        return PairFiller
    predictor = find_family(trained.run.model).predictor
    if not predictor:
        raise ValueError(
            f"a {type(trained.run.model).__name__} predicts no text: `features` has its states, "
            f"and `finetune --from {trained.workdir}` learns labels of texts"
        )
    module, name = predictor.split(":")
    if module == "fill_mask" and not at_once:
        from pretrain.inference.diffusion.step_filling import StepFiller, fills_in_steps

        if fills_in_steps(trained):
            return StepFiller
    return getattr(importlib.import_module(f"{inference.__name__}.{module}"), name)


def _generate_answers(
    kind: Any, trained: Trained, length: int | None, batch_size: int, decoding: dict[str, Any]
) -> Answerer:
    """Return the `make_answerer` of a generative model, whose predictor is of the class `kind`."""
    if "diffusion" in kind.__module__:
        return kind(trained, length, batch_size, **decoding)
    if trained.run.data.objective.name == "text2text":
        from pretrain.inference.tasks.predict_generated import AnswerGenerator

        return AnswerGenerator(trained, length, batch_size, **decoding)
    from pretrain.inference.field_generation import FieldWriter, writes_fields

    kind = FieldWriter if writes_fields(trained) else kind
    return kind(trained, 64 if length is None else length, batch_size, **decoding)


def _predict_with_head(trained: Trained, batch_size: int, n_best: int | None) -> Answerer:
    """Return the `make_answerer` of a model with a head."""
    from pretrain.inference.tasks.predictors import find_predictor

    head, options = find_predictor(trained.run.model), {} if n_best is None else {"n_best": n_best}
    if not options.keys() <= {*head.options}:
        raise ValueError(NOT_SEVERAL)
    answer = head.make_predictor(trained, batch_size, **options)
    return lambda texts, places, first=0: answer(texts, places)


def _fill_masks(
    kind: Callable[..., Any],
    trained: Trained,
    top: int | None,
    length: int | None,
    batch_size: int,
    decoding: dict[str, Any],
) -> Answerer:
    """Return the `make_answerer` of an encoder of masked or replaced tokens, or of images."""
    if length is not None or decoding:
        option = "--length" if length is not None else DECODING
        raise ValueError(
            f"{option} is for models that generate; an encoder fills each [MASK] with one token, "
            "and a model of images predicts classes"
        )
    answer = kind(trained, 5 if top is None else top, batch_size)

    return lambda texts, places, first=0: answer(texts, places)
