"""Answers that a fine-tuned model generates as text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from data.examples.choice_questions import parse_question
from data.examples.labelled_examples import clean_text, parse_text
from data.examples.records import read_texts, read_words
from data.examples.tag_schemes import PLAIN
from data.examples.tagged_sentences import USUAL_KEYS
from data.examples.tags_as_text import tag_words
from data.examples.text_pairs import decode_output, format_source, make_answer_reader
from data.objectives.text2text import Text2Text
from models.generation.sampling import Greedy
from pretrain.inference.batching import name_places
from pretrain.inference.text_generation import TextWriter

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained


class AnswerGenerator(TextWriter):
    """Generates the answers to texts, each a tuple as `make_reader` returns it.

    A result has the generated text as `written` and, if the model learned it, `label`, `score` or
    `answer`, or `tags` and `entities` (predict_tags.py). A label or score is None if the text is
    not one, an answer is "" if the text says that there is no answer. A text longer than a row in
    training is truncated as there, and its result has "cut": true.
    """

    def __init__(
        self,
        trained: Trained,
        length: int | None,
        batch_size: int,
        strategy: Any = Greedy(),
        no_repeat_ngram: int | None = None,
        seed: int = 0,
    ) -> None:
        self.objective: Any = trained.run.data.objective
        max_length: int = length or self.objective.target_length
        super().__init__(trained, max_length, batch_size, strategy, no_repeat_ngram, seed)
        self.tokenizer.enable_truncation(self.objective.length)
        self.forms = {part.task: part for part in self.objective.tasks or (self.objective,)}
        self.reads = {
            name: make_answer_reader(form, trained.vocabulary) for name, form in self.forms.items()
        }

    def __call__(
        self, texts: Sequence[Any], places: Sequence[str | None], first: int = 0
    ) -> list[dict[str, Any]]:
        """Return the result of each text.

        Args:
          first: the number of texts before these, from which the random seeds follow.
        """
        texts = [parse_parts(parts, place) for parts, place in zip(texts, name_places(places))]
        names = [self.find_task(parts) for parts in texts]
        # A text that names its task itself is read as it is.
        forms = [self.forms.get(name, Text2Text()) for name in names]
        reads = map(self.reads.get, names)
        sources = [
            format_source(form, parts[bool(form.task) :]) for form, parts in zip(forms, texts)
        ]
        encodings = self.tokenizer.encode_batch(sources)
        if num_cut := sum(bool(encoding.overflowing) for encoding in encodings):
            print(
                f"{num_cut:,} of {len(texts):,} texts are longer than a row of "
                f"{self.objective.length} tokens and were truncated",
                file=sys.stderr,
            )
        return [
            self.make_result(form, read, ids, parts[bool(form.task) :])
            | ({"cut": True} if encoding.overflowing else {})
            for form, read, ids, parts, encoding in zip(
                forms,
                reads,
                self.generate_ids([encoding.ids for encoding in encodings], first),
                texts,
                encodings,
            )
        ]

    def find_task(self, parts: Sequence[str]) -> str | None:
        """Return the task's name of a text: "" in a run of one task, None if the text names it."""
        return "" if not self.objective.tasks else parts[0] if len(parts) > 1 else None

    def make_result(
        self, form: Text2Text, read: Any, ids: Sequence[int], texts: Sequence[str]
    ) -> dict[str, Any]:
        """Return the result of one text.

        Args:
          read: the function that parses a generated text, see `text_pairs.make_answer_reader`.
        """
        text = decode_output(self.vocabulary, ids)
        if form.scheme:
            found = [entity for entity in read(text, texts) if entity.start < len(texts)]
            entities = [
                entity._asdict() | {"text": " ".join(texts[entity.start : entity.end])}
                for entity in found
            ]
            return {
                "written": text,
                "tags": tag_words(found, len(texts), form.scheme),
                "entities": entities if form.scheme != PLAIN else [],
            }
        kinds = {"label": form.labels, "score": form.step, "answer": form.questions}
        return {"written": text} | {key: read(text) for key, learned in kinds.items() if learned}


def parse_parts(parts: Sequence[str], place: str) -> list[str]:
    """Return the texts of an example as the vocabulary reads them; one of a pair may be empty."""
    if len(parts) != 2 or not any(map(clean_text, parts)):
        return [parse_text(part, place) for part in parts]
    return [clean_text(part) for part in parts]


def make_blank(trained: Trained) -> dict[str, Any]:
    """Return the result of a blank line."""
    objective: Any = trained.run.data.objective
    if objective.scheme:
        return {"written": "", "tags": [], "entities": []}
    kinds = {"label": objective.labels, "score": objective.step}
    answer = {"answer": ""} if objective.questions else {}
    return {"written": ""} | {name: None for name, learned in kinds.items() if learned} | answer


def make_reader(trained: Trained) -> Callable[[dict[str, Any], str | None], tuple[str, ...]]:
    """Return a function (record, place) that returns the texts of a record.

    The place is None on the command line. In a run of several tasks the first text is the name of
    the task; a record with only a `text` becomes the tuple (text,), which is read as it is and so
    must start with the prefix of its task.
    """
    objective: Any = trained.run.data.objective
    forms = {part.task: part for part in objective.tasks or (objective,)}

    def read_task_texts(form: Text2Text, record: dict[str, Any], place: str) -> tuple[str, ...]:
        if form.scheme:
            return read_words(record, place, [form.columns[0], *(words for words, _ in USUAL_KEYS)])
        if not form.choices:
            return read_texts(record, place, form.columns[:-1])
        question_texts = parse_question(record, place).texts
        if len(question_texts) != form.choices + 1:
            raise ValueError(
                f"{place}: {len(question_texts) - 1} choices; this model was fine-tuned on "
                f"questions with {form.choices}"
            )
        return question_texts

    def read_record(record: dict[str, Any], place: str | None) -> tuple[str, ...]:
        place = place or "the command line"
        if not objective.tasks:
            return read_task_texts(objective, record, place)
        if record.keys() == {"text"} and isinstance(record["text"], str):
            return (record["text"],)
        name = record.get("task")
        if not isinstance(name, str) or name not in forms:
            raise ValueError(
                f"{place}: column 'task' is {name!r}; expected one of {', '.join(forms)}, or only "
                "a column 'text'"
            )
        return (name, *read_task_texts(forms[name], record, place))

    return read_record
