"""The task of tagging: sentences of words with a tag each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from data.examples import tag_schemes, tagged_sentences
from data.examples.bad_examples import keep_good, raise_if_empty
from data.examples.labelled_store import split_examples
from pretrain.finetune.finetune_options import TaskOptions
from pretrain.finetune.labelled_task import digest_parts, make_bad_examples

if TYPE_CHECKING:
    from data.examples.bad_examples import BadExamples
    from data.examples.tagged_sentences import Sentence
    from data.objectives.tagging import Tagging
    from data.vocabulary.load import Vocabulary
    from models.config.tagger import TaggerConfig
    from pretrain.workdir.trained import Trained


class TagTask(NamedTuple):
    """Predict a tag for each word. The fields are as in `tasks.LabelTask`."""

    metrics: tuple[str, ...] = (
        "entity_f1",
        "entity_precision",
        "entity_recall",
        "tag_accuracy",
        "unread_words",
    )
    tfds: None = None

    def read_examples(
        self, args: TaskOptions, train: str, heldout: str | None, share: float
    ) -> TaggedExamples:
        """Return the examples; see `gather_labelled_examples` for the arguments."""
        columns = parse_tag_columns(args.columns)
        bad, bad_heldout = make_bad_examples(args, train), make_bad_examples(args, heldout or "")
        sentences = tagged_sentences.read_sentences(train, columns, bad, args.file_format)
        scheme, sentences = tagged_sentences.choose_scheme(sentences, args.scheme, bad)
        names = (
            tuple(args.labels.split(","))
            if args.labels
            else tag_schemes.list_tags(
                {tag for sentence in sentences for tag in sentence.tags}, scheme
            )
        )
        sentences = keep_tagged(sentences, names, bad)
        if heldout:
            read = tagged_sentences.read_sentences(heldout, columns, bad_heldout, args.file_format)
            splits = sentences, keep_tagged(read, names, bad_heldout)
        else:
            splits = split_examples(sentences, share)
        parts: dict[str, Any] = dict(zip(("train", "heldout"), splits))
        bad.report()
        bad_heldout.report()
        if len(found := {tag for sentence in parts["heldout"] for tag in sentence.tags}) < 2:
            print(
                f"held out: all words have the tag {found.pop()!r}, so its scores are not "
                "informative",
                file=sys.stderr,
            )
        return TaggedExamples(parts, names, scheme, columns)


def keep_tagged(
    sentences: list[Sentence], names: tuple[str, ...], bad: BadExamples
) -> list[Sentence]:
    """Return the sentences whose tags are among `names`; the others are bad."""
    good = keep_good(
        sentences, lambda sentence: tagged_sentences.encode_tags([sentence], names), bad
    )
    raise_if_empty(bad.source, "sentences", good, bad)
    return good


def select_tag_metrics(scheme: str) -> tuple[str, ...]:
    """Return the metrics of a tagging scheme; plain tags have none of entities."""
    return TagTask().metrics[-2:] if scheme == tag_schemes.PLAIN else TagTask().metrics


def parse_tag_columns(text: str | None) -> tuple[str, ...]:
    """Return the names of --columns WORDS,TAGS, or () without it."""
    names = tuple(text.split(",")) if text else ()
    if len(names) not in (0, 2) or not all(names):
        raise ValueError(
            f"--columns {text}: expected the names of the words and of the tags, separated by a "
            "comma"
        )
    return names


class TaggedExamples:
    """Sentences with tags, see `labelled_task.TaskExamples`.

    Attributes:
      parts: {split: sentences}.
      names: the names of the tags.
      scheme: how tags spell entities, see data/examples/tag_schemes.py.
    """

    def __init__(
        self,
        parts: dict[str, list[Sentence]],
        names: tuple[str, ...],
        scheme: Any,
        columns: tuple[str, ...],
    ) -> None:
        self.parts, self.names, self.scheme, self.columns = parts, names, scheme, columns

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the task, without entity metrics for plain tags."""
        return select_tag_metrics(self.scheme)

    def digest_examples(self) -> str:
        """Return a fingerprint of the sentences and the names of the tags."""
        return digest_parts(self.parts, 2, self.names, self.scheme)

    def make_model_config(self, pretrained: Trained) -> TaggerConfig:
        """Return the configuration of a tagger on a pretrained encoder."""
        from models.config.tagger import TaggerConfig
        from pretrain.finetune.encoders import find_encoder_config

        return TaggerConfig(
            encoder=find_encoder_config(pretrained), labels=self.names, scheme=self.scheme
        )

    def make_objective(self, model: TaggerConfig) -> Tagging:
        """Return the objective for a model."""
        from pretrain.finetune.encoders import make_tag_objective

        return make_tag_objective(model, self.columns)

    def write_store(self, path: str, vocabulary: Vocabulary) -> None:
        """Write the store, and print the scheme and the number of skipped words."""
        store = tagged_sentences.write_tagged(
            path, vocabulary, self.parts, self.names, digest=self.digest_examples()
        )
        print(f"{path}: {describe_scheme(self.parts, self.scheme)}")
        if skipped := store.num_skipped_words:
            print(
                f"{path}: skipped {skipped:,} words and their tags, because the vocabulary has no "
                "token for them"
            )


def describe_scheme(parts: dict[str, list[Sentence]], scheme: str) -> str:
    """Return the name of the scheme, and the number of tags that are invalid in it."""
    broken = sum(
        tag_schemes.count_violations(sentence.tags, scheme)
        for part in parts.values()
        for sentence in part
    )
    note = f"; {broken:,} invalid tags are read as conlleval reads them" if broken else ""
    return f"tags follow the scheme {scheme}{note}"
