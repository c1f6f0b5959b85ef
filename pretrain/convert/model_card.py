"""The model card of an export: what it is, what it read, how well it did, how to load it, and what nobody checked."""

import math

import jax

from data.examples.tags_as_text import NONE, UNTYPED
from data.examples.text2text import NOTHING, source_of
from data.objectives.text2text import Text2Text
from models.config.heads import (
    ChoiceConfig,
    ClassifierConfig,
    HeadedConfig,
    SpanReaderConfig,
    TaggerConfig,
)
from pretrain.convert import name_of

# What a fine-tuned model is for, whatever its encoder.
HEADS = {
    ClassifierConfig: "text-classification",
    TaggerConfig: "token-classification",
    ChoiceConfig: "multiple-choice",
    SpanReaderConfig: "question-answering",
}
TASKS = {
    "bert": "fill-mask",
    "roberta": "fill-mask",
    "albert": "fill-mask",
    "electra": "feature-extraction",
    "t5": "text2text-generation",
    "openai-gpt": "text-generation",
    "gpt2": "text-generation",
    "marian": "translation",
    "bart": "text2text-generation",
    "distilbert": "fill-mask",
}
TITLES = {
    "bert": "BERT encoder",
    "roberta": "RoBERTa encoder",
    "albert": "ALBERT encoder",
    "electra": "ELECTRA encoder and its generator",
    "t5": "T5 encoder-decoder",
    "openai-gpt": "GPT decoder",
    "gpt2": "GPT-2 decoder",
    "marian": "Transformer encoder-decoder",
    "bart": "BART encoder-decoder",
    "distilbert": "DistilBERT encoder",
}


def written(prompt):
    """Lines that let a model write behind a prompt, or in answer to it."""
    return (
        f'ids = model.generate(**tokenizer("{prompt}", return_tensors="pt"), max_new_tokens=20)',
        "print(tokenizer.decode(ids[0]))",
    )


# By task: what it does, the class that loads it, and lines that use it.
USES = {
    "fill-mask": (
        "It fills gaps (`{gap}`)",
        "AutoModelForPreTraining",
        ('pipeline("fill-mask", model="{folder}")("It is a {gap}.")',),
    ),
    "feature-extraction": (
        "It tells words that do not belong in a text, and its generator fills gaps (`{gap}`)",
        "AutoModelForPreTraining",
        (
            "# above 0: this token is likely not the one that stood here",
            'print(model(**tokenizer("It is a text.", return_tensors="pt")).logits)',
            'pipeline("fill-mask", model="{folder}/generator")("It is a {gap}.")',
        ),
    ),
    "text2text-generation": (
        "It fills gaps (`{gap}`)",
        "AutoModelForSeq2SeqLM",
        written("It is a {gap}."),
    ),
    "translation": (
        "It writes what its pairs had as the target of such a text",
        "AutoModelForSeq2SeqLM",
        written("It is a test."),
    ),
    "text-classification": (
        "It tells the label or the score of a text, or of a pair of texts",
        "AutoModelForSequenceClassification",
        ('pipeline("text-classification", model="{folder}")("It is a text.")',),
    ),
    "token-classification": (
        "It tells the tag of each word",
        "AutoModelForTokenClassification",
        (
            'pipeline("token-classification", model="{folder}", aggregation_strategy="first")("It is a text.")',
        ),
    ),
    "multiple-choice": (
        "It tells which of some texts goes on with a text, or answers a question",
        "AutoModelForMultipleChoice",
        (
            'ids = tokenizer(["He opens the door."] * 2, ["He goes in.", "It rains."], padding=True, return_tensors="pt")',
            "print(model(**{{name: array[None] for name, array in ids.items()}}).logits.softmax(-1))",
        ),
    ),
    "text2text": (
        "It writes the answers that it was taught (`{asked}`)",
        "AutoModelForSeq2SeqLM",
        written("{asked}"),
    ),
    "question-answering": (
        "It tells where in a text the answer to a question stands",
        "AutoModelForQuestionAnswering",
        (
            'ids = tokenizer("Who sleeps?", "The fox sleeps.", return_tensors="pt")',
            "scores = model(**ids)",
            "first, last = scores.start_logits.argmax(), scores.end_logits.argmax()",
            "print(tokenizer.decode(ids.input_ids[0, first : last + 1]))",
        ),
    ),
    "text-generation": ("It continues a text", "AutoModelForCausalLM", written("It is a")),
}
IDLE = {  # what masked words alone do not train
    "bert": "the pooler and the next-sentence head",
    "albert": "the pooler and the sentence-order head",
    "roberta": "the pooler",
}
OBJECTIVES = {
    "masked_lm": "masked words ({rate:.0%} of the tokens, rows of {length}, at most {predictions} masks a row)",
    "sentence_pair": "masked words ({rate:.0%}) and next sentence ({random_next:.0%} of the pairs are of two "
    "documents), rows of {length}",
    "sentence_order": "masked words ({rate:.0%}, up to {ngram} in a row) and the order of two texts, rows of {length}",
    "distillation": "masked words ({rate:.0%}), and what a larger BERT thinks of them, rows of {length}",
    "replaced_token": "replaced words (a generator fills {rate:.0%} of the tokens, which are told from the text's), rows of {length}",
    "span_corruption": "span corruption ({rate:.0%} of the tokens, spans of {mean_span:g}, inputs of {inputs})",
    "denoising": "the text, from one whose sentences were shuffled and whose spans were hidden ({rate:.0%} of the tokens, rows of {length})",
    "prefix_lm": "the rest of a text ({length} tokens, cut anywhere)",
    "seq2seq": "the targets of pairs of texts (several in rows of {length} and {target_length})",
    "classification": "the labels of examples, rows of {length}",
    "tagging": "the tags of words, rows of {length}",
    "multiple_choice": "the right one of {choices} choices, rows of {length}",
    "regression": "the scores of examples, rows of {length}",
    "text2text": "answers, written as text (inputs of {length}, answers of {target_length})",
    "answer_span": "where answers to questions begin and end, rows of {length} that share {stride} tokens of a longer context",
    "causal_lm": "the next token, rows of {length} across documents",
}


def task_of(config):
    """What a model is for, as the hub names it."""
    return HEADS.get(type(config)) or TASKS[name_of(config)]


def of(trained):
    """The card of a checkpoint, as Markdown. Says only what the run's own files say."""
    run = trained.run
    family = name_of(run.model)
    size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(trained.params))
    sections = [
        "\n".join(
            [
                "---",
                "library_name: transformers",
                f"pipeline_tag: {task_of(run.model)}",
                f"tags: [{family}]",
                "---",
            ]
        ),
        f"# A {_size(size)} {TITLES[family]}\n\n{_story(trained)}",
        "\n".join(
            [
                "| | |",
                "|-|-|",
                *(f"| {name} | {value} |" for name, value in _facts(trained, family, size)),
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
        line.format(folder=folder, gap=_gap(name_of(run.model), vocabulary), **places)
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
    return "<extra_id_0>" if family == "t5" else vocabulary.pieces[next(named)]


def _story(trained):
    origin = trained.origin()
    if origin is None:
        return f"Pretrained from random parameters with Cloze, for {trained.step:,} steps."
    if averaged := origin.get("averaged"):
        return f"The mean of the checkpoints of steps {', '.join(f'{step:,}' for step in averaged)} of `{origin['folder']}`, trained with Cloze."
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


def _facts(trained, family, size):
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
        f"{depth} layers, hidden size {model.width}, {model.heads} heads, feed-forward {model.mlp}",
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
    elif family == "electra":
        own = f"hidden size {model.generator_width}, {model.generator_heads} heads, feed-forward {model.generator_mlp}"
        yield (
            "generator",
            f"{depth} layers, {own}, in the folder `generator`; it reads the same embeddings",
        )
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
    if not (step := trained.step or max((trained.origin() or {}).get("averaged", [0]))):
        return
    yield "objective", OBJECTIVES[objective.name].format(**vars(objective))
    yield "data", _data(trained)
    yield "steps", f"{step:,} of {run.data.batch_size} rows each"
    yield (
        "optimizer",
        f"{type(run.optimizer).__name__}, peak learning rate {run.optimizer.learning_rate:g}",
    )
    yield "arithmetic", f"{run.train.compute}; these weights are float32"


def _data(trained):
    manifest = trained.manifest()
    if manifest is None:
        return f"a token store that is no longer at hand ({trained.run.data.store or 'unnamed'})"
    train = manifest["splits"]["train"]
    named = ", ".join(f"{source['name']} ({source['rate']:.0%})" for source in manifest["sources"])
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
        [*lines, *(f"| {name.replace('_', ' ')} | {value:.5g} |" for name, value in scores)]
    )


def _limits(trained, family):
    gap = _gap(family, trained.vocabulary)
    (does, *_), places = use_of(trained.run)
    use = f"{does.format(gap=gap, **places)}; it follows no instructions"
    use += (
        " and knows no other task."
        if fine_tuned(trained.run)
        else " and was not fitted to any task."
    )
    if trained.step and trained.run.data.objective.name == "masked_lm":
        use += f" Masked words were the only objective: {IDLE[family]} learned nothing here."
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
