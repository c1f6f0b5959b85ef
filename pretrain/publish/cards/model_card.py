"""The model card of an export, as Markdown.

It describes the model, its data, its scores, how to load it, and its limits.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, Protocol

import jax

from data.examples.tags_as_text import NO_ENTITY, UNTYPED_NAME
from data.examples.text_pairs import UNANSWERABLE
from data.images.encoding import ImageEncoding
from data.mixed import describe_objective, split_objective
from data.objectives.text2text import Text2Text
from data.vocabulary.base import Vocabulary
from models.config.base import TEACHER, Config
from models.config.choice import ChoiceConfig
from models.config.embedder import EmbedderConfig
from models.config.heads import HeadedConfig
from models.config.span_reader import SpanReaderConfig
from pretrain.config import Run
from pretrain.convert import find_model_family
from pretrain.convert.head_maps import list_unread_modules
from pretrain.families import Family
from pretrain.publish.cards import adapter_card, image_card
from pretrain.publish.cards.card_data import describe_data, format_scores
from pretrain.publish.cards.card_texts import (
    HEAD_TASKS,
    UNLICENSED,
    describe_code,
    describe_license,
    format_code,
    format_license,
    format_size,
)
from pretrain.publish.cards.loading_lines import (
    find_gap_token,
    find_use,
    make_loading_lines,
    make_sample_input,
)
from pretrain.training.optimizers.frozen import count_trained


class TrainedModel(Protocol):
    """A checkpoint as a model card sees it: `pretrain.workdir.trained.Trained`."""

    @property
    def run(self) -> Run: ...
    @property
    def step(self) -> int: ...
    @property
    def params(self) -> Any: ...
    @property
    def encoding(self) -> Vocabulary | ImageEncoding: ...
    @property
    def parameters(self) -> str: ...
    @property
    def vocabulary(self) -> Vocabulary: ...
    def read_metrics(self) -> list[dict[str, Any]]: ...
    def read_origin(self) -> Any: ...
    def read_manifest(self) -> Any: ...


def find_task(config: Config) -> str:
    """Return the task of a model, under its name in the Hugging Face hub."""
    return HEAD_TASKS.get(type(config)) or find_model_family(config).task


def make_card(
    trained: TrainedModel,
    dtype: str = "float32",
    place: str = "FOLDER",
    license: str | None = None,
    base: str | None = None,
) -> str:
    """Return the model card of a checkpoint whose weights are exported as `dtype`.

    It is written from the files of the run alone. Its lines load the model from `place`.

    Args:
      license: of the weights, as the Hub writes it.
      base: for an adapter, the repository of the model beside which it is loaded.
    """
    run = trained.run
    family = find_model_family(run.model)
    own = {name: part for name, part in trained.params.items() if f"{name}/" != TEACHER}
    size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(own))
    title = f"A {format_size(size)} {family.title}"
    loading = make_loading_lines(run, trained.encoding, place)
    if base:
        size = count_trained(run, own)
        title = f"A LoRA adapter of {size:,} parameters for {family.title}"
        loading = adapter_card.list_loading_lines(run.model, loading, place, base)
    library = "sentence-transformers" if isinstance(run.model, EmbedderConfig) else "transformers"
    sections = [
        f"---\nlibrary_name: {'peft' if base else library}\n"
        f"pipeline_tag: {find_task(run.model)}\n"
        f"tags: [{'lora, ' if base else ''}{family.tokenizer_name}]\n"
        f"{_name_base_model(trained, base)}{format_license(license)}---",
        f"# {title}\n\n{_describe_origin(trained)}" + _describe_average(trained),
        "\n".join(
            [
                "| | |",
                "|-|-|",
                *(
                    f"| {name} | {value} |"
                    for name, value in _list_facts(trained, family, size, dtype)
                ),
            ]
        ),
        "## Evaluation\n\n"
        + format_scores(trained.read_metrics(), trained.step, trained.parameters),
        "## Use\n\n```python\n" + "\n".join(loading) + "\n```",
        "## Limits\n\n" + _describe_limits(trained, family, license),
    ]
    return "\n\n".join(sections) + "\n"


def _name_base_model(trained: TrainedModel, base: str | None) -> str:
    """Return the line of a card's header on an adapter's base, or on what was imported, or ""."""
    repository = (trained.read_origin() or {}).get("repository")
    if base:
        repository = None if base == adapter_card.UNNAMED else base
    return f"base_model: {json.dumps(str(repository))}\n" if repository else ""


def is_fine_tuned(run: Run) -> bool:
    """Return whether a run is a fine-tuning on a task."""
    return isinstance(run.model, HeadedConfig) or isinstance(run.data.objective, Text2Text)


def _describe_origin(trained: TrainedModel) -> str:
    """Return a sentence on where the parameters come from and how they were trained."""
    origin = trained.read_origin()
    if origin is None:
        return f"Pretrained from random parameters with Cloze, for {trained.step:,} steps."
    folder = format_code(origin["folder"])
    if averaged := origin.get("averaged"):
        weights = "the checkpoints"
        if "ema_decay" in origin:
            decay = f"decay {origin['ema_decay']:g}"
            weights = f"the moving averages of the parameters ({decay}) in {weights}"
        steps = ", ".join(f"{step:,}" for step in averaged)
        return f"The mean of {weights} of steps {steps} of {folder}, trained with Cloze."
    if is_fine_tuned(trained.run) and "pretrained_step" in origin:
        if any(path.startswith("encoder/") for path in origin.get("fresh", ())):
            return (
                f"Trained with Cloze on labelled examples alone, for {trained.step:,} steps, from "
                "random parameters."
            )
        return (
            f"Fine-tuned with Cloze, for {trained.step:,} steps, from step "
            f"{origin['pretrained_step']:,} of {folder}."
        )
    if origin.get("with_optimizer") and not origin.get("before"):
        return (
            f"Pretrained from random parameters with Cloze, for {trained.step:,} steps, the first "
            f"{origin['pretrained_step']:,} of them as {folder}."
        )
    start = f"Its parameters come from {folder}"
    unread = list_unread_modules(trained.run.model)
    if missing := [name for name in origin.get("missing", ()) if not name.startswith(unread)]:
        start += f", but for {len(missing)} missing tensors, which began at random"
    more = (
        f"trained further with Cloze, for {trained.step:,} steps"
        if trained.step
        else "not trained any further here"
    )
    return f"{start}; {more}."


def _describe_average(trained: TrainedModel) -> str:
    """Return a sentence on weights that are an average, or ""."""
    if trained.parameters == "raw":
        return ""
    decay = trained.run.train.ema_decay
    return f" The weights are the moving average of the trained parameters (decay {decay:g})."


def _list_facts(
    trained: TrainedModel, family: Family, size: int, dtype: str
) -> Iterator[tuple[str, str]]:
    """Yield the rows (name, value) of the table of facts."""
    run, encoding = trained.run, trained.encoding
    # The classes differ by run, so their fields are not checked.
    headed: Any = run.model
    objective: Any = run.data.objective
    model: Any = headed.backbone
    depth = " + ".join(map(str, model.depths))
    if run.train.lora_rank:
        yield from adapter_card.list_facts(run.train)
    yield "parameters", f"{size:,}"
    yield (
        "shape",
        f"{depth} layers, hidden size {model.width}, {model.num_heads} heads, "
        f"feed-forward {model.mlp}",
    )
    if isinstance(headed, ChoiceConfig):
        yield "choices", f"{objective.choices} in training, any number in use"
    elif isinstance(headed, SpanReaderConfig):
        span = "a span of the context"
        yield "answers", f"{span}, or none" if headed.unanswerable else span
    elif isinstance(headed, EmbedderConfig):
        length = ", of length 1" if headed.normalize else ""
        yield "vectors", f"{model.width} numbers{length}; pooling: {headed.pooling}"
    elif headed is not model:
        yield "labels", ", ".join(map(format_code, headed.labels)) or "none: a score"
    else:
        yield from family.describe_card_rows(model)
    for task in (objective.tasks or (objective,)) if isinstance(objective, Text2Text) else ():
        yield "reads", format_code(make_sample_input(task))
        yield "writes", _describe_outputs(task)
    if model.length is not None:
        yield "longest input", f"{model.length} tokens"
    if isinstance(encoding, ImageEncoding):
        yield "classes", image_card.describe_classes(model, encoding)
    else:
        yield "vocabulary", _describe_vocabulary(model, encoding)
    yield "weights", dtype if dtype == "float32" else f"{dtype}, rounded from float32"
    if not (step := trained.step or max((trained.read_origin() or {}).get("averaged", [0]))):
        return
    yield "objective", describe_objective(objective)
    yield "data", describe_data(trained.read_manifest(), run.data.store)
    yield "steps", f"{step:,} of {run.data.batch_size} rows each"
    yield (
        "optimizer",
        f"{type(run.optimizer).__name__}, peak learning rate {run.optimizer.learning_rate:g}",
    )
    yield "arithmetic", f"{run.train.compute_dtype}; parameters are trained in float32"


def _describe_vocabulary(model: Any, vocabulary: Vocabulary) -> str:
    """Return the size and the kind of a vocabulary."""
    text = f"{vocabulary.size:,} pieces ({vocabulary.kind.replace('_', ' ')})"
    if spare := max(model.vocab - vocabulary.size, 0):
        text += f"; the table's last {spare:,} rows belong to none"
    return text


def _describe_outputs(task: Text2Text) -> str:
    """Return what a text-to-text model writes in a task."""
    if task.words:
        return ", ".join(map(format_code, task.words))
    if task.step:
        return f"scores in steps of {task.step:g}"
    if task.scheme:
        return (
            " ".join(format_code(f"{kind or UNTYPED_NAME}: ...") for kind in task.kinds)
            + f", or `{NO_ENTITY}`"
        )
    return f"an answer, or `{UNANSWERABLE}`" if task.questions == "squad2" else "text"


def _describe_limits(trained: TrainedModel, family: Family, license: str | None) -> str:
    """Return the paragraphs on what the model cannot do and what was not measured."""
    if isinstance(trained.encoding, ImageEncoding):
        limits = "\n\n".join(image_card.LIMITS)
        return limits.replace(UNLICENSED, describe_license(license))
    gap = format_code(find_gap_token(family, trained.vocabulary))
    (does, _), values = find_use(trained.run)
    values = {name: format_code(value) for name, value in values.items()}
    use = f"{does.format(gap=gap, **values)}; it follows no instructions"
    use += (
        " and knows no other task."
        if is_fine_tuned(trained.run)
        else " and was not fitted to any task."
    )
    names = {objective.name for objective in split_objective(trained.run.data.objective).values()}
    if trained.step and names == {"masked_lm"} and family.untrained_parts:
        use += (
            f" Masked words were the only objective: {family.untrained_parts} learned nothing here."
        )
    text = (
        "It repeats what its text says, errors and prejudices included. Nothing but the figures "
        f"above was measured. {describe_license(license)} check the licence of the data."
    )
    tokens = (
        f"A special token written out in a text ({gap}) is read as that token. Cloze itself "
        "reads it as plain text when it reads a corpus."
    )
    return "\n\n".join([use, text, tokens, *describe_code(family.require_hugging_face().code)])
