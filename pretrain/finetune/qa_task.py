"""Questions as examples of `finetune`, and the threshold at which a model answers."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from data.examples import labelled_store, qa
from data.objectives.answer_span import AnswerSpan

if TYPE_CHECKING:
    from data.examples.qa import Question
    from data.vocabulary.load import Vocabulary
    from models.config.heads import SpanReaderConfig
    from pretrain.config import Run
    from pretrain.inference.trained import Trained


class SpanTask(NamedTuple):
    """Answer questions with a span of their context.

    Attributes:
      unanswerable: whether some questions have no answer.
      metrics, tfds: as in `tasks.LabelTask`.
    """

    unanswerable: bool
    metrics: tuple[str, ...]
    tfds: tuple[str, str] | None = None

    def read(
        self, args: argparse.Namespace, train: str, heldout: str | None, share: float
    ) -> Answered:
        """Return the examples; the arguments are those of `labelled_task.gather`."""
        if args.columns or args.labels:
            raise ValueError(
                f"--columns and --labels are for texts with labels; --task {args.task} reads "
                "context, question and answers"
            )
        skip = args.on_bad_answer == "skip"
        splits = [self._told(source, skip) for source in (train, heldout) if source]
        if not any(question.answers for question in splits[0]):
            raise ValueError(
                f"{train}: none of its {len(splits[0]):,} questions has an answer; training needs "
                "some"
            )
        parts = splits if heldout else labelled_store.part(splits[0], share)
        return Answered(self, dict(zip(("train", "heldout"), parts)), skip)

    def _told(self, source: str, skip: bool) -> list[Question]:
        """Return the questions of a source, and print how many were skipped."""
        questions, num_bad = qa.read(source, self.unanswerable, skip)
        if num_bad:
            print(
                f"{source}: skipped {num_bad:,} questions whose answer is not in their context",
                file=sys.stderr,
            )
        return questions


class Answered:
    """Questions with their answers, see `labelled_task.TaskExamples`.

    Attributes:
      task: the task.
      parts: {split: questions}.
      skip: skip and count questions for whose answer the vocabulary has no token, instead of an
        error.
    """

    def __init__(
        self, task: SpanTask, parts: dict[str, list[Question]], skip: bool = False
    ) -> None:
        self.task, self.parts, self.skip = task, parts, skip
        self._encoded: dict[str, dict[str, Any]] = {}

    def digest(self) -> str:
        """Return a fingerprint of the questions."""
        text = json.dumps(
            [
                self.task.unanswerable,
                {split: [question[:4] for question in part] for split, part in self.parts.items()},
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def model(self, pretrained: Trained) -> SpanReaderConfig:
        """Return the configuration of a question answering model on a pretrained encoder."""
        from models.config.heads import SpanReaderConfig
        from pretrain.families import family_of
        from pretrain.finetune.encoders import encoder_of

        encoder = encoder_of(pretrained)
        head_map = family_of(encoder).hugging_face.fine_tuned
        span_dropout = head_map.span_dropout  # as in the paper of the family
        return SpanReaderConfig(
            encoder=encoder,
            dropout=span_dropout[1] if span_dropout else 0.0,
            unanswerable=self.task.unanswerable,
        )

    def objective(self, model: SpanReaderConfig) -> AnswerSpan:
        """Return the objective for a model."""
        from pretrain.finetune.encoders import separators

        length = min(384, model.length)
        return AnswerSpan(
            length, min(128, length // 3), min(64, length // 4), separators(model.encoder)
        )

    def rows(self, objective: AnswerSpan, vocabulary: Vocabulary) -> int:
        """Return the number of windows of the training questions."""
        from data.rows.qa_windows import QuestionWindowRows

        objective.check(vocabulary)
        return QuestionWindowRows(self.encoded(vocabulary)["train"].spans_Q6, objective).count

    def encoded(self, vocabulary: Vocabulary) -> dict[str, Any]:
        """Return the encoded questions of each split, computed once per vocabulary."""
        if vocabulary.fingerprint not in self._encoded:
            self._encoded[vocabulary.fingerprint] = {
                split: self._encode(vocabulary, split) for split in self.parts
            }
        return self._encoded[vocabulary.fingerprint]

    def _encode(self, vocabulary: Vocabulary, split: str) -> Any:
        """Return the encoded questions of a split, without those that are skipped."""
        from data.examples.qa_store import NoPieces, encode

        try:
            return encode(vocabulary, self.parts[split])
        except NoPieces as error:
            if not self.skip:
                raise ValueError(f"{error}; --on-bad-answer skip skips such questions") from None
            unseen = set(error.questions)
            self.parts[split] = [
                question for question in self.parts[split] if question not in unseen
            ]
            source, count = error.questions[0].place.rpartition(":")[0], len(error.questions)
            print(
                f"{source}: skipped {count:,} questions ({split}) because the vocabulary has no "
                "token for their answer",
                file=sys.stderr,
            )
            if not any(question.answers for question in self.parts[split]):
                raise ValueError(
                    f"{error}, nor for that of any other question there ({split})"
                ) from None
            return encode(vocabulary, self.parts[split])

    def write(self, path: str, vocabulary: Vocabulary) -> None:
        """Write the store."""
        from data.examples.qa_store import write_questions

        write_questions(
            path, vocabulary, self.parts, self.encoded(vocabulary), digest=self.digest()
        )


def settled(trained: Trained) -> Run:
    """Return the run of a checkpoint with the threshold of its model.

    If the configuration names none, it is the one that was best on the held-out split.
    """
    from models.config.heads import SpanReaderConfig
    from pretrain.workdir.checkpoints import Checkpoints

    run = trained.run
    if (
        not isinstance(run.model, SpanReaderConfig)
        or not run.model.unanswerable
        or run.model.threshold is not None
    ):
        return run
    with Checkpoints(trained.workdir, read_only=True) as checkpoints:
        threshold = checkpoints.scores(trained.step).get("null_threshold")
    return dataclasses.replace(run, model=dataclasses.replace(run.model, threshold=threshold))
