"""A checkpoint together with what gives it a meaning: configuration, vocabulary, and what is known of its making."""

import dataclasses
import json

from etils import epath

from data.vocabulary.load import Vocabulary, load_vocabulary
from models.config.heads import HeadedConfig
from pretrain.config import Run
from pretrain.overrides import ConfigError


@dataclasses.dataclass(frozen=True)
class Trained:
    """The parameters of one step of a workdir, float32, on the first device unless placed elsewhere, and their vocabulary."""

    workdir: epath.Path
    run: Run
    step: int
    params: dict
    vocabulary: Vocabulary

    @property
    def body(self):
        """(configuration, parameters) of what `body_of` names."""
        model = self.run.model
        return body_of(model), self.params["encoder"] if isinstance(
            model, HeadedConfig
        ) else self.params

    def rows(self):
        """The rows of metrics.jsonl up to this step."""
        from pretrain.workdir.metrics_file import read

        return [row for row in read(self.workdir / "metrics.jsonl") if row["step"] <= self.step]

    def origin(self):
        """What `import` noted, or None for parameters that began here."""
        path = self.workdir / "origin.json"
        return json.loads(path.read_text()) if path.exists() else None

    def manifest(self):
        """The manifest of the run's token store, or None where it is not (any more) there."""
        path = epath.Path(self.run.data.store) / "manifest.json"
        return json.loads(path.read_text()) if self.run.data.store and path.exists() else None


def body_of(model):
    """The configuration of what has the layers that can be looked into: a fine-tuned model's encoder, any other model itself."""
    return model.encoder if isinstance(model, HeadedConfig) else model


def open_trained(workdir, step=None, report=print, place=None):
    """The newest good checkpoint of a workdir, or that of `step`, as a Trained; `place` as in `checkpoint.restore_params`.

    Raises FileNotFoundError where there is none, and ConfigError where the workdir's vocabulary/ is not the one that
    the checkpoint was trained with, or has more ids than the model.
    """
    from pretrain.workdir.checkpoints import Checkpoints, restore_params

    workdir = epath.Path(workdir)
    run, step, params = restore_params(workdir, step, place, report=report)
    vocabulary = load_vocabulary(workdir / "vocabulary")
    with Checkpoints(workdir, read_only=True) as checkpoints:
        trained = checkpoints.record(step)["encoding"]
    if vocabulary.fingerprint != trained:
        raise ConfigError(
            f"{workdir / 'vocabulary'} is not the vocabulary that checkpoint {step} was trained with "
            f"(fingerprint {vocabulary.fingerprint}, recorded {trained}); put the right one back"
        )
    if vocabulary.size > run.model.vocab:
        raise ConfigError(
            f"{workdir}: the vocabulary has {vocabulary.size} ids and the model {run.model.vocab}"
        )
    return Trained(workdir, run, step, params, vocabulary)


def open_placed(workdir, step=None):
    """(Trained, mesh): as `open_trained`, with the parameters on the run's mesh; what is told of a checkpoint goes to the standard error."""
    import sys

    from pretrain.distributed.sharding import make_mesh, parameter_sharding
    from pretrain.workdir.checkpoints import read_run

    mesh = make_mesh(read_run(workdir).mesh)
    trained = open_trained(
        workdir,
        step,
        lambda text: print(text, file=sys.stderr),
        lambda path, shape: parameter_sharding(path, shape, mesh),
    )
    return trained, mesh
