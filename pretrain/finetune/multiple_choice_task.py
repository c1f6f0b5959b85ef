"""The task of multiple choice: questions with several choices, one of which is correct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from data.examples import choice_questions, labelled_store
from pretrain.finetune.finetune_options import TaskOptions
from pretrain.finetune.labelled_task import digest_parts, make_bad_examples

if TYPE_CHECKING:
    from data.objectives.multiple_choice import MultipleChoice
    from data.vocabulary.load import Vocabulary
    from models.config.choice import ChoiceConfig
    from pretrain.workdir.trained import Trained


class ChoiceTask(NamedTuple):
    """Choose the correct one of a question's choices. The fields are as in `LabelTask`."""

    metrics: tuple[str, ...] = ("accuracy",)
    tfds: None = None

    def read_examples(
        self, args: TaskOptions, train: str, heldout: str | None, share: float
    ) -> ChoiceExamples:
        """Return the examples; see `gather_labelled_examples` for the arguments."""
        if args.columns or args.labels:
            raise ValueError(
                "--columns and --labels are not for multiple_choice; its records have "
                f"{choice_questions.FORMS}, and label, the number of the correct choice"
            )
        bad, bad_heldout = make_bad_examples(args, train), make_bad_examples(args, heldout or "")
        examples = choice_questions.read_questions(train, None, bad, args.file_format)
        count = len(examples[0].texts) - 1
        if len({example.label for example in examples}) < 2:
            raise ValueError(
                f"{train}: the correct choice of all {len(examples):,} questions is number "
                f"{examples[0].label}; shuffle the choices"
            )
        splits = (
            (
                examples,
                choice_questions.read_questions(heldout, count, bad_heldout, args.file_format),
            )
            if heldout
            else labelled_store.split_examples(examples, share)
        )
        bad.report()
        bad_heldout.report()
        return ChoiceExamples(dict(zip(("train", "heldout"), splits)), count)


class ChoiceExamples:
    """Questions with choices, see `labelled_task.TaskExamples`.

    Attributes:
      parts: {split: questions}.
      num_choices: the number of choices of each question.
    """

    def __init__(self, parts: dict[str, list[Any]], count: int) -> None:
        self.parts, self.num_choices = parts, count

    def digest_examples(self) -> str:
        """Return a fingerprint of the questions."""
        return digest_parts(self.parts, 2, self.num_choices)

    def make_model_config(self, pretrained: Trained) -> ChoiceConfig:
        """Return the configuration of a multiple-choice model on a pretrained encoder."""
        from models.config.choice import ChoiceConfig
        from pretrain.finetune.encoders import find_encoder_config

        return ChoiceConfig(encoder=find_encoder_config(pretrained))

    def make_objective(self, model: ChoiceConfig) -> MultipleChoice:
        """Return the objective for a model."""
        from pretrain.finetune.encoders import make_choice_objective

        return make_choice_objective(model, choices=self.num_choices)

    def write_store(self, path: str, vocabulary: Vocabulary) -> None:
        """Write the store."""
        labelled_store.write_labelled(
            path,
            vocabulary,
            self.parts,
            tuple(map(str, range(self.num_choices))),
            digest=self.digest_examples(),
        )
