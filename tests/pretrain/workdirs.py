"""Workdirs of models that nobody has trained, and models in memory."""

import json

import jax
import numpy as np

from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import Trained


def draw_params(config, seed=0, width=0.4, scale=0.0):
    """Return random parameters around 0, those named `scale` around `scale`."""
    rng = np.random.default_rng(seed)

    def draw_leaf(path, leaf):
        center = scale if path[-1].key == "scale" else 0.0
        return rng.normal(center, width, leaf.shape).astype(np.float32)

    shapes = jax.eval_shape(make_initializer(make_starting_run(config)))
    return jax.tree_util.tree_map_with_path(draw_leaf, shapes)


def make_trained(config, encoding, seed=0, width=0.4):
    """Return a model with random parameters, in memory."""
    params = draw_params(config, seed, width)
    return Trained(None, make_starting_run(config), 7, params, encoding)


def start_untrained(workdir, config, vocabulary, params=None):
    """Begin a workdir of a model as it is initialized, or with these parameters; return its path."""
    run = make_starting_run(config)
    params = jax.jit(make_initializer(run))() if params is None else params
    start_workdir(workdir, run, params, vocabulary)
    return workdir


def write_json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
