"""Questions as `finetune` and `evaluate` read them, and at which threshold a model is asked."""

import dataclasses
import hashlib
import json
import sys
from typing import NamedTuple

from data.examples import labelled_store, qa
from data.objectives.answer_span import AnswerSpan


class SpanTask(NamedTuple):
    """Answers as spans of a context; unanswerable: some questions have none. metrics, tfds: as of tasks.LabelTask."""

    unanswerable: bool
    metrics: tuple[str, ...]
    tfds: tuple[str, str] | None = None

    def read(self, args, train, heldout, share):
        """The examples, as pretrain/finetune/labelled_task.py says."""
        if args.columns or args.labels:
            raise ValueError(
                f"--columns and --labels are of texts with labels; --task {args.task} reads context, question and answers"
            )
        skip = args.on_bad_answer == "skip"
        parts = [self._told(source, skip) for source in (train, heldout) if source]
        if not any(one.answers for one in parts[0]):
            raise ValueError(
                f"{train}: none of its {len(parts[0]):,} questions has an answer; nothing can be learned from that"
            )
        return Answered(
            self,
            dict(
                zip(
                    ("train", "heldout"), parts if heldout else labelled_store.part(parts[0], share)
                )
            ),
            skip,
        )

    def _told(self, source, skip):
        read, bad = qa.read(source, self.unanswerable, skip)
        if bad:
            print(
                f"{source}: {bad:,} questions left out, whose answer is not in their context",
                file=sys.stderr,
            )
        return read


class Answered:
    """Questions with their answers. skip: those for whose answer a vocabulary has no piece are left out, and counted."""

    def __init__(self, task, parts, skip=False):
        self.task, self.parts, self.skip, self._encoded = task, parts, skip, {}

    def digest(self):
        text = json.dumps(
            [
                self.task.unanswerable,
                {split: [one[:4] for one in part] for split, part in self.parts.items()},
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def model(self, pretrained):
        from models.config.heads import SpanReaderConfig
        from pretrain.families import family_of
        from pretrain.finetune.encoders import encoder_of

        encoder = encoder_of(pretrained)
        head_map = family_of(encoder).hugging_face.fine_tuned
        span_dropout = head_map.span_dropout  # as their authors have it
        return SpanReaderConfig(
            encoder=encoder,
            dropout=span_dropout[1] if span_dropout else 0.0,
            unanswerable=self.task.unanswerable,
        )

    def objective(self, model):
        from pretrain.finetune.encoders import separators

        length = min(384, model.length)
        return AnswerSpan(
            length, min(128, length // 3), min(64, length // 4), separators(model.encoder)
        )

    def rows(self, objective, vocabulary):
        from data.rows.qa_windows import QuestionWindowRows

        objective.check(vocabulary)
        return QuestionWindowRows(self.encoded(vocabulary)["train"].spans_Q6, objective).count

    def encoded(self, vocabulary):
        if vocabulary.fingerprint not in self._encoded:
            self._encoded[vocabulary.fingerprint] = {
                split: self._encode(vocabulary, split) for split in self.parts
            }
        return self._encoded[vocabulary.fingerprint]

    def _encode(self, vocabulary, split):
        from data.examples.qa_store import NoPieces, encode

        try:
            return encode(vocabulary, self.parts[split])
        except NoPieces as error:
            if not self.skip:
                raise ValueError(
                    f"{error}; --on-bad-answer skip leaves such questions out"
                ) from None
            unseen = set(error.questions)
            self.parts[split] = [one for one in self.parts[split] if one not in unseen]
            source, left = error.questions[0].place.rpartition(":")[0], len(error.questions)
            print(
                f"{source}: {left:,} questions left out ({split}), for whose answer the vocabulary has no piece",
                file=sys.stderr,
            )
            if not any(one.answers for one in self.parts[split]):
                raise ValueError(
                    f"{error}, nor for that of any other question there ({split})"
                ) from None
            return encode(vocabulary, self.parts[split])

    def write(self, path, vocabulary):
        from data.examples.qa_store import write_questions

        write_questions(
            path, vocabulary, self.parts, self.encoded(vocabulary), digest=self.digest()
        )


def settled(trained):
    """The run of a checkpoint, with the threshold that was best on its held-out part where its configuration names none."""
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
