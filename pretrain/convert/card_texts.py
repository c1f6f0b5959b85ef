"""What a model card says of each task and objective."""

from models.config.heads import (
    ChoiceConfig,
    ClassifierConfig,
    SpanReaderConfig,
    TaggerConfig,
)

# What a fine-tuned model is for, whatever its encoder.
HEADS = {
    ClassifierConfig: "text-classification",
    TaggerConfig: "token-classification",
    ChoiceConfig: "multiple-choice",
    SpanReaderConfig: "question-answering",
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
