"""The worker of benchmarks/speed/step.py for PyTorch; it runs in the peers' environment.

    step_torch.py CASE trainer|trainer_compiled|tuned|compiled

The Trainer has its own loop: a callback makes it wait for each turn and times its steps.
"""

# torch and transformers are optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import os
import pathlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np
import torch
import transformers

from benchmarks.harness import answer_messages, measure_peak_memory, reset_peak_memory

WAYS = ("trainer", "trainer_compiled", "tuned", "compiled")
MODEL_CLASSES = {
    "bert": "BertForMaskedLM",
    "modernbert": "ModernBertForMaskedLM",
    "t5": "T5ForConditionalGeneration",
    "gpt2": "GPT2LMHeadModel",
    "vit": "ViTForImageClassification",
}


Step = Callable[[int], dict[str, float]]


def make_inputs(
    family: str, batch: Mapping[str, np.ndarray], device: str
) -> dict[str, torch.Tensor]:
    """Return the batch as input of the models of transformers, with the label -100 where unscored.

    On a GPU the mask of a batch without padding is omitted: the result is the same, and fused
    attention accepts no mask.
    """
    if family == "vit":
        pixels_BCHW = batch["pixels"].transpose(0, 3, 1, 2).astype(np.float32)
        return {
            "pixel_values": torch.tensor((pixels_BCHW / 255 - 0.5) / 0.5),
            "labels": torch.tensor(batch["labels"].astype(np.int64)),
        }
    names = {
        "t5": {
            "input_ids": "encoder_token_ids",
            "attention_mask": "encoder_attention_mask",
            "labels": "labels",
        },
        "bert": {"attention_mask": "attention_mask"},
        "modernbert": {"attention_mask": "attention_mask"},
    }
    inputs = {
        name: torch.tensor(batch[key].astype(np.int64))
        for name, key in names.get(family, {}).items()
    }
    if device == "cuda" and "attention_mask" in inputs and inputs["attention_mask"].all():
        del inputs["attention_mask"]
    if family == "t5":
        return inputs
    ids = batch["token_ids"].astype(np.int64)
    if family == "gpt2":
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(ids)}
    labels = np.full_like(ids, -100)
    np.put_along_axis(
        labels, batch["masked_positions"].astype(np.int64), batch["labels"].astype(np.int64), axis=1
    )
    return inputs | {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)}


def wait_for_device(device: str) -> None:
    """Wait until a device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def measure_device_peak(device: str) -> float:
    """Return the peak memory of a device in MiB since the last `reset_device_peak`."""
    return torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else measure_peak_memory()


def reset_device_peak(device: str) -> float:
    """Return the peak memory in MiB and reset it."""
    if device == "cpu":
        return reset_peak_memory()
    peak_mib = measure_device_peak(device)
    torch.cuda.reset_peak_memory_stats()
    return peak_mib


def make_model_loss(model: Any) -> Callable[[dict[str, torch.Tensor]], torch.Tensor]:
    """Return the model's own loss, a function of its inputs."""
    return lambda inputs: model(**inputs).loss


def make_tuned_loss(
    family: str, model: Any, batch: Mapping[str, np.ndarray], device: str
) -> Callable[[dict[str, torch.Tensor]], torch.Tensor]:
    """Return a loss, a function of the model's inputs; an encoder's has masked positions only."""
    if family not in ("bert", "modernbert"):
        return make_model_loss(model)
    rows, length = batch["token_ids"].shape
    flat_BP = np.arange(rows)[:, None] * length + batch["masked_positions"]
    flat_positions = torch.tensor(flat_BP.ravel().astype(np.int64)).to(device)
    targets = torch.tensor(batch["labels"].ravel().astype(np.int64)).to(device)

    def compute_loss(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        states = model.base_model(
            input_ids=inputs["input_ids"], attention_mask=inputs.get("attention_mask")
        )[0]
        states = states.reshape(-1, states.shape[-1])[flat_positions]
        scores = model.cls(states) if family == "bert" else model.decoder(model.head(states))
        return torch.nn.functional.cross_entropy(scores.float(), targets)

    return compute_loss


def compute_first_loss(
    model: Any,
    compute_loss: Callable[[dict[str, torch.Tensor]], torch.Tensor],
    inputs: dict[str, torch.Tensor],
    use_bfloat16: bool,
    device: str,
) -> float:
    """Return the loss without dropout in the step's dtype."""
    model.eval()
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=use_bfloat16):
        loss = compute_loss(inputs).item()
    model.train()
    return loss


def make_tuned_step(
    model: Any,
    compute_loss: Callable[[dict[str, torch.Tensor]], torch.Tensor],
    inputs: dict[str, torch.Tensor],
    use_bfloat16: bool,
    device: str,
) -> tuple[Step, float]:
    """Return the step function of a hand-written loop, and the seconds of its first step.

    Args:
      use_bfloat16: whether to compute in bfloat16.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-8, weight_decay=0.01, fused=True)

    def train_step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=use_bfloat16):
            loss = compute_loss(inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    def train_steps(steps: int) -> dict[str, float]:
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            loss = train_step()
            wait_for_device(device)
            times.append(time.perf_counter() - start)
        return {
            "seconds": float(np.median(times)),
            "memory": measure_device_peak(device),
            "loss": loss.item(),
        }

    start = time.perf_counter()
    train_step()
    wait_for_device(device)
    return train_steps, time.perf_counter() - start


def make_trainer_step(
    case: Mapping[str, Any],
    model: Any,
    inputs: dict[str, torch.Tensor],
    use_bfloat16: bool,
    compiled: bool,
    device: str,
) -> tuple[Step, float]:
    """Return the step function of `transformers.Trainer`, and the seconds of its first step.

    The Trainer runs in its own thread. A step lasts from the end of the step before to its own end.
    """
    go, done = queue.Queue(), queue.Queue()

    class StepTimer(transformers.TrainerCallback):
        remaining = 0  # steps of this turn
        start = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not self.remaining:
                self.remaining, self.start = go.get(), time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            wait_for_device(device)
            end = time.perf_counter()
            done.put(end - self.start)
            self.remaining, self.start = self.remaining - 1, end

    rows = [{name: value[i] for name, value in inputs.items()} for i in range(case["rows"])] * 1000
    arguments = transformers.TrainingArguments(
        output_dir=case["folder"] + "/trainer", per_device_train_batch_size=case["rows"],
        max_steps=1_000_000, bf16=use_bfloat16, use_cpu=device == "cpu", learning_rate=1e-8,
        weight_decay=0.01, report_to=[], save_strategy="no", logging_strategy="no",
        disable_tqdm=True, seed=0, torch_compile=compiled,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, callbacks=[StepTimer()]
    )

    def run_trainer() -> None:
        try:
            trainer.train()
        except Exception as error:  # wait_for_step() raises it in the main thread
            done.put(error)

    threading.Thread(target=run_trainer, daemon=True).start()

    def wait_for_step() -> float:
        if isinstance(result := done.get(), Exception):
            raise result
        return result

    def train_steps(steps: int) -> dict[str, float]:
        go.put(steps)
        return {
            "seconds": float(np.median([wait_for_step() for _ in range(steps)])),
            "memory": measure_device_peak(device),
        }

    return train_steps, train_steps(1)["seconds"]


def serve_requests() -> dict[str, Any]:
    """Return the first answer and the step function of the program that the command line names."""
    case, way = json.loads(sys.argv[1]), sys.argv[2]
    if way not in WAYS:
        raise SystemExit(f"unknown program: {way}; allowed: {', '.join(WAYS)}")
    device = {"cpu": "cpu", "gpu": "cuda"}[case["device"]]
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    with np.load(pathlib.Path(case["folder"]) / "batch.npz") as file:
        batch = dict(file)
    model = (
        getattr(transformers, MODEL_CLASSES[case["family"]])
        .from_pretrained(case["folder"])
        .to(device)
    )
    inputs = {
        name: value.to(device) for name, value in make_inputs(case["family"], batch, device).items()
    }
    low = case["compute"] == "bfloat16"
    trainer, compiled = way.startswith("trainer"), way.endswith("compiled")
    loss_of = (
        make_model_loss(model) if trainer else make_tuned_loss(case["family"], model, batch, device)
    )
    loss = compute_first_loss(model, loss_of, inputs, low, device)
    if trainer:
        rows = {
            name: value.cpu() for name, value in inputs.items()
        }  # the Trainer moves them itself
        step, first = make_trainer_step(case, model, rows, low, compiled, device)
    else:
        step, first = make_tuned_step(
            model, torch.compile(loss_of) if compiled else loss_of, inputs, low, device
        )
    versions = [f"PyTorch {torch.__version__}", f"transformers {transformers.__version__}"]
    return {
        "ready": {
            "loss": loss,
            "compile": first,
            "versions": versions,
            "hardware": [],
            "memory": reset_device_peak(device),
        },
        "step": step,
    }


if __name__ == "__main__":
    answer_messages(serve_requests)
    os._exit(0)  # the thread of the Trainer still waits for its turn
