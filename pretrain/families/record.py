"""What is declared of a family of models, once: all tables by family are derived from these records.

A file of this folder with a `FAMILY` is one family; `pretrain.families` finds it. Names of functions and classes elsewhere are given as
text, `file:Name`, so that a record is read without JAX.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

from models.config.base import ModelConfig
from pretrain.families.rules import linear
from pretrain.schema import Adafactor, AdamW

Fields = tuple[tuple[str, str, Any], ...]


def describe_padding(config, vocabulary):
    """Return the entries of config.json that most families have besides their sizes."""
    return {"initializer_range": 0.02, "pad_token_id": vocabulary.pad}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadMap:
    """How a fine-tuned encoder is called by Hugging Face transformers; `pretrain.convert.heads` has what is alike in all families.

    classes: how the names of their classes begin: `Bert` of `BertForSequenceClassification`.
    classifier, choice: rules of the heads that read a row; choice None: as classifier.
    pooler: the linear map that heads which read every token leave out; moved: {name of theirs in a pretrained model: beside a classifier}.
    dropout: their name for the dropout before the last layer; span_dropout: (their name, usual rate) where the span reader has one.
    choice_settings: (config) -> entries of config.json of a model that chooses; None: the dropout.
    """

    classes: str
    classifier: tuple = linear("classifier/out", "classifier")
    choice: tuple | None = None
    pooler: str | None = None
    moved: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dropout: str = "classifier_dropout"
    span_dropout: tuple[str, float] | None = None
    choice_settings: Callable[[Any], dict] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecondModel:
    """A model of theirs that is a part of ours: a folder within the first one's. Our rules have its tensors under `NAME/`."""

    architecture: str
    fields: Fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class HuggingFaceMap:
    """A family under its names in Hugging Face transformers; `pretrain.convert` applies it in both directions.

    Names of tensors
      rules      (our path, their name, layout), see rules.py; or a function of the configuration that returns them
      stacks     {path of a stack of layers: the field or property with its depth}
      subtree    the top-level names of our parameters that theirs have; None: all
      prefix     with which the names of their body begin, where a bare encoder or decoder is saved without it
      bare       beginnings of the names in such a file that lack the prefix
      renamed    (part of an old name, today's)
      body       beginnings of the names that must have a place in our model; () is the prefix alone
      heads      beginnings of the names that may all be missing; sentence_heads: those of them that predicting tokens does not use
      copies     {name: original} of one weight under two names; a function of the configuration may return them
      duplicates the same, of those that an export writes twice
      stand_ins  {name: the tensor that stands for it where it is missing}
      zeros      {name: configuration -> shape} of tensors that are 0 in this model, with `zeros_reason` if they are not
      buffers    patterns (fnmatch) of names that hold no weights
    config.json
      fields     (our field, their key, what an absent key means)
      fixed      {their key: the only value there is here}; read_only: the same of keys that an export does not write
      absent     {their key: what its absence means} for keys of `fixed`
      twins      {their key: another key of `fields` that must have the same value}
      only       {our field: the one value that theirs can have, having no setting for it}
      settings   (config, vocabulary) -> further entries
      read       (their configuration, our fields so far) -> our fields
      prepare    (their configuration) -> the same with defaults that depend on it
      check      (config, vocabulary) raises ValueError where transformers has no such model
    """

    model_type: str
    architecture: str
    rules: tuple | Callable[[Any], tuple]
    stacks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    subtree: tuple[str, ...] | None = None
    prefix: str = ""
    bare: tuple[str, ...] = ("",)
    renamed: tuple[tuple[str, str], ...] = ()
    body: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    sentence_heads: tuple[str, ...] = ()
    copies: Mapping[str, str] | Callable[[Any], Mapping[str, str]] = dataclasses.field(
        default_factory=dict
    )
    duplicates: Mapping[str, str] = dataclasses.field(default_factory=dict)
    stand_ins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    zeros: Mapping[str, Callable[[Any], tuple[int, ...]]] = dataclasses.field(default_factory=dict)
    zeros_reason: str = ""
    buffers: tuple[str, ...] = ()

    fields: Fields = ()
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    read_only: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    absent: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    twins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    only: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Callable[[Any, Any], dict] = describe_padding
    read: Callable[[dict, dict], dict] = lambda theirs, ours: ours
    prepare: Callable[[dict], dict] = lambda theirs: theirs
    check: Callable[[Any, Any], None] = lambda config, vocabulary: None

    second_models: Mapping[str, SecondModel] = dataclasses.field(default_factory=dict)
    head_map: HeadMap | None = None
    imported: bool = True  # False: a folder of this model_type is imported as another family
    refused: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # {architecture that is not imported: why}

    def rules_of(self, config):
        return self.rules(config) if callable(self.rules) else self.rules

    def copies_of(self, config):
        return self.copies(config) if callable(self.copies) else self.copies

    def depths_of(self, config):
        return {stack: getattr(config, field) for stack, field in self.stacks.items()}

    @property
    def fine_tuned(self) -> HeadMap:
        """The names of fine-tuned models. Raises ValueError for a family on which no head is put."""
        if self.head_map is None:
            raise ValueError(f"a {self.model_type} takes no new head")
        return self.head_map

    @property
    def bodies(self):
        return self.body or (self.prefix, *(f"{name}/{self.prefix}" for name in self.second_models))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distilled:
    """A student that learns from a trained model of another family.

    describe: (the teacher's configuration) -> {field: value} that the student's must have.
    begin: (student's configuration, teacher's, teacher's parameters) -> the student's first parameters.
    """

    teacher: type[ModelConfig]
    describe: Callable[[Any], dict]
    begin: Callable[[Any, Any, Any], dict]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """One family of models.

    config        its sizes; models/config/NAME.py
    objectives    those whose batches it takes, its paper's own first
    extends       families whose files this one's may name
    import_run    (config) -> the objective with which an imported model may be trained on
    answers       how it answers a text: `module:Class` in pretrain/inference
    title, task   of a model card: what it is, and what it is for, as the hub names it
    idle          what predicting masked words alone does not train
    facts         (config) -> rows (name, value) of a model card, besides those of all models
    token_roles   special tokens that its tokenizer needs
    template      what its tokenizer puts around texts, a key of pretrain.convert.tokenizer.TEMPLATES
    token_types   whether its tokenizer tells two texts by token_type_ids
    optimizer     with which it is fine-tuned unless another is asked for
    """

    name: str
    config: type[ModelConfig]
    objectives: tuple[type, ...]
    hugging_face: HuggingFaceMap
    import_run: Callable[[Any], Any]
    answers: str
    title: str
    task: str
    token_roles: tuple[str, ...]
    template: Literal["none", "eos", "cls_sep", "cls_sep_sep"]
    token_types: bool = False
    extends: tuple[str, ...] = ()
    idle: str = ""
    facts: Callable[[Any], list[tuple[str, str]]] = lambda config: []
    optimizer: AdamW | Adafactor = AdamW(learning_rate=5e-5)
    distilled: Distilled | None = None

    @property
    def separators(self):
        """How many separating tokens its tokenizer puts between two texts."""
        return 2 if self.template == "cls_sep_sep" else 1
