"""The worker of `step` for Cloze: the step that `train` runs, with a given batch."""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.harness import answer_messages, measure_peak_memory, reset_peak_memory

if TYPE_CHECKING:
    from pretrain.config import Run
    from pretrain.training.program import Program


def make_config(case: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Run:
    """Return the configuration of a case.

    Args:
      case: {family, model, length, rows, compute}.
      shapes: {key: shape} of the batch.
    """
    from data.config import Data
    from data.objectives import CausalLm, ImageClassification, MaskedLm, SpanCorruption
    from models.config.bert import BertConfig
    from models.config.gpt2 import Gpt2Config
    from models.config.modernbert import ModernBertConfig
    from models.config.t5 import T5Config
    from models.config.vit import VitConfig
    from pretrain.config import AdamW, Run, Train

    models = {
        "bert": BertConfig,
        "modernbert": ModernBertConfig,
        "t5": T5Config,
        "gpt2": Gpt2Config,
        "vit": VitConfig,
    }
    model = models[case["family"]](**case["model"])
    length = case["length"]
    match case["family"]:
        case "bert" | "modernbert":
            objective = MaskedLm(
                length=length, max_predictions=shapes["masked_positions"][1], rows="documents"
            )
        case "t5":
            objective = SpanCorruption(inputs=length)
        case "gpt2":
            objective = CausalLm(length=length)
        case "vit":
            objective = ImageClassification()
        case family:
            raise ValueError(f"family {family!r}: expected bert, modernbert, t5, gpt2 or vit")
    data = Data(objective=objective, store="none", batch_size=case["rows"])
    return Run(
        model=model,
        data=data,
        optimizer=AdamW(),
        train=Train(steps=1_000_000, compute_dtype=case["compute"]),
    )


def serve_requests() -> dict[str, Any]:
    """Write the weights for the other programs and return the first answer and the step function.

    The step function runs `steps` steps and returns their median seconds, peak memory and loss.
    """
    case = json.loads(sys.argv[1])
    import jax
    import numpy as np

    from pretrain.config import Mesh
    from pretrain.mesh.sharding import make_mesh
    from pretrain.training.program import make_program

    folder = pathlib.Path(case["folder"])
    with np.load(folder / "batch.npz") as file:
        batch = dict(file)
    run = make_config(case, {key: value.shape for key, value in batch.items()})
    device = jax.devices()[0]
    mesh = make_mesh(Mesh(1), [device])
    program = make_program(run, mesh)
    state = program.init()
    save_for_transformers(run.model, jax.device_get(state.params), folder)
    batch = jax.device_put(batch, {key: program.batch[key].sharding for key in batch})
    loss = compute_loss(program, state.params, batch, case["compute"])

    start = time.perf_counter()
    state, metrics = program.train_step(state, batch)
    jax.block_until_ready(metrics)
    compile_seconds = time.perf_counter() - start

    def train_steps(steps: int) -> dict[str, float]:
        nonlocal state
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            state, metrics = program.train_step(state, batch)
            jax.block_until_ready((state, metrics))
            times.append(time.perf_counter() - start)
        return {
            "seconds": float(np.median(times)),
            "memory": measure_device_peak(device),
            "loss": float(metrics["loss"]),
            "rate": get_peak_flops(device, case["compute"]) / 1e9,
        }

    ready = {
        "loss": loss,
        "compile": compile_seconds,
        "versions": [f"JAX {jax.__version__}"],
        **count_work(run),
        "hardware": [] if device.platform == "cpu" else [device.device_kind],
        "memory": measure_device_peak(device),
    }
    if device.platform == "cpu":
        reset_peak_memory()
    return {
        "ready": ready | {"rate": get_peak_flops(device, case["compute"]) / 1e9},
        "step": train_steps,
    }


def count_work(run: Run) -> dict[str, Any]:
    """Return the FLOPs of a step, and the number and the unit of the positions of its batch."""
    from pretrain.training import flops

    return {
        "flops": flops.count_step_flops(run).all_pairs,
        "positions": run.data.batch_size * run.data.objective.count_positions(),
        "unit": run.data.objective.unit,
    }


def compute_loss(program: Program, params: Any, batch: Any, compute_dtype: str) -> float:
    """Return the loss of a batch without dropout."""
    from pretrain.training.losses import LossOptions

    loss, options = program.loss, LossOptions(compute_dtype=compute_dtype)
    sums = loss.sum_batch(program.model, params, batch, options=options)
    totals = loss.sum_weights(batch)
    return float(loss.compute_loss({name: sums[name] / totals[name] for name in loss.loss_terms}))


def save_for_transformers(model: Any, params: Any, folder: pathlib.Path) -> None:
    """Write config.json and model.safetensors in the format of transformers.

    Args:
      model: the model's configuration.
    """
    from safetensors.numpy import save_file

    from pretrain.convert.read_write import find_converter

    converter = find_converter(model)
    ids = dict(pad=0, unk=1, cls=2, sep=3, mask=4, bos=2, eos=1, end=1)
    encoding: Any = type("Encoding", (), ids | {"classes": ()})  # of tokens, or of images
    config = converter.to_hf_config(model, encoding)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = converter.to_hf(model, params)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def measure_device_peak(device: Any) -> float:
    """Return the peak memory in MiB of this process (on a CPU) or of the device."""
    if device.platform == "cpu":
        return measure_peak_memory()
    return device.memory_stats()["peak_bytes_in_use"] / 2**20


def get_peak_flops(device: Any, compute: str) -> float:
    """Return the peak FLOP/s: a CPU's measured rate of float32 matmuls, a GPU's published rate.

    Raises:
      RuntimeError: if there is no published rate.
    """
    from pretrain.training import flops

    if device.platform == "cpu":
        return flops.measure_matmul_rate("float32", seconds=0.1)
    if not (peak := flops.get_peak_flops(device, compute)):
        raise RuntimeError(
            f"pretrain/training/accelerators.py has no FLOP/s of {device.device_kind}: add a row"
        )
    return peak


if __name__ == "__main__":
    answer_messages(serve_requests)
