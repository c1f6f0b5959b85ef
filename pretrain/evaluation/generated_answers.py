"""What a fine-tuned model writes: read as a label where it learned some, compared with the answers of the held-out part, and told by `predict`.

B batch   L input length   T written length
"""

import sys

import jax
import numpy as np

from data.corpus.json_lines import parse_json_lines
from data.examples.labelled import text_of
from data.examples.multiple_choice import question_of
from data.examples.records import read_texts, read_words
from data.examples.tag_schemes import PLAIN
from data.examples.tagging import USUAL
from data.examples.tags_as_text import segments, tagged
from data.examples.text2text import reading, source_of, spelt
from data.objectives.text2text import ANSWERS, Text2Text
from models.generation.generate import generator, unstack_model
from models.generation.sampling import Greedy
from pretrain.distributed.sharding import gathered, replicated
from pretrain.evaluation.ner_metrics import rates
from pretrain.evaluation.qa_spans import by_kind, judged_texts
from pretrain.evaluation.task_metrics import METRICS, TAGGED, WRITTEN, judged_as, measured, wanted
from pretrain.inference.batching import named
from pretrain.inference.generate import Writer

PERCENT = ("bleu", "rouge1", "rouge2", "rougeL")  # out of 100; the others are shares of 1


# ---- the held-out part ---------------------------------------------------------


class HeldOut:
    """What a model writes for the rows of a part, the likeliest word at each step, and how good it is.

    No more than `target_length` tokens of the objective are written. Computed in float32, as `predict` does, on the mesh of the parameters.
    """

    def __init__(self, model, mesh, stream):
        """stream: the `data.pipeline.Stream` of the part."""
        data, vocabulary = stream.data, stream.vocabulary
        self.objective, self.vocabulary = data.objective, vocabulary
        lean, _ = unstack_model(model, {})

        def write(params, inputs_BL, valid_BL):
            _, params = unstack_model(model, gathered(mesh)(params))
            generate = generator(
                lean,
                data.batch_size,
                length=data.objective.target_length,
                start=getattr(model.config, "start", 0),
                end=vocabulary.eos,
                pad=vocabulary.pad,
            )
            return generate(params, inputs_BL, valid_BL)

        self.write = jax.jit(write, out_shardings=replicated(mesh))

    def __call__(self, params, batch):
        """The texts that are written for the rows of a batch on the mesh."""
        written_BT = jax.device_get(
            self.write(params, batch["encoder_token_ids"], batch["encoder_attention_mask"])
        ).tolist()
        return [spelt(self.vocabulary, ids) for ids in written_BT]

    def scores(self, metrics, texts, split):
        """What `judged` tells of the part; of several tasks {"task/name": number} of each that has rows there, and {name: number} over these."""
        answers = parse_json_lines((split.folder / ANSWERS).read_text(encoding="utf-8"))
        if not self.objective.tasks:
            return judged(self.objective, self.vocabulary, metrics, texts, answers)
        found, means = {}, []
        for each, source in zip(self.objective.tasks, split.sources, strict=True):
            if not (rows := slice(*source.documents)).stop > rows.start:
                continue
            scores = judged(each, self.vocabulary, each.metrics, texts[rows], answers[rows])
            means.append(
                np.mean([scores[name] / (100 if name in PERCENT else 1) for name in each.metrics])
            )
            found |= {f"{each.task}/{name}": value for name, value in scores.items()}
        return {name: float(METRICS[name].score(means)) for name in metrics} | found


def judged(objective, vocabulary, metrics, texts, answers):
    """{name: number} of METRICS of what was written; of classes and scores also "no_label", how many texts say none: they count as wrong."""
    (kind, _), read = judged_as(objective, None), reading(objective, vocabulary)
    if kind == objective.name:
        return {name: float(METRICS[name].score(texts, answers)) for name in metrics}
    if kind == TAGGED:
        return judged_tags(read, objective.scheme, metrics, texts, answers)
    predicted = [read(text) for text in texts]
    if kind == WRITTEN:
        exact_Q, f1_Q = judged_texts(predicted, answers, objective.questions == "squad2")
        return wanted(metrics, by_kind(exact_Q, f1_Q, answers, objective.questions == "squad2"))
    if objective.labels:
        right = [objective.words.index(answer) for answer in answers]
        number = {label: i for i, label in enumerate(objective.labels)}
        predicted = [number.get(label) for label in predicted]
        wrong = lambda i: (i + 1) % len(number)  # noqa: E731
    else:
        right = [float(answer) for answer in answers]
        low, high = min(right), max(right)
        wrong = lambda score: high if 2 * score < low + high else low  # noqa: E731
    rows_N3 = np.array(
        [
            (wrong(known) if told is None else told, known, 1)
            for told, known in zip(predicted, right, strict=True)
        ]
    )
    return measured(metrics, rows_N3) | {"no_label": predicted.count(None)}


def judged_tags(read, scheme, metrics, texts, answers):
    """`judged` of tags. An entity that is told twice, or of words that the sentence has not, is told and not there."""
    total, hits = np.zeros(3, np.int64), []
    for text, answer in zip(texts, answers, strict=True):
        told, there = read(text, answer["words"]), segments(answer["tags"], scheme)
        total += len(there), len(told), len(set(there) & set(told))
        hits += [
            one == other
            for one, other in zip(
                tagged(told, len(answer["words"]), scheme), answer["tags"], strict=True
            )
        ]
    found = rates(*total.tolist()) | {"tag_accuracy": sum(hits) / len(hits)}
    return {name: found[name] for name in metrics}


# ---- predict -------------------------------------------------------------------


class AnswerWriter(Writer):
    """Calling it with texts, each a tuple as `reader` gives, gives {"written"}, and "label", "score", "answer", or "tags" and "entities" as tags.py has
    them, where the model learned such.

    Labels and scores are None where it wrote something else, an answer is "" where it wrote that there is none. What is longer than a row of its
    training is cut as there, and the result has "cut": true.
    """

    def __init__(
        self, trained, length, batch_size, strategy=Greedy(), no_repeat_ngram=None, seed=0
    ):
        self.objective = trained.run.data.objective
        length = length or self.objective.target_length
        super().__init__(trained, length, batch_size, strategy, no_repeat_ngram, seed)
        self.tokenizer.enable_truncation(self.objective.length)
        self.forms = {each.task: each for each in self.objective.tasks or (self.objective,)}
        self.reads = {name: reading(each, trained.vocabulary) for name, each in self.forms.items()}

    def __call__(self, texts, places, first=0):
        texts = [
            [text_of(part, place) for part in parts] for parts, place in zip(texts, named(places))
        ]
        names = [self.task_of(parts) for parts in texts]
        forms = [
            self.forms.get(name, Text2Text()) for name in names
        ]  # of no task of several: as it stands
        reads = map(self.reads.get, names)
        sources = [source_of(form, parts[bool(form.task) :]) for form, parts in zip(forms, texts)]
        encodings = self.tokenizer.encode_batch(sources)
        if most := sum(bool(encoding.overflowing) for encoding in encodings):
            print(
                f"{most:,} of {len(texts):,} texts are longer than a row of {self.objective.length} tokens and were cut",
                file=sys.stderr,
            )
        return [
            self.result(form, read, ids, parts[bool(form.task) :])
            | ({"cut": True} if encoding.overflowing else {})
            for form, read, ids, parts, encoding in zip(
                forms,
                reads,
                self.written([encoding.ids for encoding in encodings], first),
                texts,
                encodings,
            )
        ]

    def task_of(self, parts):
        """The name of the task that a text is of: "" of a run of one, None of a text that names its task itself."""
        return "" if not self.objective.tasks else parts[0] if len(parts) > 1 else None

    def result(self, form, read, ids, texts):
        text = spelt(self.vocabulary, ids)
        if form.scheme:
            found = [one for one in read(text, texts) if one.start < len(texts)]
            spelled = (
                [one._asdict() | {"text": " ".join(texts[one.start : one.end])} for one in found]
                if form.scheme != PLAIN
                else []
            )
            return {
                "written": text,
                "tags": tagged(found, len(texts), form.scheme),
                "entities": spelled,
            }
        kinds = {"label": form.labels, "score": form.step, "answer": form.questions}
        return {"written": text} | {key: read(text) for key, learned in kinds.items() if learned}


def reader(trained):
    """A function (record, place) -> the texts in it, place: None on the command line; of several tasks the task's name in front of them.

    Of several a text alone is (text,): it is read as it stands, and so begins as its task's inputs do.
    """
    objective = trained.run.data.objective
    forms = {each.task: each for each in objective.tasks or (objective,)}

    def texts(form, record, place):
        if form.scheme:
            return read_words(record, place, [form.columns[0], *(words for words, _ in USUAL)])
        if not form.choices:
            return read_texts(record, place, form.columns[:-1])
        found = question_of(record, place).texts
        if len(found) != form.choices + 1:
            raise ValueError(
                f"{place}: {len(found) - 1} choices; this model was taught to choose of {form.choices}"
            )
        return found

    def read(record, place):
        place = place or "the command line"
        if not objective.tasks:
            return texts(objective, record, place)
        if record.keys() == {"text"} and isinstance(record["text"], str):
            return (record["text"],)
        name = record.get("task")
        if not isinstance(name, str) or name not in forms:
            raise ValueError(
                f"{place}: column 'task' is {name!r}; expected one of {', '.join(forms)}, or a column 'text' alone"
            )
        return (name, *texts(forms[name], record, place))

    return read
