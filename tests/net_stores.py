"""The stores of tests/net_driver.py, written by this tree's code from given sentences."""

import json

from data.examples import labelled_examples, labelled_store, qa_store, tagged_sentences
from data.examples.qa import Question
from data.examples.text_pairs import write_pairs
from data.objectives import Text2Text
from data.prepare.build import prepare_store
from data.prepare.request import PrepareRequest

LABELS = ("LABEL_0", "LABEL_1", "LABEL_2")  # as in the given classifiers
TAGS = ("O", "B-a", "I-a")
FIELDS = {"record": "text", "pair": "source,target"}


def define_store(lines, document):
    """Return a function that writes the store of a text file, encoded with a saved vocabulary."""

    def write_store_of(path, vocabulary, sentences):
        vocabulary.save(path.with_name("vocabulary"))
        source = path.with_name("corpus.jsonl")
        source.write_text("".join(json.dumps(line) + "\n" for line in lines(sentences)))
        request = PrepareRequest(
            (str(source),),
            vocabulary=str(path.with_name("vocabulary")),
            held_out=0.1,
            document=document,
            field=FIELDS[document],
        )
        prepare_store(request, path)

    return write_store_of


def make_documents(sentences):
    return [{"text": " ".join(sentences[i : i + 1 + i % 7])} for i in range(0, len(sentences), 3)]


def make_translations(sentences):
    return [{"source": one, "target": other} for one, other in zip(sentences, reversed(sentences))]


def split_examples(examples):
    return {"train": examples[:-4], "heldout": examples[-4:]}


def write_labels(path, vocabulary, sentences):
    examples = [
        labelled_examples.Example((text, sentences[-i]), LABELS[i * i % 7 % 3], f"here:{i}")
        for i, text in enumerate(sentences)
    ]
    labelled_store.write_labelled(path, vocabulary, split_examples(examples), LABELS)


def write_choices(path, vocabulary, sentences):
    examples = [
        labelled_examples.Example(
            (text, sentences[-i], sentences[i // 2]), "01"[i * i % 7 % 2], f"here:{i}"
        )
        for i, text in enumerate(sentences)
    ]
    labelled_store.write_labelled(path, vocabulary, split_examples(examples), ("0", "1"))


def write_tags(path, vocabulary, sentences):
    words = [tuple(text.split()) for text in sentences]
    examples = [
        tagged_sentences.Sentence(
            one, tuple(TAGS[i * i % 3] for i in range(len(one))), "here", 1, 1
        )
        for one in words
    ]
    tagged_sentences.write_tagged(path, vocabulary, split_examples(examples), TAGS)


def write_questions(path, vocabulary, sentences):
    questions = []
    for i, text in enumerate(sentences):
        context = " ".join(sentences[i // 3 : i // 3 + 3])
        start = context.index(" ", i % 20) + 1
        answers = ((context[start:].split()[0], start),) if i % 4 < 3 else ()
        questions.append(Question(str(i), text, context, answers, f"here:{i}"))
    parts = split_examples(questions)
    qa_store.write_questions(
        path,
        vocabulary,
        parts,
        {name: qa_store.encode_questions(vocabulary, part) for name, part in parts.items()},
    )


def write_answers(path, vocabulary, sentences):
    write_pairs(
        path, vocabulary, Text2Text(), split_examples(list(zip(sentences, reversed(sentences))))
    )


STORES = {
    "text": define_store(make_documents, "record"),
    "pairs": define_store(make_translations, "pair"),
    "labels": write_labels,
    "choices": write_choices,
    "tags": write_tags,
    "questions": write_questions,
    "answers": write_answers,
}
