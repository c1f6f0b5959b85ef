"""The options of `finetune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from data.examples.file_formats import FORMATS
from data.examples.tag_schemes import SCHEMES
from data.objectives.text2text import Text2Text
from models.config import find_configs
from models.config.base import TakesHead
from pretrain.families import FAMILIES
from pretrain.inference.random_head import parameters_option
from pretrain.settings.arguments import (
    PathText,
    format_optional,
    format_path,
    list_arguments,
    list_optional,
    list_paths,
    list_texts,
)
from pretrain.settings.verb_options import Group, option
from pretrain.training.monitoring.options import MonitoringOptions

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

EPOCHS, EPOCHS_OF_NEW = 3.0, 10.0  # of a pretrained model, and of one with random parameters
# The models that learn to generate answers.
GENERATIVE_MODELS = [
    family.config.__name__ for family in FAMILIES.values() if Text2Text in family.objectives
]


def name_encoders() -> str:
    """Return the names of the models on which a head can be put."""
    return ", ".join(kind.__name__ for kind in find_configs() if issubclass(kind, TakesHead))


START = Group(excludes=True, required=True)
EXAMPLES = Group(
    "examples",
    "each FILE is .jsonl, .tsv or .csv with named columns, SQuAD's .json (also .gz), or "
    "tfds:NAME[/CONFIG][:SPLIT]. With several tasks, give --heldout, --columns, --prefix "
    "and --labels as NAME=VALUE, once per task",
)


class FinetuneOptions(MonitoringOptions):
    """The options of `finetune`; `split_task_arguments` makes those of each task."""

    pretrained: PathText | Trained | None = option(
        "workdir of a pretrained or imported model. Encoders get a head for the task: "
        f"{name_encoders()}. Encoder-decoders generate the answer as text: "
        f"{', '.join(GENERATIVE_MODELS)}",
        "--from",
        group=START,
        kw_only=False,
        metavar="WORKDIR",
    )
    config: str | None = option(
        "configuration of a new encoder with random parameters, which learns from labelled "
        "texts alone. Its vocabulary is the words of the training texts",
        default=None,
        group=START,
        metavar="NAME",
    )
    min_count: int | None = option(
        "with --config: words that occur less often are unknown (default: 1)",
        default=None,
        metavar="N",
    )
    vectors: str | None = option(
        "with --config: word vectors to begin with, one word and its numbers a line (also .gz)",
        default=None,
        metavar="FILE",
        converter=format_optional,
    )
    step: int | None = option(
        "step of its checkpoint (default: the newest intact one)", default=None
    )
    parameters: str | None = parameters_option()
    adapter: str | None = option(
        "with --from: LoRA's factors to begin with, and the head if there is one: a folder that "
        "`export --format peft` or `peft` wrote. It sets train.lora_rank, train.lora_alpha, "
        "train.lora_targets and, unless you do, train.lora_dropout",
        default=None,
        metavar="FOLDER",
        converter=format_optional,
    )
    task: list[str] = option(
        "classification, regression, tagging, multiple_choice, embedding, text2text, squad, "
        "squad2, or a task of GLUE: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli. A "
        "generative model can learn several tasks: --task NAME=FILE for each, where FILE has the "
        "training examples",
        kw_only=False,
        action="append",
        metavar="TASK",
        converter=list_paths,
    )
    train: str | None = option(
        "training examples (default for GLUE and SQuAD: from TFDS)",
        default=None,
        group=EXAMPLES,
        metavar="FILE",
        converter=format_optional,
    )
    heldout: list[str] | None = option(
        "held-out examples, all of which are scored (default: a share of --train)",
        default=None,
        group=EXAMPLES,
        action="append",
        metavar="FILE",
        converter=list_optional,
    )
    held_out: float | None = option(
        "share of --train to hold out, chosen by hash (default: 0.1)",
        default=None,
        group=EXAMPLES,
        metavar="SHARE",
    )
    columns: list[str] | None = option(
        "names of the columns: a text or a pair of texts, and the label (default: text,label "
        "or text,text2,label); for tagging, the words and the tags; for embedding, the texts, and "
        "a score if its name is score or label",
        default=None,
        group=EXAMPLES,
        action="append",
        metavar="A[,B],LABEL",
        converter=list_texts,
    )
    prefix: list[str] | None = option(
        'for text2text: prefix of every source, e.g. "translate English to German: "',
        default=None,
        group=EXAMPLES,
        action="append",
        metavar="TEXT",
        converter=list_texts,
    )
    labels: list[str] | None = option(
        "names of the classes in order (default: those in --train)",
        default=None,
        group=EXAMPLES,
        action="append",
        metavar="A,B,...",
        converter=list_texts,
    )
    limit: int | None = option(
        "for several tasks, which are mixed in proportion to their examples: at most K "
        "examples of each per epoch",
        default=None,
        group=EXAMPLES,
        metavar="K",
    )
    file_format: str | None = option(
        "format of the files, whatever their names: conll for CoNLL's eng.train (default: the "
        "end of a name decides)",
        "--as",
        default=None,
        group=EXAMPLES,
        choices=FORMATS,
    )
    scheme: str | None = option(
        "for tagging: scheme by which tags spell entities (default: detected)",
        default=None,
        group=EXAMPLES,
        choices=SCHEMES,
    )
    on_bad_example: str = option(
        "what to do with a bad example, such as a line with a column too few, or a question "
        "whose answer is not in the context at its given position: stop with an error, or skip "
        "and count it (default: %(default)s)",
        "--on-bad-example",
        "--on-bad-answer",
        default="refuse",
        group=EXAMPLES,
        choices=("refuse", "skip"),
    )
    workdir: str = option(
        "folder of the run; an existing run is resumed", kw_only=False, converter=format_path
    )
    epochs: float | None = option(
        "passes over all examples, unless train.steps is set (default: "
        f"{EPOCHS:g}; {EPOCHS_OF_NEW:g} with --config)",
        default=None,
        metavar="E",
    )
    seeds: int | None = option(
        "make N runs with the seeds train.seed, train.seed + 1, ..., and report mean and "
        "standard deviation",
        default=None,
        metavar="N",
    )
    fresh: str = option(
        "parameters to initialize at random: the head, or all, as a baseline "
        "(default: %(default)s)",
        default="head",
        choices=("head", "all"),
    )
    overrides: list[str] = option(
        "changed fields, e.g. optimizer.learning_rate=3e-4 data.objective.length=64",
        "overrides",
        default=(),
        kw_only=False,
        nargs="*",
        metavar="path=value",
        converter=list_arguments,
    )

    def check(self) -> None:
        """Raise ValueError for an unknown choice."""
        self.check_choices("fresh", "on_bad_example")


class TaskOptions(NamedTuple):
    """The options of one of the tasks of `FinetuneOptions`, and by which its files are read."""

    task: str
    train: str | None = None
    heldout: str | None = None
    held_out: float | None = None
    columns: str | None = None
    prefix: str | None = None
    labels: str | None = None
    scheme: str | None = None
    on_bad_example: str = "refuse"
    file_format: str | None = None
