"""Questions as examples of `finetune`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from data.examples import labelled_store, qa
from pretrain.finetune.finetune_options import TaskOptions
from pretrain.finetune.labelled_task import digest_parts, make_bad_examples

if TYPE_CHECKING:
    from data.examples.qa import Question
    from data.objectives.answer_span import AnswerSpan
    from data.vocabulary.load import Vocabulary
    from models.config.span_reader import SpanReaderConfig
    from pretrain.workdir.trained import Trained


class SpanTask(NamedTuple):
    """Answer questions with a span of their context.

    Attributes:
      unanswerable: whether some questions have no answer.
      metrics, tfds: as in `tasks.LabelTask`.
    """

    unanswerable: bool
    metrics: tuple[str, ...]
    tfds: tuple[str, str] | None = None

    def read_examples(
        self, args: TaskOptions, train: str, heldout: str | None, share: float
    ) -> QuestionExamples:
        """Return the examples; see `gather_labelled_examples` for the arguments."""
        if args.columns or args.labels:
            raise ValueError(
                f"--columns and --labels are for texts with labels; --task {args.task} reads "
                "context, question and answers"
            )
        splits = []
        for source in (train, heldout) if heldout else (train,):
            bad = make_bad_examples(args, source)
            splits.append(qa.read_questions(source, self.unanswerable, bad, args.file_format))
            bad.report()
        if not any(question.answers for question in splits[0]):
            raise ValueError(
                f"{train}: none of its {len(splits[0]):,} questions has an answer; training needs "
                "some"
            )
        parts = splits if heldout else labelled_store.split_examples(splits[0], share)
        skip = args.on_bad_example == "skip"
        return QuestionExamples(self, dict(zip(("train", "heldout"), parts)), skip)


class QuestionExamples:
    """Questions with their answers, see `labelled_task.TaskExamples`.

    Attributes:
      parts: {split: questions}.
      skip_bad_answers: skip and count questions for whose answer the vocabulary has no token,
        instead of an error.
    """

    def __init__(
        self, task: SpanTask, parts: dict[str, list[Question]], skip: bool = False
    ) -> None:
        self.task, self.parts, self.skip_bad_answers = task, parts, skip
        self._encoded: dict[str, dict[str, Any]] = {}

    def digest_examples(self) -> str:
        """Return a fingerprint of the questions."""
        return digest_parts(self.parts, 4, self.task.unanswerable)

    def make_model_config(self, pretrained: Trained) -> SpanReaderConfig:
        """Return the configuration of a question answering model on a pretrained encoder."""
        from models.config.span_reader import SpanReaderConfig
        from pretrain.families import find_family
        from pretrain.finetune.encoders import find_encoder_config

        encoder = find_encoder_config(pretrained)
        hf_map = find_family(encoder).hugging_face
        # as in the paper of the family
        named = hf_map and hf_map.fine_tuned_names.find_dropout("ForQuestionAnswering")
        return SpanReaderConfig(
            encoder=encoder,
            dropout=(named[1] if named else None) or 0.0,
            unanswerable=self.task.unanswerable,
        )

    def make_objective(self, model: SpanReaderConfig) -> AnswerSpan:
        """Return the objective for a model."""
        from pretrain.finetune.encoders import make_span_objective

        return make_span_objective(model)

    def count_rows(self, objective: AnswerSpan, vocabulary: Vocabulary) -> int:
        """Return the number of windows of the training questions."""
        from data.rows.qa_windows import QuestionWindowRows

        objective.check_vocabulary(vocabulary)
        return QuestionWindowRows(
            self.encode_questions(vocabulary)["train"].spans_Q6, objective
        ).count

    def encode_questions(self, vocabulary: Vocabulary) -> dict[str, Any]:
        """Return the encoded questions of each split, computed once per vocabulary."""
        if vocabulary.fingerprint not in self._encoded:
            self._encoded[vocabulary.fingerprint] = {
                split: self._encode_split(vocabulary, split) for split in self.parts
            }
        return self._encoded[vocabulary.fingerprint]

    def _encode_split(self, vocabulary: Vocabulary, split: str) -> Any:
        """Return the encoded questions of a split, without those that are skipped."""
        from data.examples.qa_store import UnencodableAnswers, encode_questions

        try:
            return encode_questions(vocabulary, self.parts[split])
        except UnencodableAnswers as error:
            if not self.skip_bad_answers:
                raise ValueError(f"{error}; --on-bad-example skip skips such questions") from None
            unseen = set(error.questions)
            self.parts[split] = [
                question for question in self.parts[split] if question not in unseen
            ]
            source, count = error.questions[0].location.rpartition(":")[0], len(error.questions)
            print(
                f"{source}: skipped {count:,} questions ({split}) because the vocabulary has no "
                "token for their answer",
                file=sys.stderr,
            )
            if not any(question.answers for question in self.parts[split]):
                raise ValueError(f"{error}, nor for any other answer there ({split})") from None
            return encode_questions(vocabulary, self.parts[split])

    def write_store(self, path: str, vocabulary: Vocabulary) -> None:
        """Write the store."""
        from data.examples.qa_store import write_questions

        write_questions(
            path,
            vocabulary,
            self.parts,
            self.encode_questions(vocabulary),
            digest=self.digest_examples(),
        )
