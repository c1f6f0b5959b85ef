"""The task of embedding: vectors by which texts are compared, learned from pairs of texts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from data.examples import labelled_store
from data.examples.text_sets import FORMS, has_scores, has_vectors, read_text_sets
from pretrain.finetune.finetune_options import TaskOptions
from pretrain.finetune.labelled_task import digest_parts, make_bad_examples

if TYPE_CHECKING:
    from data.vocabulary.load import Vocabulary
    from models.config.embedder import EmbedderConfig
    from pretrain.workdir.trained import Trained


class EmbeddingTask(NamedTuple):
    """Give texts vectors that say how similar they are. The fields are as in `LabelTask`."""

    metrics: tuple[str, ...] = ()
    tfds: None = None

    def read_examples(
        self, args: TaskOptions, train: str, heldout: str | None, share: float
    ) -> EmbeddingExamples:
        """Return the examples; see `gather_labelled_examples` for the arguments."""
        if args.labels:
            raise ValueError(f"--labels names classes; the records of embedding are {FORMS}")
        bad, bad_heldout = make_bad_examples(args, train), make_bad_examples(args, heldout or "")
        given = tuple(args.columns.split(",")) if args.columns else ()
        if not all(given):
            raise ValueError(f"--columns {args.columns}: a name is empty")
        examples, columns = read_text_sets(train, given, None, bad, args.file_format)
        count = len(examples[0].texts)
        if has_scores(columns) and count != 2:
            raise ValueError(
                f"{train}: {', '.join(columns)}: a score belongs to two texts, and there are "
                f"{count}; name two and the score by --columns"
            )
        if has_vectors(columns) and count != 1:
            raise ValueError(
                f"{train}: {', '.join(columns)}: a vector belongs to one text, and there are "
                f"{count}; name one text and the vector by --columns"
            )
        if heldout:
            own, _ = read_text_sets(heldout, columns, count, bad_heldout, args.file_format)
            splits = examples, own
        else:
            splits = labelled_store.split_examples(examples, share)
        bad.report()
        bad_heldout.report()
        parts: dict[str, Any] = dict(zip(("train", "heldout"), splits))
        return EmbeddingExamples(parts, columns, count)


class EmbeddingExamples:
    """Texts that belong together or have a score, see `labelled_task.TaskExamples`.

    Attributes:
      parts: {split: examples}.
      metrics: of scores; those of a batch's texts are sums.
    """

    def __init__(self, parts: dict[str, list[Any]], columns: tuple[str, ...], count: int) -> None:
        self.parts, self.columns, self.count = parts, columns, count
        self.metrics = ("spearman", "pearson") if has_scores(columns) else ()

    def digest_examples(self) -> str:
        """Return a fingerprint of the examples."""
        return digest_parts(self.parts, 2, self.columns)

    def make_model_config(self, pretrained: Trained) -> EmbedderConfig:
        """Return the configuration of an embedder on a pretrained encoder.

        A model that is an embedder already keeps its pooling.
        """
        from models.config.embedder import EmbedderConfig
        from pretrain.finetune.encoders import find_encoder_config

        encoder = find_encoder_config(pretrained)
        if isinstance(pretrained.run.model, EmbedderConfig):
            return dataclasses.replace(pretrained.run.model, encoder=encoder)
        return EmbedderConfig(encoder=encoder, pooling="last" if encoder.is_causal else "mean")

    def make_objective(self, model: EmbedderConfig) -> Any:
        """Return the objective for a model, as the columns of the files decide.

        Raises ValueError for vectors of another width than the model's.
        """
        from pretrain.finetune.encoders import make_text_objective

        width = 1
        if has_vectors(self.columns):
            example = self.parts["train"][0]
            width = len(example.label)
            if width != model.encoder.width:
                raise ValueError(
                    f"{example.location}: a vector of {width} components; those of the model have "
                    f"{model.encoder.width}: write the teacher's with `embed --width "
                    f"{model.encoder.width}`, or take an encoder of width {width}"
                )
        return make_text_objective(model, self.columns, max(self.count, 2), width)

    def write_store(self, path: str, vocabulary: Vocabulary) -> None:
        """Write the store."""
        labelled_store.write_labelled(
            path, vocabulary, self.parts, (), digest=self.digest_examples()
        )
