"""What a fine-tuned model writes: read as a label where it learned some, compared with the answers of the held-out part, and told by `predict`.

B batch   L input length   T written length
"""

import json
import sys

import jax
import numpy as np

from data.labelled import text_of
from data.objectives.text2text import ANSWERS
from data.text2text import reading, source_of, spelt
from models.decoding import generator, unrolled
from pretrain.finetune.metrics import METRICS, judged_as, measured
from pretrain.ragged import named
from pretrain.sharding import gathered, replicated
from pretrain.write import Writer


# ---- the held-out part ---------------------------------------------------------


class HeldOut:
    """What a model writes for the rows of a part, the likeliest word at each step, and how good it is.

    No more than `target_length` tokens of the objective are written. Computed in float32, as `predict` does, on the mesh of the parameters.
    """

    def __init__(self, model, mesh, data, vocabulary):
        self.objective, self.vocabulary, self.model = data.objective, vocabulary, model
        self.read = reading(data.objective, vocabulary)
        how = dict(length=data.objective.target_length, start=getattr(model.config, "start", 0), end=vocabulary.eos, pad=vocabulary.pad)
        lean, _ = unrolled(model, {})

        def write(params, inputs_BL, valid_BL):
            _, params = unrolled(model, gathered(mesh)(params))
            return generator(lean, data.batch_size, **how)(params, inputs_BL, valid_BL)

        self.write = jax.jit(write, out_shardings=replicated(mesh))

    def __call__(self, params, batch):
        """The texts that are written for the rows of a batch on the mesh."""
        written_BT = jax.device_get(self.write(params, batch["inputs"], batch["inputs_valid"])).tolist()
        return [spelt(self.vocabulary, ids) for ids in written_BT]

    def scores(self, metrics, texts, split):
        """{name: number} of METRICS; of classes and scores also "no_label", how many texts say none: they count as wrong."""
        with open(split.folder / ANSWERS, encoding="utf-8") as file:
            answers = [json.loads(line) for line in file]
        kind, _ = judged_as(self.objective, self.model.config)
        if kind == self.objective.name:
            return {name: float(METRICS[name].score(texts, answers)) for name in metrics}
        if self.objective.labels:
            right = [self.objective.words.index(answer) for answer in answers]
            number = {label: i for i, label in enumerate(self.objective.labels)}
            predicted = [number.get(self.read(text)) for text in texts]
            wrong = lambda i: (i + 1) % len(number)  # noqa: E731
        else:
            right, predicted = [float(answer) for answer in answers], [self.read(text) for text in texts]
            low, high = min(right), max(right)
            wrong = lambda score: high if 2 * score < low + high else low  # noqa: E731
        rows_N3 = np.array([(wrong(known) if told is None else told, known, 1) for told, known in zip(predicted, right, strict=True)])
        return measured(metrics, rows_N3) | {"no_label": predicted.count(None)}


# ---- predict -------------------------------------------------------------------


class Answers(Writer):
    """Calling it with texts, each a tuple as `reader` gives, gives {"written"}, with "label" or "score" where the model learned such.

    These are None where it wrote something else. What is longer than a row of its training is cut as there, and the result has "cut": true.
    """

    def __init__(self, trained, length, batch_size, **how):
        self.objective = trained.run.data.objective
        super().__init__(trained, length or self.objective.target_length, batch_size, **how)
        self.tokenizer.enable_truncation(self.objective.length)
        self.read = reading(self.objective, trained.vocabulary)
        self.key = "label" if self.objective.labels else "score" if self.objective.step else None

    def __call__(self, texts, places, first=0):
        sources = [source_of(self.objective, [text_of(part, place) for part in parts]) for parts, place in zip(texts, named(places))]
        encodings = self.tokenizer.encode_batch(sources)
        if most := sum(bool(encoding.overflowing) for encoding in encodings):
            print(f"{most:,} of {len(texts):,} texts are longer than a row of {self.objective.length} tokens and were cut", file=sys.stderr)
        return [
            self.result(ids) | ({"cut": True} if encoding.overflowing else {})
            for ids, encoding in zip(self.written([encoding.ids for encoding in encodings], first), encodings)
        ]

    def result(self, ids):
        text = spelt(self.vocabulary, ids)
        return {"written": text} | ({self.key: self.read(text)} if self.key else {})
