"""The record of a family of models, from which all tables by family are derived.

A file of this folder with a `FAMILY` is one family, which `pretrain.families` finds. Functions and
classes elsewhere are given as text, `file:Name`, so that records are read without JAX.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from models.config.base import Config, ModelConfig
from pretrain.families.key_rules import KeyRules
from pretrain.families.rules import Rules, map_linear
from pretrain.families.tensor_steps import Step
from pretrain.settings import Adafactor, AdamW

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary
    from pretrain.families.array_map import ArrayMap

# The usual ends of the names of classes in transformers, by what their head scores; "Model": no
# head.
HeadClass = Literal[
    "ForSequenceClassification",
    "ForMultipleChoice",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "Model",
]
NamedRate = tuple[str, float | None]
CLASSIFIER = map_linear("classifier/out", "classifier")
SPANS = map_linear("span/out", "qa_outputs")
JAX_FOLDER = "`export --format jax` writes a folder that JAX opens without Cloze"


def describe_padding(config: ModelConfig, vocabulary: "Vocabulary") -> dict[str, Any]:
    """Return the entries of config.json that most families have in addition to their sizes."""
    return {"initializer_range": 0.02, "pad_token_id": vocabulary.pad}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadMap:
    """The names of a fine-tuned encoder in Hugging Face transformers.

    Each kind of head has a class there, whose name usually ends as a `HeadClass`.
    `pretrain.convert.head_maps` has what all families share.

    prefix: the prefix of the class names: `Bert` of `BertForSequenceClassification`.
    classes: {usual end of a class name: this family's; None: transformers lacks the class}.
    rules: {usual end: rules of the head}; by default one linear map, named `classifier` or
      `qa_outputs`. Multiple choice takes the classifier's. They override the encoder's rules.
    pooler: their name of the linear map that heads of every token do not have.
    dropout: (their key of the dropout before the last layer, the rate of an absent key, where None
      is the encoder's); None: they have none. Question answering has none unless `own_dropout`
      names it.
    own_dropout: {usual end: the `dropout` of that head}.
    fixed_dropout: {usual end: whether it has the encoder's rate or none, for any key}.
    fixed: {usual end: {their key: the only supported value}}.
    shared: prefixes of the names outside of the body that a fine-tuned model has as well.
    after_export: as of `HuggingFaceMap`.
    """

    prefix: str
    classes: Mapping[HeadClass, str | None] = dataclasses.field(default_factory=dict)
    rules: Mapping[HeadClass, Rules] = dataclasses.field(default_factory=dict)
    pooler: str | None = None
    dropout: NamedRate | None = ("classifier_dropout", None)
    own_dropout: Mapping[HeadClass, NamedRate] = dataclasses.field(default_factory=dict)
    fixed_dropout: Mapping[HeadClass, bool] = dataclasses.field(default_factory=dict)
    fixed: Mapping[HeadClass, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    shared: tuple[str, ...] = ()
    after_export: tuple[Step, ...] = ()

    def has_class(self, kind: HeadClass) -> bool:
        """Return whether transformers has the class."""
        return self.classes.get(kind, kind) is not None

    def name_class(self, kind: HeadClass) -> str:
        """Return the name of a class."""
        return self.prefix + (self.classes.get(kind) or kind)

    def find_rules(self, kind: HeadClass) -> Rules:
        """Return the rules of a head's parameters."""
        if kind == "ForMultipleChoice" and kind not in self.rules:
            kind = "ForSequenceClassification"
        usual = {"ForQuestionAnswering": SPANS, "Model": ()}
        return self.rules.get(kind, usual.get(kind, CLASSIFIER))

    def find_dropout(self, kind: HeadClass) -> NamedRate | None:
        """Return the dropout of a head, as `dropout`."""
        shared = None if kind in ("ForQuestionAnswering", "Model") else self.dropout
        return self.own_dropout.get(kind, shared)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecondModel:
    """Another transformers model that is a part of our model, in a subfolder of the export.

    Our rules have its tensors under `NAME/`.

    architecture: its class.
    keys: as of `HuggingFaceMap`.
    describe_absent: (configuration of the first model) -> this one's where the folder lacks it.
      Its weights are then random, as a missing head's.
    """

    architecture: str
    keys: KeyRules
    describe_absent: Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HuggingFaceMap:
    """The names of a family in Hugging Face transformers, for imports and exports.

    Names of tensors
      rules       (our path, their name, layout), see rules.py; or a function of the configuration
                  that returns them
      stacks      {path of a stack of layers: the field or property with its depth}
      body        prefixes of the names that must have a place in our model
      heads       prefixes of the names that may all be missing
      sentence_heads  the `heads` that the prediction of tokens does not use
      buffers     patterns (fnmatch) of names that hold no weights
      before_import  steps that turn a folder's tensors into the tensors of `rules`, in order:
                  tensor_steps.py
      after_export  steps that add what their folder has in addition to the tensors of `rules`
    config.json
      keys        rules of its keys: key_rules.py
      settings    (config, vocabulary) -> further entries; raises ValueError where transformers has
                  no such model. Models of images pass an `ImageEncoding` as vocabulary
      prepare     (their entries) -> the entries that `keys` read, where versions of transformers
                  write a setting in different ways
      read        (their entries, our fields by `keys`) -> our fields
      refine      (our configuration, the tensors) -> our configuration, where these say more
    Others
      second_models  {folder: another model of theirs that is a part of ours}
      head_map    the names of fine-tuned models; None: no head can be put on the family
      refused     {architecture that is not imported: the reason}
      code        a repository of the Hub, or the export's file of remote_code, that opens it; or ""
    """

    model_type: str
    architecture: str
    rules: Rules | Callable[[Any], Rules]
    body: tuple[str, ...]
    keys: KeyRules
    stacks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    heads: tuple[str, ...] = ()
    sentence_heads: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    before_import: tuple[Step, ...] = ()
    after_export: tuple[Step, ...] = ()

    settings: Callable[[Any, Any], dict[str, Any]] = describe_padding
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda theirs: theirs
    read: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] = lambda theirs, ours: ours

    refine: Callable[[Any, Any], Any] = lambda config, tensors: config
    second_models: Mapping[str, SecondModel] = dataclasses.field(default_factory=dict)
    head_map: HeadMap | None = None
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    code: str = ""

    def make_rules(self, config: ModelConfig) -> Rules:
        """Return the rules of a configuration."""
        return self.rules(config) if callable(self.rules) else self.rules

    def find_depths(self, config: ModelConfig) -> dict[str, int]:
        """Return {path of a stack of layers: its depth}."""
        return {stack: getattr(config, field) for stack, field in self.stacks.items()}

    @property
    def fine_tuned_names(self) -> HeadMap:
        """The names of fine-tuned models. Raises ValueError for a family without any."""
        if self.head_map is None:
            raise ValueError(
                f"transformers has no {self.model_type} with a fine-tuned head. {JAX_FOLDER}"
            )
        return self.head_map

    @property
    def body_prefixes(self) -> tuple[str, ...]:
        """Prefixes of the names that must have a place in our model, second models included."""
        folders = ("", *(f"{name}/" for name in self.second_models))
        return tuple(folder + prefix for folder in folders for prefix in self.body)


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
    make_import_objective  (config) -> the objective that trains an imported model; None: no import,
                  or a folder of its model_type is imported as another family
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
    twin          another family with the same parameters, with which a run may begin; "": none
    take_encoder  (config, params) -> the parameters with which its encoder begins a fine-tuning
    same_to_tile  fields that must be equal for a larger model to begin with the tiled weights of a
                  smaller one; None: it cannot begin so
    distillation  how it is distilled from another family; None: it is not
    """

    name: str
    config: type[Config]
    objectives: tuple[type[Any], ...]
    hugging_face: HuggingFaceMap | None = None
    hdf5: Hdf5Map | None = None
    arrays: "ArrayMap | None" = None
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
    twin: str = ""
    same_to_tile: tuple[str, ...] | None = None
    take_encoder: Callable[[Any, Any], Any] = lambda config, params: params

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
    def is_imported(self) -> bool:
        """Whether a folder of its model_type is imported as this family."""
        return self.hugging_face is not None and self.make_import_objective is not None

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
