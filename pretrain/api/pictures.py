"""Pictures of a run and of a model, which a notebook shows."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from data.corpus.buckets import check_bucket
from data.store.atomic import write_atomically
from models.config.base import ImageConfig
from pretrain.api.loading import load
from pretrain.host.extras import how_to_install
from pretrain.host.terminal import print_notice
from pretrain.settings import Mesh
from pretrain.settings.arguments import list_paths

if TYPE_CHECKING:
    from models.config import ModelConfig
    from pretrain.workdir.trained import Trained

FEATURES = ". `features` has the hidden states of its layers"


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture. A notebook shows it.

    Attributes:
      name: what it shows, such as "loss".
      png: the bytes of the PNG file.
    """

    name: str
    png: bytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the PNG file, over one of the same name."""
        write_atomically(path, self.png)

    def __repr__(self) -> str:
        return f"Picture({self.name!r}, {len(self.png):,} bytes)"

    def _repr_png_(self) -> bytes:
        return self.png


def draw_curves(workdirs: str | os.PathLike[str] | Sequence[str]) -> list[Picture]:
    """Return the curves of one run, or of several to compare: loss, learning rate, throughput.

    They are the images of the report.

    Args:
      workdirs: one workdir or several.

    Raises:
      FileNotFoundError: there are no metrics.
      ValueError: matplotlib is not installed, or a workdir is given twice.
    """
    from pretrain.reporting.curve_images import draw_curves as draw_files
    from pretrain.reporting.run_report import read_runs

    paths = list_paths(workdirs)
    for path in paths:
        _check_metrics(path)
    runs = {title: run.rows for title, run in read_runs(paths).items()}
    with tempfile.TemporaryDirectory() as folder:
        paths = draw_files(runs, pathlib.Path(folder), print_notice)
        return [Picture(path.stem, path.read_bytes()) for path in paths]


def _check_metrics(workdir: str) -> None:
    """Raise FileNotFoundError if a run has no metrics."""
    check_bucket(workdir)
    path = epath.Path(workdir) / "metrics.jsonl"
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; a run writes it at its first step")


def draw_attention(
    model: str | os.PathLike[str] | Trained,
    text: str | tuple[str, str],
    *,
    step: int | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> list[Picture]:
    """Return the attention weights of a text, one picture per layer with all its heads.

    Args:
      model: a workdir or a loaded checkpoint.
      text: a text, or a pair of texts: for an encoder-decoder the source and the target.
      step: the step of the checkpoint of a workdir; None: the newest sound one.
      layers, heads: their numbers from 1; None: all.

    Raises:
      ValueError: the model has no attention, or not those layers or heads, or matplotlib is not
        installed.
    """
    import jax

    from pretrain.inference.attention_maps import compute_attention_maps
    from pretrain.inference.attention_pictures import draw_panel
    from pretrain.mesh.sharding import make_mesh
    from pretrain.workdir.trained import get_attention_config

    if not importlib.util.find_spec("matplotlib"):
        raise ValueError(f"pictures need matplotlib: {how_to_install('report')}")
    trained = load(model, step)
    check_layers_and_heads(get_attention_config(trained.run.model), layers, heads)
    source, target = (text, None) if isinstance(text, str) else text
    mesh = make_mesh(Mesh(1), jax.local_devices()[:1])
    with jax.set_mesh(mesh):
        (panels,) = compute_attention_maps(trained, mesh, [("text", source, target)])
    pictures = []
    for panel in panels:
        for layer in layers or range(1, len(panel.weights_NHLM) + 1):
            drawn = io.BytesIO()
            draw_panel(panel, layer, heads or range(1, panel.weights_NHLM.shape[1] + 1), drawn)
            pictures.append(Picture(f"{panel.name}, layer {layer}", drawn.getvalue()))
    return pictures


def draw_filling(result: Mapping[str, Any], title: str = "") -> Picture:
    """Return the picture of a text that a diffusion model has filled: which mask in which step.

    Args:
      result: a result of `predict`, with `filled` and `fills`.
      title: a line above the text.

    Raises:
      ValueError: the result is another model's, or matplotlib is not installed.
    """
    from pretrain.inference.diffusion.filling_picture import draw_filling as draw

    if not importlib.util.find_spec("matplotlib"):
        raise ValueError(f"pictures need matplotlib: {how_to_install('report')}")
    if "fills" not in result:
        raise ValueError(
            "a picture of steps needs `fills`, which `predict` returns for a diffusion model "
            "without `top`"
        )
    drawn = io.BytesIO()
    warning = draw(result["filled"], result["fills"], title, drawn)
    if warning:
        print_notice(warning)
    return Picture("the order of filling", drawn.getvalue())


def check_layers_and_heads(
    model: ModelConfig, layers: Sequence[int] | None, heads: Sequence[int] | None
) -> None:
    """Raise ValueError unless a model has attention, and these layers and heads, from 1."""
    if not model.has_attention:
        other = "" if isinstance(model, ImageConfig) else FEATURES
        raise ValueError(f"a {type(model).__name__} has no attention{other}")
    depth = min(model.depths)
    for name, numbers, most in (("layers", layers, depth), ("heads", heads, model.num_heads)):
        if wrong := [number for number in numbers or () if not 1 <= number <= most]:
            raise ValueError(f"--{name} {wrong[0]}: the model has {name} 1 to {most}")
