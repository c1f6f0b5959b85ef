"""A trained model: a checkpoint with its configuration, its encoding and its origin."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from etils import epath

from data.corpus.buckets import check_bucket
from data.images.encoding import ImageEncoding
from data.saved_encoding import load_encoding
from data.vocabulary.load import Vocabulary
from data.vocabulary.spelling import make_speller
from data.vocabulary.word_level import make_text_vocabulary
from models.config.base import WordEncoderConfig
from models.config.heads import HeadedConfig
from pretrain.config import Run, from_json
from pretrain.phases import get_run_at
from pretrain.settings.jax_settings import check_jax_settings
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.recorded_run import describe_other_run
from pretrain.workdir.workdir import Workdir

if TYPE_CHECKING:
    from jax.sharding import Mesh


RAW, EMA = PARAMETERS = ("raw", "ema")


@dataclasses.dataclass(frozen=True)
class Trained:
    """A checkpoint of a workdir.

    Attributes:
      run: the configuration; of a run with phases, the settings of the phase that made it; of a
        run with LoRA, without it.
      step: the step of the checkpoint.
      params: the model's parameters, LoRA's factors merged, float32, on the first device unless
        placed elsewhere.
      encoding: the vocabulary, or the classes of images, that the model was trained with.
      parameters: what `params` are: "raw" as trained, or "ema", their moving average.
    """

    workdir: Workdir
    run: Run
    step: int
    params: dict
    encoding: Vocabulary | ImageEncoding
    parameters: str = RAW

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary. Raises ConfigError for a model of images, which has none."""
        if isinstance(self.encoding, ImageEncoding):
            raise ConfigError(
                f"{self.workdir}: a {type(self.run.model).__name__} reads images and has no "
                "vocabulary, which this command needs"
            )
        return self.encoding

    @property
    def images(self) -> ImageEncoding:
        """The classes of images. Raises ConfigError for a model of texts, which has none."""
        if not isinstance(self.encoding, ImageEncoding):
            raise ConfigError(
                f"{self.workdir}: a {type(self.run.model).__name__} reads texts, not images"
            )
        return self.encoding

    @property
    def noun(self) -> str:
        """What it reads, in a line that counts them."""
        return "images" if isinstance(self.encoding, ImageEncoding) else "texts"

    @property
    def body(self) -> tuple[Any, Any]:
        """(configuration, parameters) of the model that `get_body_config` returns."""
        model = self.run.model
        is_headed = isinstance(model, HeadedConfig)
        return get_body_config(model), self.params["encoder"] if is_headed else self.params

    def with_compute_dtype(self, dtype: str) -> Trained:
        """Return the model with another `train.compute_dtype`; the parameters stay float32."""
        train = dataclasses.replace(self.run.train, compute_dtype=dtype)
        return dataclasses.replace(self, run=dataclasses.replace(self.run, train=train))

    def open_to(self, texts: Iterable[str]) -> Trained:
        """Return the model with the vocabulary that reads texts.

        That of a model of characters has all their words, so that none is unknown; another one
        stays as it is.
        """
        if not self.run.model.characters:
            return self
        return dataclasses.replace(self, encoding=make_text_vocabulary(texts))

    def make_inputs(self, ids_BL: Any) -> Any:
        """Return what the model reads of ids: the characters [B, L, C] of each, or the ids."""
        if not (width := self.run.model.characters):
            return ids_BL
        return make_speller(self.vocabulary, width)(ids_BL)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the rows of metrics.jsonl up to this step."""
        return [row for row in self.workdir.read_metrics() if row["step"] <= self.step]

    def read_origin(self) -> Any:
        """Return the origin of the first parameters, see `Workdir.read_origin`."""
        return self.workdir.read_origin()

    def read_manifest(self) -> Any:
        """Return the manifest of the run's token store; None if the store no longer exists."""
        path = epath.Path(self.run.data.store) / "manifest.json"
        return json.loads(path.read_text()) if self.run.data.store and path.exists() else None


def get_body_config(model: Any) -> Any:
    """Return the configuration of a fine-tuned model's encoder, or of any other model itself."""
    return model.encoder if isinstance(model, HeadedConfig) else model


def get_attention_config(model: Any) -> Any:
    """Return the result of `get_body_config`.

    Raises ValueError if it has no layers of attention.
    """
    body = get_body_config(model)
    if isinstance(body, WordEncoderConfig):
        raise ValueError(
            f"a {type(body).__name__} has no layers of attention, whose states and weights could "
            "be shown; `predict` gives its labels"
        )
    return body


def open_trained(
    workdir: epath.PathLike,
    step: int | None = None,
    parameters: str | None = None,
    report: Callable[[str], Any] = print,
    choose_sharding: Callable[[str, tuple[int, ...]], Any] | None = None,
    merge: bool = True,
) -> Trained:
    """Return the newest sound checkpoint of a workdir, or the one of `step`.

    Args:
      step: the step of the checkpoint; None: the newest sound one.
      parameters: "ema" for the moving average of the parameters (`train.ema_decay`), "raw" or None
        for the parameters themselves.
      choose_sharding: (path, shape) -> sharding of a parameter; None: the first device.
      merge: whether LoRA's factors are merged into the kernels; otherwise both are as saved.

    Raises:
      FileNotFoundError: there is no such checkpoint.
      ConfigError: the workdir's vocabulary or classes are not those that the checkpoint was trained
        with, or are more than the model has; the run keeps no moving average; or JAX has a setting
        that is refused.
      ValueError: unknown `parameters`.
    """
    from pretrain.workdir.read_params import restore_recorded_params

    parameters = parameters or RAW
    if parameters not in PARAMETERS:
        raise ValueError(f"--parameters {parameters}: must be {' or '.join(PARAMETERS)}")
    check_jax_settings()
    check_bucket(workdir)
    workdir = Workdir.open(workdir)
    is_ema = parameters == EMA
    record, params = restore_recorded_params(workdir, step, choose_sharding, report, is_ema)
    step, recorded = int(record["step"]), record["encoding"]
    run = get_run_at(from_json(record["run"], where=f"{workdir}, step {step}"), step)
    if line := describe_other_run(workdir, record):
        report(line)
    encoding = load_encoding(workdir)
    if encoding.fingerprint != recorded:
        is_images = isinstance(encoding, ImageEncoding)
        folder, noun = ("images", "list of classes") if is_images else ("vocabulary", "vocabulary")
        raise ConfigError(
            f"{workdir / folder} is not the {noun} that checkpoint {step} was trained with "
            f"(fingerprint {encoding.fingerprint}, recorded {recorded}); put the right one back"
        )
    check_encoding_size(workdir, run.model, encoding)
    if run.train.lora_rank and merge:
        run, params = merge_lora(run, params)
    return Trained(workdir, run, step, params, encoding, parameters)


def merge_lora(run: Run, params: Any) -> tuple[Run, dict[str, Any]]:
    """Return a run without LoRA, and its parameters with the factors merged into the kernels."""
    import jax

    from models.layers.lora import merge_factors

    merged = jax.jit(partial(merge_factors, scale=run.train.lora_scale))(params)
    train = dataclasses.replace(run.train, lora_rank=None, lora_dropout=0.0)
    return dataclasses.replace(run, train=train), merged


def check_encoding_size(workdir: Workdir, model: Any, encoding: Vocabulary | ImageEncoding) -> None:
    """Raise ConfigError if a model has fewer embeddings than ids, or fewer scores than classes."""
    if isinstance(encoding, ImageEncoding):
        if len(encoding.classes) > model.classes:
            raise ConfigError(
                f"{workdir}: images have {len(encoding.classes)} classes and the model "
                f"{model.classes}"
            )
    elif encoding.size > model.vocab and not model.characters:
        raise ConfigError(
            f"{workdir}: the vocabulary has {encoding.size} ids and the model {model.vocab}"
        )


def open_placed(
    workdir: epath.PathLike, step: int | None = None, parameters: str | None = None
) -> tuple[Trained, Mesh]:
    """Return a checkpoint as `open_trained`, with its parameters on the run's mesh, and the mesh.

    Damaged checkpoints are reported on the standard error.
    """
    import sys

    from pretrain.mesh.sharding import make_mesh, make_param_sharding

    workdir = Workdir.open(workdir)
    mesh = make_mesh(workdir.run.mesh)
    trained = open_trained(
        workdir,
        step,
        parameters,
        lambda text: print(text, file=sys.stderr),
        lambda path, shape: make_param_sharding(path, shape, mesh),
    )
    return trained, mesh


def check_finite_params(
    trained: Trained,
    consequence: str = "a prediction means nothing",
    remedy: str = "use another --step",
) -> None:
    """Raise ValueError, which names a parameter, if parameters are NaN or infinite.

    A bias may be -inf: an output's bias so excludes a token or a class.

    Args:
      trained: the checkpoint.
    """
    import jax

    for path, is_sound in jax.tree.leaves_with_path(_make_finite_check()(trained.params)):
        if not is_sound:
            raise ValueError(
                f"{trained.workdir}: the parameters of step {trained.step:,} are not finite "
                f"({jax.tree_util.keystr(path, simple=True, separator='/')}), so {consequence}; "
                f"{remedy}"
            )


@cache
def _make_finite_check() -> Any:
    """Return the jitted check of parameters; there is one, so that it is compiled once a model."""
    import jax
    import jax.numpy as jnp

    def check_leaf(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path[-1:], simple=True)
        return (leaf < jnp.inf if name == "bias" else jnp.isfinite(leaf)).all()

    return jax.jit(partial(jax.tree_util.tree_map_with_path, check_leaf))
