"""Scores of the answers that a fine-tuned model generates.

B batch   L input length   T generated length   Q questions   N texts
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from data.corpus.json_lines import parse_json_lines
from data.examples.tags_as_text import find_segments, tag_words
from data.examples.text_pairs import decode_output, make_answer_reader
from data.objectives.text2text import ANSWERS_FILE, Text2Text
from models.generation.decoding import make_generator, unstack_model
from pretrain.evaluation.ner_metrics import compute_rates
from pretrain.evaluation.qa_spans import average_by_answerability, score_answers
from pretrain.evaluation.task_metrics import (
    GENERATED_ANSWERS,
    GENERATED_TAGS,
    METRICS,
    compute_metrics,
    find_metric_kind,
    score_written_texts,
    select_metrics,
)
from pretrain.mesh.sharding import make_gather, make_replicated_sharding

if TYPE_CHECKING:
    from data.vocabulary.load import Vocabulary

# Out of 100; the others are shares of 1.
PERCENT = ("bleu", "bleu_13a", "bleu_zh", "bleu_char", "rouge1", "rouge2", "rougeL")


def make_generation_fn(
    model: Any, mesh: jax.sharding.Mesh, data: Any, vocabulary: Vocabulary
) -> Callable[..., jax.Array]:
    """Return the jitted (params, inputs [B, L], mask of real ids) -> written ids [B, T], greedily.

    B is the batch size, T the `target_length` of the objective.
    """
    unstacked_model, _ = unstack_model(model, {})
    ids: Any = vocabulary  # every model that writes texts has the two

    def generate_tokens(params: Any, inputs_BL: jax.Array, valid_BL: jax.Array) -> jax.Array:
        _, params = unstack_model(model, make_gather(mesh)(params))
        generate = make_generator(
            unstacked_model,
            data.batch_size,
            length=data.objective.target_length,
            start=model.config.start,
            end=ids.eos,
            pad=ids.pad,
        )
        return generate(params, inputs_BL, valid_BL)

    return jax.jit(generate_tokens, out_shardings=make_replicated_sharding(mesh))


class GeneratedAnswerEvaluator:
    """Generates the answers to the rows of a split, greedily, and scores them.

    At most `target_length` tokens of the objective are generated. Everything is computed in
    float32, as in `predict`, on the mesh of the parameters.
    """

    def __init__(self, model: Any, mesh: jax.sharding.Mesh, stream: Any) -> None:
        """Compile the generation."""
        self.objective, self.vocabulary = stream.data.objective, stream.vocabulary
        self.generate_tokens = make_generation_fn(model, mesh, stream.data, stream.vocabulary)

    def __call__(self, params: Any, batch: Mapping[str, jax.Array]) -> list[str]:
        """Return the generated texts of the rows of a batch on the mesh."""
        written_BT = jax.device_get(
            self.generate_tokens(
                params, batch["encoder_token_ids"], batch["encoder_attention_mask"]
            )
        ).tolist()
        return [decode_output(self.vocabulary, ids) for ids in written_BT]

    def score_texts(
        self, metrics: Sequence[str], texts: Sequence[str], split: Any
    ) -> dict[str, float | int]:
        """Return the scores of the generated texts of a split, see `score_generated_texts`.

        With several tasks they are {"task/name": score} of each task that has rows in the split,
        and the metrics of the run over these tasks.
        """
        answers = parse_json_lines((split.folder / ANSWERS_FILE).read_text(encoding="utf-8"))
        if not self.objective.tasks:
            return score_generated_texts(self.objective, self.vocabulary, metrics, texts, answers)
        found, means = {}, []
        for task, source in zip(self.objective.tasks, split.sources, strict=True):
            if not (rows := slice(*source.documents)).stop > rows.start:
                continue
            scores = score_generated_texts(
                task, self.vocabulary, task.metrics, texts[rows], answers[rows]
            )
            means.append(
                np.mean([scores[name] / (100 if name in PERCENT else 1) for name in task.metrics])
            )
            found |= {f"{task.task}/{name}": value for name, value in scores.items()}
        return {name: float(METRICS[name].compute_score(means)) for name in metrics} | found


def score_generated_texts(
    objective: Text2Text,
    vocabulary: Vocabulary,
    metrics: Sequence[str],
    texts: Sequence[str],
    answers: Sequence[Any],
) -> dict[str, float | int]:
    """Return the metrics of generated texts, by name.

    For classes and scores the result also has `no_label`, the number of texts that are none of
    them. They count as wrong.
    """
    (kind, _), read = find_metric_kind(objective, None), make_answer_reader(objective, vocabulary)
    if kind == objective.name:
        return score_written_texts(metrics, texts, answers)
    if kind == GENERATED_TAGS:
        return score_generated_tags(read, objective.scheme, metrics, texts, answers)
    predicted = [read(text) for text in texts]
    if kind == GENERATED_ANSWERS:
        unanswerable = objective.questions == "squad2"
        exact_Q, f1_Q = score_answers(predicted, answers, unanswerable)
        return select_metrics(
            metrics, average_by_answerability(exact_Q, f1_Q, answers, unanswerable)
        )
    if objective.labels:
        right: list[Any] = [objective.words.index(answer) for answer in answers]
        number = {label: i for i, label in enumerate(objective.labels)}
        predicted = [number.get(label) for label in predicted]

        def make_wrong(known: Any) -> Any:
            return (known + 1) % len(number)
    else:
        right = [float(answer) for answer in answers]
        low, high = min(right), max(right)

        def make_wrong(known: Any) -> Any:
            return high if 2 * known < low + high else low

    rows_N3 = np.array(
        [
            (make_wrong(known) if value is None else value, known, 1)
            for value, known in zip(predicted, right, strict=True)
        ]
    )
    return compute_metrics(metrics, rows_N3) | {"no_label": predicted.count(None)}


def score_generated_tags(
    read: Callable[..., Any],
    scheme: str,
    metrics: Sequence[str],
    texts: Sequence[str],
    answers: Sequence[Mapping[str, Any]],
) -> dict[str, float]:
    """Return the metrics of generated entities, by name.

    An entity that is generated twice, or that has words which are not in the sentence, counts as
    predicted and wrong.

    Args:
      read: a function (generated text, words of the sentence) -> entities.
      answers: {"words", "tags"} of each sentence.
    """
    total, hits = np.zeros(3, np.int64), []
    for text, answer in zip(texts, answers, strict=True):
        predicted, right = read(text, answer["words"]), find_segments(answer["tags"], scheme)
        total += len(right), len(predicted), len(set(right) & set(predicted))
        predicted_tags = tag_words(predicted, len(answer["words"]), scheme)
        hits += [tag == other for tag, other in zip(predicted_tags, answer["tags"], strict=True)]
    found = compute_rates(*total.tolist()) | {"tag_accuracy": sum(hits) / len(hits)}
    return {name: found[name] for name in metrics}
