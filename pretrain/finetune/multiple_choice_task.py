"""The task of multiple choice: questions with some choices, of which one is right, as `finetune` learns from them."""

import hashlib
import json
from typing import NamedTuple

from data.examples import labelled_store, multiple_choice


class ChoiceTask(NamedTuple):
    """The right one of a question's choices."""

    metrics: tuple[str, ...] = ("accuracy",)
    tfds: None = None

    def read(self, args, train, heldout, share):
        """The examples; as `examples.gather` has it."""
        if args.columns or args.labels:
            raise ValueError(
                f"--columns and --labels are of other tasks; questions have {multiple_choice.FORMS}, and label, the number of the right one"
            )
        read = multiple_choice.read(train)
        count = len(read[0].texts) - 1
        if len({example.label for example in read}) < 2:
            raise ValueError(
                f"{train}: the right choice is number {read[0].label} of all {len(read):,} questions; shuffle the choices"
            )
        return Choices(
            dict(
                zip(
                    ("train", "heldout"),
                    (read, multiple_choice.read(heldout, count))
                    if heldout
                    else labelled_store.part(read, share),
                )
            ),
            count,
        )


class Choices:
    """Questions, as pretrain/finetune/labelled_task.py says. count: of the choices of each."""

    def __init__(self, parts, count):
        self.parts, self.count = parts, count

    def digest(self):
        text = json.dumps(
            [
                self.count,
                {split: [example[:2] for example in part] for split, part in self.parts.items()},
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def model(self, pretrained):
        from models.config.heads import ChoiceConfig
        from pretrain.finetune.encoders import encoder_of

        return ChoiceConfig(encoder=encoder_of(pretrained))

    def objective(self, model):
        from data.objectives.multiple_choice import MultipleChoice
        from pretrain.finetune.encoders import separators

        return MultipleChoice(
            length=min(128, model.length), choices=self.count, separators=separators(model.encoder)
        )

    def write(self, path, vocabulary):
        labelled_store.write_labelled(
            path, vocabulary, self.parts, tuple(map(str, range(self.count))), digest=self.digest()
        )
