"""The stores of tests/net_driver.py, written by this tree's code from given sentences."""

import json

from data import labelled, question_store, tagged
from data.objectives import Text2Text
from data.prepare import prepare
from data.questions import Question
from data.request import Request
from data.text2text import write_pairs

LABELS = ("LABEL_0", "LABEL_1", "LABEL_2")  # as the given classifiers have them
TAGS = ("O", "B-a", "I-a")
FIELDS = {"record": "text", "pair": "source,target"}


def prepared(lines, document):
    """Return what writes the store of a file of text, encoded with a saved vocabulary."""

    def write(path, vocabulary, sentences):
        vocabulary.save(path.with_name("vocabulary"))
        source = path.with_name("corpus.jsonl")
        source.write_text("".join(json.dumps(line) + "\n" for line in lines(sentences)))
        request = Request((str(source),), vocabulary=str(path.with_name("vocabulary")), held_out=0.1, document=document, field=FIELDS[document])
        prepare(request, path)

    return write


def documents(sentences):
    return [{"text": " ".join(sentences[i : i + 1 + i % 7])} for i in range(0, len(sentences), 3)]


def translations(sentences):
    return [{"source": one, "target": other} for one, other in zip(sentences, reversed(sentences))]


def split(examples):
    return {"train": examples[:-4], "heldout": examples[-4:]}


def write_labels(path, vocabulary, sentences):
    examples = [labelled.Example((text, sentences[-i]), LABELS[i * i % 7 % 3], f"here:{i}") for i, text in enumerate(sentences)]
    labelled.write_labelled(path, vocabulary, split(examples), LABELS)


def write_choices(path, vocabulary, sentences):
    examples = [labelled.Example((text, sentences[-i], sentences[i // 2]), "01"[i * i % 7 % 2], f"here:{i}") for i, text in enumerate(sentences)]
    labelled.write_labelled(path, vocabulary, split(examples), ("0", "1"))


def write_tags(path, vocabulary, sentences):
    words = [tuple(text.split()) for text in sentences]
    examples = [tagged.Sentence(one, tuple(TAGS[i * i % 3] for i in range(len(one))), "here", 1, 1) for one in words]
    tagged.write_tagged(path, vocabulary, split(examples), TAGS)


def write_questions(path, vocabulary, sentences):
    questions = []
    for i, text in enumerate(sentences):
        context = " ".join(sentences[i // 3 : i // 3 + 3])
        start = context.index(" ", i % 20) + 1
        answers = ((context[start:].split()[0], start),) if i % 4 < 3 else ()
        questions.append(Question(str(i), text, context, answers, f"here:{i}"))
    parts = split(questions)
    question_store.write_questions(path, vocabulary, parts, {name: question_store.encode(vocabulary, part) for name, part in parts.items()})


def write_answers(path, vocabulary, sentences):
    write_pairs(path, vocabulary, Text2Text(), split(list(zip(sentences, reversed(sentences)))))


STORES = {
    "text": prepared(documents, "record"),
    "pairs": prepared(translations, "pair"),
    "labels": write_labels,
    "choices": write_choices,
    "tags": write_tags,
    "questions": write_questions,
    "answers": write_answers,
}
