"""Texts of model cards by task, and the formatting of names and sizes."""

import json

from models.config.choice import ChoiceConfig
from models.config.classifier import ClassifierConfig
from models.config.embedder import EmbedderConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.host.terminal import escape, escape_line

# The task of a fine-tuned model, for any encoder.
HEAD_TASKS = {
    ClassifierConfig: "text-classification",
    TaggerConfig: "token-classification",
    ChoiceConfig: "multiple-choice",
    SpanReaderConfig: "question-answering",
    EmbedderConfig: "sentence-similarity",
}


UNLICENSED = "No licence is stated for the weights;"


def make_generation_lines(prompt: str) -> tuple[str, str]:
    """Return lines of Python that generate text from a prompt."""
    return (
        f'ids = model.generate(**tokenizer("{prompt}", return_tensors="pt"), max_new_tokens=20)',
        "print(tokenizer.decode(ids[0]))",
    )


# {task, or `Family.use`: (what the model does, lines of Python that use it)}. A value is inserted
# by `format_code` in the first and by `format_literal` in the last.
USES = {
    "fill-mask": (
        "It fills gaps ({gap})",
        ('pipeline("fill-mask", model="{folder}")("It is a {gap}.")',),
    ),
    "fill-mask by a query": (
        "It fills gaps ({gap})",
        (
            'ids = tokenizer("It is a {gap}.", return_tensors="pt", return_token_type_ids=False)',
            "is_gap = (ids.input_ids == tokenizer.mask_token_id).float()[:, None]",
            "hidden = is_gap.repeat(1, ids.input_ids.shape[1], 1)  # no token sees the gap",
            "scores = model(**ids, perm_mask=hidden, target_mapping=is_gap).logits",
            "print(tokenizer.decode(scores[0].argmax(-1)))",
        ),
    ),
    "feature-extraction": (
        "It detects words that do not belong in a text, and its generator fills gaps ({gap})",
        (
            "# above 0: this token is probably not the original one",
            'print(model(**tokenizer("It is a text.", return_tensors="pt")).logits)',
            'pipeline("fill-mask", model="{folder}/generator")("It is a {gap}.")',
        ),
    ),
    "states of tokens": (
        "It gives states of the tokens of a text, and its generator fills gaps ({gap})",
        (
            'print(model(**tokenizer("It is a text.", return_tensors="pt")).last_hidden_state)',
            'pipeline("fill-mask", model="{folder}/generator")("It is a {gap}.")',
        ),
    ),
    "text2text-generation": ("It fills gaps ({gap})", make_generation_lines("It is a {gap}.")),
    "translation": (
        "It writes the target text of a source text, as in its training pairs",
        make_generation_lines("It is a test."),
    ),
    "text-classification": (
        "It predicts the label or the score of a text, or of a pair of texts",
        ('pipeline("text-classification", model="{folder}")("It is a text.")',),
    ),
    "token-classification": (
        "It predicts the tag of each word",
        (
            'pipeline("token-classification", model="{folder}", '
            'aggregation_strategy="first")("It is a text.")',
        ),
    ),
    "multiple-choice": (
        "It chooses the text that continues another one, or that answers a question",
        (
            'ids = tokenizer(["He opens the door."] * 2, ["He goes in.", "It rains."], '
            'padding=True, return_tensors="pt")',
            "print(model(**{{name: array[None] for name, array in ids.items()}})"
            ".logits.softmax(-1))",
        ),
    ),
    "sentence-similarity": (
        "It gives a text a vector; texts that are alike have vectors with a high cosine",
        (
            'vectors = model.encode(["It is a text.", "This is another."])',
            "print(model.similarity(vectors, vectors))",
        ),
    ),
    "text2text": (
        "It writes the answers that it was trained on ({prompt})",
        make_generation_lines("{prompt}"),
    ),
    "question-answering": (
        "It finds the answer to a question in a text",
        (
            'ids = tokenizer("Who sleeps?", "The fox sleeps.", return_tensors="pt")',
            "scores = model(**ids)",
            "first, last = scores.start_logits.argmax(), scores.end_logits.argmax()",
            "print(tokenizer.decode(ids.input_ids[0, first : last + 1]))",
        ),
    ),
    "text-generation": ("It continues a text", make_generation_lines("It is a")),
}


# {end of the name of a class: the Auto class of transformers that opens its folder}. Of any other
# class it is "AutoModel" before the same end.
AUTO_CLASSES = {
    "NeoBERTLMHead": "AutoModelForMaskedLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ModelWithLMHead": "AutoModelForCausalLM",
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "MTModel": "AutoModelForSeq2SeqLM",
    "ForImageClassificationWithTeacher": "AutoModelForImageClassification",
    "Model": "AutoModel",
}


def name_auto_class(architecture: str) -> str:
    """Return the class of transformers that opens every folder of an architecture.

    architecture: of config.json, such as BertForPreTraining.
    """
    for end, auto_class in AUTO_CLASSES.items():
        if architecture.endswith(end):
            return auto_class
    return "AutoModel" + architecture[architecture.index("For") :]


def format_code(text: object) -> str:
    """Return a foreign text as inline code, in which neither Markdown nor HTML means anything.

    Names of labels, files, pieces and sources come from others. What would end the code or the
    table around it, and control characters, are escaped as in JSON.
    """
    shown = escape_line(text).replace("`", "\\u0060").replace("|", "\\u007c")
    return f"`{shown}`" if shown else "(empty)"


def format_literal(text: str) -> str:
    """Return a foreign text as the inside of a Python string in double quotes."""
    return escape(json.dumps(text, ensure_ascii=False)[1:-1])


def format_size(count: int) -> str:
    """Return a number of parameters as an adjective."""
    return f"{count / 1e6:.1f}M-parameter" if count >= 1e5 else f"{count:,}-parameter"


def format_license(license: str | None) -> str:
    """Return the line of a card's header on the licence, or ""."""
    return f"license: {license}\n" if license else ""


def describe_code(code: str) -> list[str]:
    """Return a paragraph on the code of a folder that runs where it is opened; [] without any.

    code: as of `HuggingFaceMap`.
    """
    if not code:
        return []
    place = f"`{code}` of this folder" if code.endswith(".py") else f"the code of `{code}`"
    return [
        f"`transformers` has no such model: `trust_remote_code=True` runs {place}. Read it before "
        "you run it."
    ]


def describe_license(license: str | None) -> str:
    """Return the beginning of a sentence on the licence of the weights."""
    return f"The weights have the licence {license};" if license else UNLICENSED
