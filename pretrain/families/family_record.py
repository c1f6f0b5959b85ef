"""The record of a family of models, from which all tables by family are derived.

A file of this folder with a `FAMILY` is one family, which `pretrain.families` finds. Functions and
classes elsewhere are given as text, `file:Name`, so that records are read without JAX.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from models.config.base import Config, ModelConfig
from pretrain.families.array_map import ArrayMap
from pretrain.families.rules import Rules, map_linear
from pretrain.settings import Adafactor, AdamW

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

# (our field, their key in config.json, the meaning of an absent key)
Fields = tuple[tuple[str, str, Any], ...]

CLASSIFIER = map_linear("classifier/out", "classifier")
SPANS = map_linear("span/out", "qa_outputs")
JAX_FOLDER = "`export --format jax` writes a folder that JAX opens without Cloze"


def describe_padding(config: ModelConfig, vocabulary: "Vocabulary") -> dict[str, Any]:
    """Return the entries of config.json that most families have in addition to their sizes."""
    return {"initializer_range": 0.02, "pad_token_id": vocabulary.pad}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadMap:
    """The names of a fine-tuned encoder in Hugging Face transformers.

    `pretrain.convert.head_maps` has what is common to all families.

    classes: the prefix of the class names: `Bert` of `BertForSequenceClassification`.
    renamed_classes: {the usual end of a class name: this family's}.
    classifier: rules of the head that classifies a row.
    choice: rules of the head for multiple choice; None: as `classifier`.
    tags: rules of the head that scores tags.
    spans: rules of the head that scores the first and the last token of an answer.
    pooler: their name of the linear map that heads of every token do not have.
    renamed_in_classifier: {their name in a pretrained model: their name in a classifier}.
    dropout: (their key of the dropout before the last layer, the rate of an absent key, where None
      is the encoder's); None: they have none.
    span_dropout: the same where their question answering model has a dropout.
    choice_dropout: the same of a multiple choice model; None: `dropout`.
    choice_settings: {their key: the only supported value} of a multiple choice model.
    fixed_dropout: {usual end of a class: whether it has the encoder's rate or none, for any key}.
    shared: prefixes of the names outside of the body that a fine-tuned model has as well.
    lacking: the usual ends of the names of classes that transformers does not have.
    """

    classes: str
    renamed_classes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    classifier: Rules = CLASSIFIER
    choice: Rules | None = None
    tags: Rules = CLASSIFIER
    spans: Rules = SPANS
    pooler: str | None = None
    renamed_in_classifier: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dropout: tuple[str, float | None] | None = ("classifier_dropout", None)
    span_dropout: tuple[str, float] | None = None
    choice_dropout: tuple[str, float | None] | None = None
    choice_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed_dropout: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    shared: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    def name_class(self, suffix: str) -> str:
        """Return the name of a class, whose usual end is `suffix`."""
        return self.classes + self.renamed_classes.get(suffix, suffix)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecondModel:
    """Another transformers model that is a part of our model, in a subfolder of the export.

    Our rules have its tensors under `NAME/`.

    architecture: its class.
    fields: (our field, its key, the meaning of an absent key).
    describe_absent: (configuration of the first model) -> this one's where the folder lacks it.
      Its weights are then random, as a missing head's.
    """

    architecture: str
    fields: Fields
    describe_absent: Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HuggingFaceMap:
    """The names of a family in Hugging Face transformers, for imports and exports.

    Names of tensors
      rules       (our path, their name, layout), see rules.py; or a function of the configuration
                  that returns them
      stacks      {path of a stack of layers: the field or property with its depth}
      subtree     the top-level names of our parameters that theirs have; None: all
      prefix      of the names of their body; a bare encoder or decoder is saved without it
      bare        prefixes of the names in such a file that lack `prefix`
      renamed     (part of an old name, part of the present name)
      body        prefixes of the names that must have a place in our model; (): `prefix` alone
      heads       prefixes of the names that may all be missing
      sentence_heads  the `heads` that the prediction of tokens does not use
      copies      {name: original} of one weight under two names; a function of the configuration
                  may return them
      duplicates  weights that the export writes under two names, in the same form
      unread_copies  {name: original} of tensors that transformers saves twice and an import ignores
      stand_ins   {name: the tensor that replaces it where it is missing}
      zeros       {name: configuration -> shape} of tensors that are 0 in this model
      zeros_reason  the error where they are not 0
      constants   {name: configuration -> array} of tensors that are no parameters: written, checked
      buffers     patterns (fnmatch) of names that hold no weights
    config.json
      fields      (our field, their key, the meaning of an absent key)
      fixed       {their key: the only value that this project supports}
      same_values {their key: further names of that value}
      read_only   the values of `fixed`, of keys that an export does not write
      absent_values  {their key: the meaning of its absence} for keys of `fixed`
      aliases     {their key: the key of `fields` that transformers reads it as}
      equal_keys  {their key: another key of `fields` that must have the same value}
      constant_fields  {our field: the one value that theirs has, without a key for it}
      settings    (config, vocabulary) -> further entries
      read        (their configuration, our fields so far) -> our fields
      prepare     (their configuration) -> the same with defaults that depend on it
      check       (config, vocabulary) raises ValueError where transformers has no such model; in
                  place of a vocabulary, models of images have an `ImageEncoding`
      image_processor  the class that prepares images for it; "": it reads no images
    Others
      second_models  {folder: another model of theirs that is a part of ours}
      head_map    the names of fine-tuned models; None: no head can be put on the family
      imported    False: a folder of this model_type is imported as another family
      refused     {architecture that is not imported: the reason}
      reads_flax  whether flax_model.msgpack is read where there are no safetensors
    """

    model_type: str
    architecture: str
    rules: Rules | Callable[[Any], Rules]
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
    duplicates: Mapping[str, str] | Callable[[Any], Mapping[str, str]] = dataclasses.field(
        default_factory=dict
    )
    unread_copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    stand_ins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    zeros: Mapping[str, Callable[[Any], tuple[int, ...]]] = dataclasses.field(default_factory=dict)
    zeros_reason: str = ""
    constants: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    buffers: tuple[str, ...] = ()

    fields: Fields = ()
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    same_values: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    read_only: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    absent_values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    equal_keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    constant_fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Callable[[Any, Any], dict[str, Any]] = describe_padding
    read: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] = lambda theirs, ours: ours
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda theirs: theirs
    check: Callable[[Any, Any], None] = lambda config, vocabulary: None
    image_processor: str = ""

    second_models: Mapping[str, SecondModel] = dataclasses.field(default_factory=dict)
    head_map: HeadMap | None = None
    imported: bool = True
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reads_flax: bool = False

    def make_rules(self, config: ModelConfig) -> Rules:
        """Return the rules of a configuration."""
        return self.rules(config) if callable(self.rules) else self.rules

    def find_copies(self, config: ModelConfig) -> Mapping[str, str]:
        """Return {name: original} of the weights with two names in a configuration."""
        return self.copies(config) if callable(self.copies) else self.copies

    def find_duplicates(self, config: ModelConfig) -> Mapping[str, str]:
        """Return {name: original} of the weights that an export writes twice."""
        return self.duplicates(config) if callable(self.duplicates) else self.duplicates

    def find_depths(self, config: ModelConfig) -> dict[str, int]:
        """Return {path of a stack of layers: its depth}."""
        return {stack: getattr(config, field) for stack, field in self.stacks.items()}

    @property
    def fine_tuned_names(self) -> HeadMap:
        """The names of fine-tuned models. Raises ValueError for a family without any."""
        if self.head_map is None:
            raise ValueError(f"a {self.model_type} has no fine-tuning heads")
        return self.head_map

    @property
    def body_prefixes(self) -> tuple[str, ...]:
        """Prefixes of the names that must have a place in our model, second models included."""
        return self.body or (self.prefix, *(f"{name}/{self.prefix}" for name in self.second_models))


@dataclasses.dataclass(frozen=True)
class Hdf5Map:
    """The names of a family in released HDF5 files, and its sizes in options.json."""

    read_options: Callable[[Mapping[str, Any]], dict[str, Any]]  # -> our fields but `vocab`
    list_datasets: Callable[[Any], dict[str, tuple[int, ...]]]  # (config) -> {name: shape}
    fill_params: Callable[[Any, Mapping[str, Any]], dict[str, Any]]  # -> {our path: array}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationRecipe:
    """How a model of this family is distilled from a trained model of another.

    teachers: the classes of the teachers' configurations.
    fit_student: (its configuration, the teacher's) -> its own; ValueError where they do not fit.
    init_params: (the student's configuration, the teacher's, the teacher's parameters) -> the
      parameters that come from the teacher. The others are drawn, as without a teacher.
    """

    teachers: tuple[type[Config], ...]
    fit_student: Callable[[Any, Any], Any]
    init_params: Callable[[Any, Any, Any], dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """One family of models.

    name, config  the file's name, and the class of models/config/NAME.py
    objectives    the objectives that can train it, the paper's own first; () for an encoder that is
                  trained with a head alone
    hugging_face  its names in Hugging Face transformers; None: transformers has no such model
    hdf5          its names in HDF5 files; None: no such files are imported
    arrays        its names in checkpoints of zarr arrays; None: none are imported
    make_import_objective  (config) -> the objective that trains an imported model; None: no import
    predictor     the class that predicts with it: `module:Class` in pretrain/inference; "" where
                  a head predicts
    title, task   of a model card: what it is, and its task by the hub's name
    use           what it does, a key of USES in pretrain.publish.cards.card_texts; "": by `task`
    token_roles   special tokens that its tokenizer needs
    template      the special tokens around texts, a key of pretrain.convert.tokenizer.TEMPLATES
    token_types   whether its tokenizer distinguishes two texts by token_type_ids
    extends       families whose files this one's may import
    untrained_parts  the parts that masked language modelling alone does not train
    describe_card_rows  (config) -> rows (name, value) of a model card, in addition to the usual
    optimizer     the default of fine-tuning
    distillation  how it is distilled from another family; None: it is not
    """

    name: str
    config: type[Config]
    objectives: tuple[type[Any], ...]
    hugging_face: HuggingFaceMap | None = None
    hdf5: Hdf5Map | None = None
    arrays: ArrayMap | None = None
    make_import_objective: Callable[[Any], Any] | None = None
    predictor: str
    title: str
    task: str
    use: str = ""
    token_roles: tuple[str, ...]
    template: Literal["none", "eos", "cls_sep", "cls_sep_sep", "cls_last"]
    token_types: bool = False
    extends: tuple[str, ...] = ()
    untrained_parts: str = ""
    describe_card_rows: Callable[[Any], list[tuple[str, str]]] = lambda config: []
    optimizer: AdamW | Adafactor = AdamW(learning_rate=5e-5)
    distillation: DistillationRecipe | None = None

    @property
    def joins_texts(self) -> bool:
        """Whether an objective trains it on a stream of texts, joined by the end of text."""
        return any(objective.joins_texts for objective in self.objectives)

    @property
    def num_separators(self) -> int:
        """The number of separator tokens that its tokenizer puts between two texts."""
        return 2 if self.template == "cls_sep_sep" else 1

    @property
    def cls_position(self) -> Literal["first", "last", "none"]:
        """Where the [CLS] of a row of labelled texts is."""
        if self.template == "cls_last":
            return "last"
        return "none" if self.config.is_causal else "first"

    @property
    def labelled_template(self) -> str:
        """The special tokens around labelled texts, as `template`."""
        return "eos_between" if self.cls_position == "none" else self.template

    @property
    def tokenizer_name(self) -> str:
        """The name of its tokenizer: the model_type in transformers, or its own without one."""
        return self.hugging_face.model_type if self.hugging_face else self.name

    def require_hugging_face(self) -> HuggingFaceMap:
        """Return its names in transformers. Raises ValueError if transformers has no such model."""
        if self.hugging_face is None:
            raise ValueError(
                f"transformers has no {self.title}: a {self.config.__name__} can neither be "
                f"exported to a Hugging Face folder nor imported from one. {JAX_FOLDER}"
            )
        return self.hugging_face
