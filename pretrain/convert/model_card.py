"""The model card of an export: what it is, what it read, how well it did, how to load it, and what nobody checked."""

import math
import re

import jax

from data.examples.tags_as_text import NONE, UNTYPED
from data.examples.text2text import NOTHING, source_of
from data.mixed import describe_objective, split_objective
from data.objectives.span_corruption import SpanCorruption
from data.objectives.text2text import Text2Text
from models.config.heads import (
    ChoiceConfig,
    HeadedConfig,
    SpanReaderConfig,
)
from pretrain.convert import family_in
from pretrain.convert.card_texts import HEADS, USES


def task_of(config):
    """What a model is for, as the hub names it."""
    return HEADS.get(type(config)) or family_in(config).task


def of(trained, dtype="float32"):
    """The card of a checkpoint whose weights are exported as `dtype`, as Markdown. Says only what the run's own files say."""
    run = trained.run
    family = family_in(run.model)
    size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(trained.params))
    sections = [
        "\n".join(
            [
                "---",
                "library_name: transformers",
                f"pipeline_tag: {task_of(run.model)}",
                f"tags: [{family.hugging_face.model_type}]",
                "---",
            ]
        ),
        f"# A {_size(size)} {family.title}\n\n{_story(trained)}",
        "\n".join(
            [
                "| | |",
                "|-|-|",
                *(f"| {name} | {value} |" for name, value in _facts(trained, family, size, dtype)),
            ]
        ),
        "## Evaluation\n\n" + _scores(trained),
        "## Use\n\n```python\n" + "\n".join(loading(run, trained.vocabulary, "FOLDER")) + "\n```",
        "## Limits\n\n" + _limits(trained, family),
    ]
    return "\n\n".join(sections) + "\n"


def fine_tuned(run):
    """Whether a run learned a task, not text."""
    return isinstance(run.model, HeadedConfig) or isinstance(run.data.objective, Text2Text)


def use_of(run):
    """The entry of USES, and what stands in its places."""
    objective, asked = run.data.objective, ""
    if isinstance(objective, Text2Text):
        asked = sample((*objective.tasks, objective)[0])
    return USES[objective.name if asked else task_of(run.model)], {"asked": asked}


def sample(objective):
    """What a model that writes is asked, for a reader to see."""
    texts = (
        ("Who sleeps?", "The fox sleeps.")
        if objective.questions
        else ("It is a text.", *["This is another."] * len(objective.columns))
    )
    return source_of(objective, texts[: len(objective.columns) - 1])


def loading(run, vocabulary, folder):
    """Lines of Python that load an export and use it."""
    (_, auto, use), places = use_of(run)
    use = [
        line.format(folder=folder, gap=_gap(family_in(run.model), vocabulary), **places)
        for line in use
    ]
    return [
        f"from transformers import {auto}, AutoTokenizer{', pipeline' if use[-1].startswith('pipeline') else ''}",
        f'model = {auto}.from_pretrained("{folder}")',
        f'tokenizer = AutoTokenizer.from_pretrained("{folder}")',
        *use,
    ]


def _gap(family, vocabulary):
    """The piece that stands for what is to be filled in; of a model that has none, some other special piece."""
    named = (i for i in (vocabulary.mask, vocabulary.eos, vocabulary.unk) if i is not None)
    return "<extra_id_0>" if SpanCorruption in family.objectives else vocabulary.pieces[next(named)]


def _story(trained):
    origin = trained.origin()
    if origin is None:
        return f"Pretrained from random parameters with Cloze, for {trained.step:,} steps."
    if averaged := origin.get("averaged"):
        of = "the checkpoints"
        if "ema_decay" in origin:
            of = f"the moving averages of the parameters (decay {origin['ema_decay']:g}) in {of}"
        return f"The mean of {of} of steps {', '.join(f'{step:,}' for step in averaged)} of `{origin['folder']}`, trained with Cloze."
    if fine_tuned(trained.run) and "pretrained_step" in origin:
        if any(path.startswith("encoder/") for path in origin.get("fresh", ())):
            return f"Trained with Cloze on labelled examples alone, for {trained.step:,} steps, from random parameters."
        return f"Fine-tuned with Cloze, for {trained.step:,} steps, from step {origin['pretrained_step']:,} of `{origin['folder']}`."
    start = f"Its parameters come from `{origin['folder']}`"
    if origin.get("missing"):
        start += (
            f", but for {len(origin['missing'])} tensors that were not there and began at random"
        )
    more = (
        f"trained further with Cloze, for {trained.step:,} steps"
        if trained.step
        else "not trained any further here"
    )
    return f"{start}; {more}."


def _facts(trained, family, size, dtype):
    run, vocabulary = trained.run, trained.vocabulary
    model, objective = getattr(run.model, "encoder", run.model), run.data.objective
    depth = (
        f"{model.depth} + {model.decoder_depth}"
        if hasattr(model, "decoder_depth")
        else f"{model.depth}"
    )
    yield "parameters", f"{size:,}"
    yield (
        "shape",
        f"{depth} layers, hidden size {model.width}, {model.num_heads} heads, feed-forward {model.mlp}",
    )
    if isinstance(run.model, ChoiceConfig):
        yield "choices", f"{run.data.objective.choices} in training, any number in use"
    elif isinstance(run.model, SpanReaderConfig):
        yield (
            "answers",
            "a span of the context, or none" if run.model.unanswerable else "a span of the context",
        )
    elif run.model is not model:
        yield "labels", ", ".join(run.model.labels) or "none: a score"
    else:
        yield from family.facts(model)
    for task in (objective.tasks or (objective,)) if isinstance(objective, Text2Text) else ():
        yield "reads", f"`{sample(task)}`"
        text = f"an answer, or `{NOTHING}`" if task.questions == "squad2" else "text"
        text = (
            " ".join(f"`{kind or UNTYPED}: ...`" for kind in task.kinds) + f", or `{NONE}`"
            if task.scheme
            else text
        )
        yield (
            "writes",
            ", ".join(task.words) or (f"scores in steps of {task.step:g}" if task.step else text),
        )
    if hasattr(model, "length"):
        yield "longest input", f"{model.length} tokens"
    spare = (
        f"; the table's last {model.vocab - vocabulary.size:,} rows belong to none"
        if model.vocab > vocabulary.size
        else ""
    )
    yield "vocabulary", f"{vocabulary.size:,} pieces ({vocabulary.kind.replace('_', ' ')}){spare}"
    yield "weights", dtype if dtype == "float32" else f"{dtype}, rounded from float32"
    if not (step := trained.step or max((trained.origin() or {}).get("averaged", [0]))):
        return
    yield "objective", describe_objective(objective)
    yield "data", _data(trained)
    yield "steps", f"{step:,} of {run.data.batch_size} rows each"
    yield (
        "optimizer",
        f"{type(run.optimizer).__name__}, peak learning rate {run.optimizer.learning_rate:g}",
    )
    yield "arithmetic", f"{run.train.compute_dtype}; parameters are trained in float32"


def _data(trained):
    manifest = trained.manifest()
    if manifest is None:
        return f"a token store that is no longer at hand ({trained.run.data.store or 'unnamed'})"
    train = manifest["splits"]["train"]
    named = ", ".join(
        f"{spell_name(source['name'])} ({source['rate']:.0%})" for source in manifest["sources"]
    )
    return f"{train['tokens']:,} tokens of {train['documents']:,} documents: {named}"


def _scores(trained):
    """The last evaluation on the held-out part, if this step has one."""
    rows = [row for row in trained.rows() if "heldout_loss" in row]
    if not rows:
        return "None was made during training."
    row = rows[-1]
    scores = [
        (name.removeprefix("heldout_"), value)
        for name, value in row.items()
        if name.startswith("heldout_")
    ]
    later = "" if row["step"] == trained.step else f" (these weights are of step {trained.step:,})"
    lines = [
        f"On the held-out part of the data, at step {row['step']:,}{later}:",
        "",
        "| measure | value |",
        "|-|-|",
    ]
    return "\n".join(
        [*lines, *(f"| {spell_score(name)} | {value:.5g} |" for name, value in scores)]
    )


def spell_score(name):
    """Return the name of a score; parts of a mixture and sources stand as they are called."""
    return spell_name(name) if "/" in name else name.replace("_", " ")


def spell_name(name):
    """Return a name as code that neither Markdown nor HTML reads."""
    return f"`{re.sub(r'[`|<>]|[^ -~]', '?', name)}`"


def _limits(trained, family):
    gap = _gap(family, trained.vocabulary)
    (does, *_), places = use_of(trained.run)
    use = f"{does.format(gap=gap, **places)}; it follows no instructions"
    use += (
        " and knows no other task."
        if fine_tuned(trained.run)
        else " and was not fitted to any task."
    )
    names = {one.name for one in split_objective(trained.run.data.objective).values()}
    if trained.step and names == {"masked_lm"}:
        use += f" Masked words were the only objective: {family.idle} learned nothing here."
    text = (
        "It repeats what its text says, errors and prejudices included. Nothing but the figures above was measured; "
        "no licence is stated for the weights, and the licence of the data is for the reader to check."
    )
    tokens = (
        f"A special token written out in a text (`{gap}`) is read as that token, where Cloze itself, when it reads a "
        "corpus, takes it for text."
    )
    return "\n\n".join([use, text, tokens])


def _size(count):
    return f"{count / 1e6:.1f}M-parameter" if count >= 1e5 else f"{count:,}-parameter"
