"""The worker of `downstream_peer` for PyTorch; it runs in the peers' environment.

    downstream_torch.py FOLDER trainer|loop

`AutoModelForSequenceClassification` with the folder's weights and batches, AdamW, warm-up, linear
decay and gradient clipping, trained by a plain loop or by `transformers.Trainer`, which a callback
makes wait before each step.

    FOLDER/model                    the `export` of a run before its first step
    FOLDER/train.npz, heldout.npz   the run's batches [N, B, ...]
    FOLDER/settings.json            settings of the optimizer
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

from benchmarks.harness import answer_messages

Step = Callable[[int], list[float]]
Settings = Mapping[str, Any]
Inputs = Mapping[str, torch.Tensor]


def read_batches(path: pathlib.Path) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return the batches of a file as ({input of the model: [N, B, ...]}, labels [N, B])."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file}
    names = {
        "input_ids": "token_ids",
        "attention_mask": "attention_mask",
        "token_type_ids": "token_type_ids",
    }
    inputs = {name: torch.tensor(arrays[key].astype(np.int64)) for name, key in names.items()}
    return inputs, torch.tensor(arrays["labels"].astype(np.int64))


def compute_rate_factor(step: int, steps: int, warmup: int) -> float:
    """Return the share of the peak rate at a step, as in pretrain/training/schedules.py."""
    return (step + 1) / max(warmup, 1) if step < warmup else (steps - step) / (steps - warmup)


def make_parameter_groups(model: torch.nn.Module, settings: Settings) -> list[dict[str, Any]]:
    """Return the parameter groups for AdamW; biases and norms have no weight decay."""
    decayed, not_decayed = [], []
    for name, parameter in model.named_parameters():
        has_decay = not (name.endswith("bias") or "LayerNorm" in name)
        (decayed if has_decay else not_decayed).append(parameter)
    return [
        {"params": decayed, "weight_decay": settings["weight_decay"]},
        {"params": not_decayed, "weight_decay": 0.0},
    ]


def make_optimizer(
    model: torch.nn.Module, settings: Settings
) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LambdaLR]:
    """Return AdamW and its learning rate schedule."""
    adam = torch.optim.AdamW(
        make_parameter_groups(model, settings),
        lr=settings["rate"],
        betas=settings["betas"],
        eps=settings["epsilon"],
        fused=True,
    )
    steps = settings["steps"]
    return adam, torch.optim.lr_scheduler.LambdaLR(
        adam, lambda step: compute_rate_factor(step, steps, min(settings["warmup"], steps - 1))
    )


# ---- the Trainer and the loop ------------------------------------------------


def make_trainer_step(
    model: Any, inputs: Inputs, labels: torch.Tensor, settings: Settings, folder: pathlib.Path
) -> Step:
    """Return a function that runs steps of `transformers.Trainer` and returns no losses.

    The Trainer runs in its own thread.
    """
    go: queue.Queue[None] = queue.Queue()
    done: queue.Queue[BaseException | None] = queue.Queue()

    class StepGate(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            go.get()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            done.put(None)

    class OrderedTrainer(transformers.Trainer):
        """A Trainer that reads the rows in their order."""

        def _get_train_sampler(self, *_: Any) -> torch.utils.data.Sampler:
            return torch.utils.data.SequentialSampler(rows)

    num_steps, B = labels.shape
    rows = [
        {**{name: value[n, i] for name, value in inputs.items()}, "labels": labels[n, i]}
        for n in range(num_steps)
        for i in range(B)
    ]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"), use_cpu=True, per_device_train_batch_size=B,
        max_steps=num_steps, max_grad_norm=settings["clip"], seed=settings["seed"], report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = OrderedTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        optimizers=make_optimizer(model, settings),
        callbacks=[StepGate()],
    )
    trainer.remove_callback(transformers.PrinterCallback)

    def run_trainer() -> None:
        try:
            trainer.train()
        except BaseException as error:  # step() raises it in the main thread
            done.put(error)

    threading.Thread(target=run_trainer, daemon=True).start()

    def train_steps(steps: int) -> list[float]:
        for _ in range(steps):
            go.put(None)
            if error := done.get():
                raise error
        return []

    return train_steps


def make_loop_step(
    model: Any, inputs: Inputs, labels: torch.Tensor, settings: Settings, folder: pathlib.Path
) -> Step:
    """Return a function that runs steps of a hand-written loop and returns their losses."""
    adam, schedule = make_optimizer(model, settings)
    batch_numbers = iter(range(settings["steps"]))

    def train_steps(steps: int) -> list[float]:
        model.train()
        losses = []
        for n in [next(batch_numbers) for _ in range(steps)]:
            adam.zero_grad(set_to_none=True)
            loss = compute_loss(model, inputs, labels, n)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
            adam.step()
            schedule.step()
            losses.append(loss.item())
        return losses

    return train_steps


def compute_loss(model: Any, inputs: Inputs, labels: torch.Tensor, n: int) -> torch.Tensor:
    """Return the loss of batch number `n`."""
    return torch.nn.functional.cross_entropy(
        model(**{name: value[n] for name, value in inputs.items()}).logits, labels[n]
    )


def serve_requests() -> dict[str, Any]:
    """Return the first answer and the step function.

    It runs `steps` steps, or for 0 steps predicts the held-out rows.
    """
    folder = pathlib.Path(sys.argv[1])
    make_step = {"trainer": make_trainer_step, "loop": make_loop_step}[sys.argv[2]]
    settings = json.loads((folder / "settings.json").read_text())
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(settings["seed"])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder / "model", classifier_dropout=settings["dropout"]
    )
    inputs, labels = read_batches(folder / "train.npz")
    heldout_inputs, _ = read_batches(folder / "heldout.npz")
    model.eval()
    with torch.no_grad():
        first = compute_loss(model, inputs, labels, 0).item()
    step = make_step(model, inputs, labels, settings, folder)

    def measure_steps(steps: int) -> dict[str, Any]:
        start, cpu_start = time.perf_counter(), time.process_time()
        losses = step(steps)
        return {
            "seconds": time.perf_counter() - start,
            "cpu": time.process_time() - cpu_start,
            "losses": losses,
        }

    def predict_heldout() -> dict[str, Any]:
        model.eval()
        with torch.no_grad():
            predictions = [
                model(**{name: value[i] for name, value in heldout_inputs.items()}).logits.argmax(
                    -1
                )
                for i in range(len(heldout_inputs["input_ids"]))
            ]
        return {"predicted": torch.cat(predictions).tolist()}

    versions = [f"PyTorch {torch.__version__}", f"transformers {transformers.__version__}"]
    return {
        "ready": {"loss": first, "versions": versions},
        "step": lambda steps: measure_steps(steps) if steps else predict_heldout(),
    }


if __name__ == "__main__":
    answer_messages(serve_requests)
    os._exit(0)  # the thread of the Trainer may still wait for its turn
