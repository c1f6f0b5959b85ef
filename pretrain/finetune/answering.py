"""What a trained model of any kind answers to a text, and how a person reads the answer."""

import importlib

from pretrain.inference.record_files import text_in

DECODING = "each of --beams, --temperature, --top-k, --top-p and --no-repeat-ngram"


NOT_SEVERAL = "--n-best is of answers to questions (finetune --task squad); a classifier tells all `probabilities`, and --top is of a [MASK]"


def reader(trained):
    """A function (record, place) -> the text in it; of a fine-tuned model, a tuple of the one or the two that it reads."""
    from models.config.heads import HeadedConfig

    if isinstance(trained.run.model, HeadedConfig):
        from pretrain.finetune.predictors import head_of

        return head_of(trained.run.model).reader(trained)
    if trained.run.data.objective.name == "text2text":
        from pretrain.evaluation.generated_answers import reader

        return reader(trained)

    return text_in


def speller(trained):
    """A function (text, result) -> lines for a person; text: as `reader` gives it."""
    from models.config.heads import HeadedConfig

    if not isinstance(trained.run.model, HeadedConfig):
        return spell
    from pretrain.finetune.predictors import head_of

    told = head_of(trained.run.model).told
    return lambda texts, result: told(texts, result) + "\n"


def spell(text, result):
    """What a model made of a text."""
    lines = list(text) if isinstance(text, tuple) else [text]
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
    return (
        "\n".join(
            line for line in [*lines, f"  {result.get('filled', result.get('written'))}"] if line
        )
        + "\n"
    )


def answerer(
    trained,
    top=None,
    length=None,
    batch_size=32,
    n_best=None,
    strategy=None,
    no_repeat_ngram=None,
    seed=None,
):
    """A function (texts, places, first) -> [result]; `places` name the texts in errors (None: by their number).

    strategy, no_repeat_ngram, seed: of models that write, as in `models.generation.generate.generate`. first: how many texts came before these;
    each draws by its own number. n_best: of answers to questions, how many are told. None: the usual; what a model has no use for is an error.

    A result is what the class that the family's record names in `answers` returns (pretrain/inference): `filled`, the text with its gaps
    closed; `masks`, for each mask a list of {word, piece, id, probability}, likeliest first; `judged`, for each word {word, probability that it
    was replaced}; `spans`, {sentinel: text, or None where the model wrote nothing}; `written`, what it writes alone. For a fine-tuned model it
    is what its head answers (pretrain/finetune/predictors.py), or what it writes (pretrain/evaluation/generated_answers.py).
    """
    from models.config.base import EncoderConfig
    from models.config.heads import HeadedConfig
    from pretrain.families import family_of

    asked = {"strategy": strategy, "no_repeat_ngram": no_repeat_ngram, "seed": seed}
    decoding = {name: value for name, value in asked.items() if value is not None}
    if isinstance(trained.run.model, HeadedConfig):
        if top is not None or length is not None or decoding:
            raise ValueError(
                "a fine-tuned model tells what its head was taught: --top, --length and how to write are for others"
            )
        from pretrain.finetune.predictors import head_of

        head, several = head_of(trained.run.model), {} if n_best is None else {"n_best": n_best}
        if not several.keys() <= {*head.options}:
            raise ValueError(NOT_SEVERAL)
        answer = head.answerer(trained, batch_size, **several)
        return lambda texts, places, first=0: answer(texts, places)
    if n_best is not None:
        raise ValueError(NOT_SEVERAL)
    module, name = family_of(trained.run.model).answers.split(":")
    kind = getattr(importlib.import_module(f"pretrain.inference.{module}"), name)
    if isinstance(trained.run.model, EncoderConfig):
        return _fill_masks(kind, trained, top, length, batch_size, decoding)
    if top is not None:
        raise ValueError(
            "--top is for encoders, the answers for a [MASK]; the others write one text, and --top-k is what they draw its words of"
        )
    if trained.run.data.objective.name == "text2text":
        from pretrain.evaluation.generated_answers import AnswerWriter

        return AnswerWriter(trained, length, batch_size, **decoding)
    return kind(trained, 64 if length is None else length, batch_size, **decoding)


def _fill_masks(kind, trained, top, length, batch_size, decoding):
    """`answerer` of an encoder that was trained on masked or replaced words."""
    if length is not None or decoding:
        option = "--length" if length is not None else DECODING
        raise ValueError(
            f"{option} is for models that write; an encoder fills each [MASK] with one piece"
        )
    answer = kind(trained, 5 if top is None else top, batch_size)
    return lambda texts, places, first=0: answer(texts, places)
