"""The task of tagging: sentences of words with a tag each, as `finetune` learns from them."""

import hashlib
import json
import sys
from typing import NamedTuple

from data.examples import tag_schemes, tagging
from data.examples.labelled_store import part


class TagTask(NamedTuple):
    """A tag for each word."""

    metrics: tuple[str, ...] = (
        "entity_f1",
        "entity_precision",
        "entity_recall",
        "tag_accuracy",
        "unread_words",
    )
    tfds: None = None

    def read(self, args, train, heldout, share):
        """The examples; as `examples.gather` has it."""
        columns = columns_of(args.columns)
        read = tagging.read(train, columns)
        scheme = tagging.scheme_of(read, args.scheme)
        names = (
            tuple(args.labels.split(","))
            if args.labels
            else tag_schemes.names({tag for one in read for tag in one.tags}, scheme)
        )
        parts = dict(
            zip(
                ("train", "heldout"),
                (read, tagging.read(heldout, columns)) if heldout else part(read, share),
            )
        )
        for one in parts.values():
            tagging.numbered(one, names)
        if len(told := {tag for one in parts["heldout"] for tag in one.tags}) < 2:
            print(
                f"held out: all words have the tag {told.pop()!r}, of which scores tell little",
                file=sys.stderr,
            )
        return Tagged(parts, names, scheme, columns)


def columns_of(text):
    """The names of `--columns WORDS,TAGS`, () without."""
    names = tuple(text.split(",")) if text else ()
    if len(names) not in (0, 2) or not all(names):
        raise ValueError(
            f"--columns {text}: the name of the words and that of the tags, with a comma between them"
        )
    return names


class Tagged:
    """Sentences with tags, as pretrain/finetune/labelled_task.py says. names: of the tags; scheme: of data/examples/tag_schemes.py."""

    def __init__(self, parts, names, scheme, columns):
        self.parts, self.names, self.scheme, self.columns = parts, names, scheme, columns

    @property
    def metrics(self):
        """Plain tags spell no entities."""
        return TagTask().metrics[-2:] if self.scheme == tag_schemes.PLAIN else TagTask().metrics

    def digest(self):
        text = json.dumps(
            [
                self.names,
                self.scheme,
                {split: [one[:2] for one in part] for split, part in self.parts.items()},
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def model(self, pretrained):
        from models.config.heads import TaggerConfig
        from pretrain.finetune.encoders import encoder_of

        return TaggerConfig(encoder=encoder_of(pretrained), labels=self.names, scheme=self.scheme)

    def objective(self, model):
        from data.objectives.tagging import Tagging

        return Tagging(length=min(128, model.length), columns=self.columns)

    def write(self, path, vocabulary):
        store = tagging.write_tagged(path, vocabulary, self.parts, self.names, digest=self.digest())
        print(f"{path}: {told(self.parts, self.scheme)}")
        if silent := store.num_skipped_words:
            print(
                f"{path}: {silent:,} words of which the vocabulary makes no token are left out, with their tags"
            )


def told(parts, scheme):
    """What the tags are, and how many of them stand where their scheme has none."""
    broken = sum(tag_schemes.breaks(one.tags, scheme) for part in parts.values() for one in part)
    odd = (
        f", which {broken:,} of them break: these are read as conlleval reads them"
        if broken
        else ""
    )
    return f"tags by the scheme {scheme}{odd}"
