"""A run is a tree of frozen dataclasses, one per owner: written in Python, overridden by words, saved as JSON.

    run = load("configs/bert_base.py", ["optimizer.learning_rate=3e-4", "model.depth=6"])
    assert from_json(to_json(run)) == run

Importing this module imports neither JAX nor TensorFlow, so that a misspelt word is an error in well under a second.
"""

import dataclasses
import difflib
import importlib.util
import json
import pathlib
from typing import Literal

from data.config import Data
from data.objectives.causal_lm import CausalLm
from data.objectives.denoising import Denoising
from data.objectives.distillation import Distillation
from data.objectives.masked_lm import MaskedLm
from data.objectives.prefix_lm import PrefixLm
from data.objectives.replaced_token import ReplacedToken
from data.objectives.sentence_order import SentenceOrder
from data.objectives.sentence_pair import SentencePair
from data.objectives.seq2seq import Seq2Seq
from data.objectives.span_corruption import SpanCorruption
from models.config import (
    AlbertConfig,
    BartConfig,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    Gpt2Config,
    Gpt3Config,
    GptConfig,
    RobertaConfig,
    T5Config,
    TransformerConfig,
)
from pretrain.typed import ConfigError, at_least, check, plain, replace, typed
from pretrain.watchdog import Limits

CONFIGS = pathlib.Path(__file__).parent.parent / "configs"


@dataclasses.dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); the defaults are BERT's (Devlin et al. 2018, A.2).

    The rate climbs linearly to `learning_rate` over `warmup` steps, then falls to `final` times that at step `fallen`, or
    at the run's last: linearly, or by half a cosine (Loshchilov and Hutter 2017); or as the inverse square root of the step, without end
    (Vaswani et al. 2017, section 5.3). Biases and norms are not decayed. Gradients are clipped to the global norm `clip`; 0 leaves them.
    With `relative` each parameter's update is multiplied by its root mean square (at least 1e-3), as Adafactor's is: what T5
    needs, whose parameters begin between 0.008 and 1 in size. The rate is then a relative one, such as 0.01.
    """

    learning_rate: float = 1e-4
    warmup: int = 10_000
    final: float = 0.0
    decay: Literal["linear", "cosine", "inverse_square_root"] = "linear"
    fallen: int = 0  # the step from which the rate stays at `final` times `learning_rate`; 0: the run's last
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    clip: float = 1.0
    relative: bool = False

    def __post_init__(self):
        at_least(self, 0, "learning_rate", "warmup", "final", "fallen", "weight_decay", "beta1", "beta2", "epsilon", "clip")


@dataclasses.dataclass(frozen=True)
class Adafactor:
    """Adafactor (Shazeer and Stern 2018) as T5 used it: rate 1/sqrt(max(step, warmup)), scaled by each parameter's RMS.

    With `decay="linear"` the rate is `learning_rate` after a linear warm-up and falls linearly to 0 instead.
    `learning_rate` multiplies the inverse square root too, where the paper's value is 1.
    """

    learning_rate: float = 1.0
    warmup: int = 10_000
    decay: Literal["inverse_sqrt", "linear"] = "inverse_sqrt"
    clip: float = 1.0  # on the RMS of each parameter's update, the paper's d

    def __post_init__(self):
        at_least(self, 0, "learning_rate", "warmup")
        at_least(self, 1e-6, "clip")


@dataclasses.dataclass(frozen=True)
class Lamb:
    """LAMB (You et al. 2020, algorithm 2); the defaults are ALBERT's (Lan et al. 2020, section 4.1, and their code).

    AdamW's update of each weight matrix of each layer, scaled to the length of the matrix itself: so that batches of thousands of
    rows can take large steps. Biases and norms are neither decayed nor scaled. The rate, and `clip`, are as AdamW's.
    """

    learning_rate: float = 0.00176
    warmup: int = 3_125
    final: float = 0.0
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    clip: float = 1.0

    def __post_init__(self):
        at_least(self, 0, "learning_rate", "warmup", "final", "weight_decay", "beta1", "beta2", "epsilon", "clip")


@dataclasses.dataclass(frozen=True)
class Train:
    """How long, and how one step is computed."""

    steps: int = 1_000_000  # updates in all: the learning rate ends here
    until: int = 0  # stop after so many already, e.g. to go on with longer rows; 0: at `steps`
    seed: int = 0  # of parameters, dropout, order and masks alike
    microbatches: int = 1  # the global batch is computed in so many parts; gradients are sums, so the result is the same
    compute: Literal["bfloat16", "float32"] = "bfloat16"  # parameters and optimizer are float32 in either case
    smoothing: float = 0.0  # the share of a target's weight that all words share alike, in training only (Szegedy et al. 2016, section 7)

    def __post_init__(self):
        if not 0 <= self.smoothing < 1:
            raise ConfigError(f"Train.smoothing is {self.smoothing}; it must be at least 0 and below 1")
        at_least(self, 1, "steps", "microbatches")
        at_least(self, 0, "seed", "until")
        if self.until > self.steps:
            raise ConfigError(f"Train.until={self.until} lies behind Train.steps={self.steps}, where the learning rate ends")

    @property
    def end(self):
        """The last step."""
        return self.until or self.steps


@dataclasses.dataclass(frozen=True)
class Guard:
    """What is done about steps that would do harm. A step whose loss or gradients are not finite is always skipped: it changes nothing.

    After `patience` skipped steps in a row the run goes back to the last checkpoint before them, and on with the data behind them, as
    PaLM's did (Chowdhery et al. 2022, section 5.1); where as many are skipped again, with no sound step saved in between, it ends.
    With `spike`, steps are skipped too whose gradient norm is above `spike` times the mean of those taken: of about the last `memory`, and
    once there are so many. It is off unless asked for, since `clip` tames a single spike; OLMo 2 skips beyond 6 standard deviations of 128.
    """

    patience: int = 10
    spike: float = 0.0  # e.g. 6; 0: no norm is too large. Its mean is kept with the optimizer's state, so a run keeps what it began with
    memory: int = 100
    replicas: int = 1_000  # every so many steps, and before each save: do devices that hold the same hold the same bits? 0: never

    def __post_init__(self):
        at_least(self, 1, "patience", "memory")
        at_least(self, 0, "spike", "replicas")
        if 0 < self.spike <= 1:
            raise ConfigError(f"Guard.spike is {self.spike:g}, but a norm may well be the mean of them; it must be 0 or above 1")


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Devices along each axis; one -1 takes what is left. Rows over data and fsdp, parameters over fsdp and model.

    Between blocks the positions of a row lie over `sequence`: for rows so long that one does not fit on a device.
    """

    data: int = -1
    fsdp: int = 1
    model: int = 1
    sequence: int = 1

    def __post_init__(self):
        if any(size < 1 and size != -1 for size in self.sizes):  # that only one is -1 is checked when all words have been applied
            raise ConfigError(f"mesh: {self}: each is at least 1, and one of them may be -1")

    @property
    def sizes(self):
        return self.data, self.fsdp, self.model, self.sequence

    def __str__(self):
        return " x ".join(f"{field.name}={getattr(self, field.name)}" for field in dataclasses.fields(self))


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """The whole held-out part, every `every` steps and after the last; 0 leaves it out of training."""

    every: int = 10_000

    def __post_init__(self):
        at_least(self, 0, "every")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Saved every `every` steps and after the last. What stays: the newest `keep`, each multiple of `keep_every`, the best, and pinned ones."""

    every: int = 1_000
    keep: int = 3
    keep_every: int = 0  # 0: none
    best: Literal["", "loss"] = ""  # of those saved where the held-out part was scored too, the one with the lowest of these

    def __post_init__(self):
        at_least(self, 1, "every", "keep")
        at_least(self, 0, "keep_every")


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that a run is; what is not in here does not change its result."""

    model: (
        BertConfig
        | T5Config
        | RobertaConfig
        | AlbertConfig
        | GptConfig
        | Gpt2Config
        | Gpt3Config
        | TransformerConfig
        | ElectraConfig
        | BartConfig
        | DistilBertConfig
    )
    data: Data
    optimizer: AdamW | Adafactor | Lamb = AdamW()
    train: Train = Train()
    guard: Guard = Guard()
    mesh: Mesh = Mesh()
    evaluate: Evaluate = Evaluate()
    checkpoint: Checkpoint = Checkpoint()
    watchdog: Limits = Limits()


# Every class that may stand in a run, by the name that it has in JSON and on the command line: nothing else is loaded.
KINDS = {
    kind.__name__: kind
    for kind in (
        *(Run, AdamW, Adafactor, Lamb, Train, Guard, Mesh, Evaluate, Checkpoint, Limits, Data),
        *(MaskedLm, SentencePair, SpanCorruption, SentenceOrder, CausalLm, PrefixLm, Seq2Seq, ReplacedToken, Denoising, Distillation),
        *(BertConfig, T5Config, RobertaConfig, AlbertConfig, GptConfig, Gpt2Config, Gpt3Config, TransformerConfig, ElectraConfig),
        *(BartConfig, DistilBertConfig),
    )
}


# Whose batches a model takes.
TRAINED_BY = {
    BertConfig: (MaskedLm, SentencePair),
    RobertaConfig: (MaskedLm,),
    AlbertConfig: (MaskedLm, SentenceOrder),
    T5Config: (SpanCorruption, PrefixLm),
    GptConfig: (CausalLm,),
    Gpt2Config: (CausalLm,),
    Gpt3Config: (CausalLm,),
    TransformerConfig: (Seq2Seq,),
    ElectraConfig: (ReplacedToken,),
    BartConfig: (Denoising,),
    DistilBertConfig: (Distillation, MaskedLm),
}


# ---- loading -----------------------------------------------------------------


def load(name, overrides=()):
    """The run that a configuration file describes, with `path=value` words applied.

    name: `bert_base`, `configs/bert_base.py`, any other Python file with a `config()`, or a saved `config.json`.
    Raises ConfigError, which names the file or the key and the nearest one that exists.
    """
    path = _find(name)
    run = read_json(path) if path.suffix == ".json" else _execute(path)
    return override(run, overrides)


def override(run, words):
    """A copy of `run` with each `path=value` applied, in order."""
    for word in words:
        path, equals, text = word.partition("=")
        if not equals or not path or not path.isprintable():
            raise ConfigError(f"{word!r} is not of the form path=value, for example train.steps=100")
        run = replace(run, path.split("."), text, path)
    if run.mesh.sizes.count(-1) > 1:  # words come one by one, so only now
        raise ConfigError(f"mesh {run.mesh}: only one of them may be -1")
    if run.checkpoint.best and not run.evaluate.every:
        raise ConfigError(f"checkpoint.best={run.checkpoint.best} needs the held-out part: set evaluate.every to a multiple of checkpoint.every")
    fitting = TRAINED_BY.get(type(run.model), (type(run.data.objective),))
    if not isinstance(run.data.objective, fitting):
        names = " or ".join(kind.__name__ for kind in fitting)
        raise ConfigError(f"data.objective: a {type(run.model).__name__} is trained by {names}, not by {type(run.data.objective).__name__}")
    return run


def _find(name):
    given = pathlib.Path(name)
    for path in (given, CONFIGS / f"{name}.py"):
        if path.suffix in (".py", ".json") and path.is_file():
            return path
    known = sorted(path.stem for path in CONFIGS.glob("*.py") if path.stem != "__init__")
    close = difflib.get_close_matches(given.stem, known, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ConfigError(f"no configuration {str(name)!r}: {hint}There are {', '.join(known)}, or a path to a .py or .json file")


def _execute(path):
    spec = importlib.util.spec_from_file_location(f"configuration_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "config", None)):
        raise ConfigError(f"{path}: a configuration file defines config() -> Run")
    try:
        run = module.config()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(run, Run):
        raise ConfigError(f"{path}: config() returned {type(run).__name__}, not a Run")
    check(run, "")
    return run


# ---- JSON --------------------------------------------------------------------


def to_json(run):
    """The resolved configuration as text; `from_json` reads it back equal."""
    return json.dumps(plain(run), indent=2) + "\n"


def read_json(path):
    """The run in a saved configuration (pathlib or epath). Raises ConfigError, which names the file, where it is damaged or another."""
    try:
        return from_json(path.read_text(), where=str(path))
    except (UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON ({error})") from error


def from_json(text, where="configuration"):
    """The run that `to_json` wrote. Raises ConfigError, which names `where` and the key, for anything else."""
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON ({error})") from error
    run = typed(tree, KINDS, where)
    if not isinstance(run, Run):
        raise ConfigError(f"{where}: not a saved configuration (its type is not Run)")
    check(run, where)
    return run
