"""The side of PyTorch in benchmarks/downstream_peer.py; runs in the peers' environment: downstream_torch.py FOLDER trainer|loop.

`AutoModelForSequenceClassification` with the folder's weights and batches, AdamW, a warm-up and linear decay, clipping: `transformers.Trainer`,
which a callback makes wait before each step for word to go on, or a plain loop.

FOLDER/model     what `export` writes of a run that has not begun
FOLDER/train.npz, heldout.npz   batches [N, B, ...], as the run has them
FOLDER/settings.json   of the optimizer
"""

import json
import os
import pathlib
import queue
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import transformers

from benchmarks.harness import answer


def batches(path):
    """{key: tensor [N, B, ...]} of a file, under the names that the models of `transformers` want."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file}
    names = {
        "input_ids": "token_ids",
        "attention_mask": "attention_mask",
        "token_type_ids": "token_type_ids",
    }
    found = {name: torch.tensor(arrays[key].astype(np.int64)) for name, key in names.items()}
    return found, torch.tensor(arrays["labels"].astype(np.int64))


def rate(step, steps, warmup):
    """The share of the peak rate at a step, as pretrain/training/schedules.py has it."""
    return (step + 1) / max(warmup, 1) if step < warmup else (steps - step) / (steps - warmup)


def groups(model, settings):
    """The parameters of a model as AdamW takes them; biases and norms are not decayed."""
    kept = lambda name: name.endswith("bias") or "LayerNorm" in name  # noqa: E731
    parameters = list(model.named_parameters())
    return [
        {
            "params": [each for name, each in parameters if not kept(name)],
            "weight_decay": settings["weight_decay"],
        },
        {"params": [each for name, each in parameters if kept(name)], "weight_decay": 0.0},
    ]


def optimizer_of(model, settings):
    """(AdamW, its schedule)."""
    adam = torch.optim.AdamW(
        groups(model, settings),
        lr=settings["rate"],
        betas=settings["betas"],
        eps=settings["epsilon"],
        fused=True,
    )
    steps = settings["steps"]
    return adam, torch.optim.lr_scheduler.LambdaLR(
        adam, lambda step: rate(step, steps, min(settings["warmup"], steps - 1))
    )


# ---- the two ways to run steps -----------------------------------------------


def by_trainer(model, inputs, labels, settings, folder):
    """A function that runs so many steps and gives their losses, here none, out of `transformers.Trainer` in a thread of its own."""
    go, done = queue.Queue(), queue.Queue()

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            go.get()

        def on_step_end(self, *_, **__):
            done.put(None)

    class InOrder(transformers.Trainer):
        """The rows lie in the order of the run."""

        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    steps, B = labels.shape
    rows = [
        {**{name: value[n, i] for name, value in inputs.items()}, "labels": labels[n, i]}
        for n in range(steps)
        for i in range(B)
    ]
    how = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"), use_cpu=True, per_device_train_batch_size=B, max_steps=steps, max_grad_norm=settings["clip"],
        seed=settings["seed"], report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = InOrder(
        model=model,
        args=how,
        train_dataset=rows,
        optimizers=optimizer_of(model, settings),
        callbacks=[Turns()],
    )
    trainer.remove_callback(transformers.PrinterCallback)

    def run():
        try:
            trainer.train()
        except BaseException as error:  # told to the thread that waits
            done.put(error)

    threading.Thread(target=run, daemon=True).start()

    def step(steps):
        for _ in range(steps):
            go.put(None)
            if error := done.get():
                raise error
        return []

    return step


def by_loop(model, inputs, labels, settings, folder):
    """The same, as one writes it by hand."""
    adam, schedule = optimizer_of(model, settings)
    ready = iter(range(settings["steps"]))

    def step(steps):
        model.train()
        losses = []
        for n in [next(ready) for _ in range(steps)]:
            adam.zero_grad(set_to_none=True)
            loss = loss_of(model, inputs, labels, n)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
            adam.step()
            schedule.step()
            losses.append(loss.item())
        return losses

    return step


def loss_of(model, inputs, labels, n):
    """Of the batch with that number."""
    return torch.nn.functional.cross_entropy(
        model(**{name: value[n] for name, value in inputs.items()}).logits, labels[n]
    )


def serve():
    folder, way = pathlib.Path(sys.argv[1]), {"trainer": by_trainer, "loop": by_loop}[sys.argv[2]]
    settings = json.loads((folder / "settings.json").read_text())
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(settings["seed"])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder / "model", classifier_dropout=settings["dropout"]
    )
    (inputs, labels), (held, _) = batches(folder / "train.npz"), batches(folder / "heldout.npz")
    model.eval()
    with torch.no_grad():
        first = loss_of(model, inputs, labels, 0).item()
    step = way(model, inputs, labels, settings, folder)

    def train(steps):
        began, cpu = time.perf_counter(), time.process_time()
        losses = step(steps)
        return {
            "seconds": time.perf_counter() - began,
            "cpu": time.process_time() - cpu,
            "losses": losses,
        }

    def predict():
        model.eval()
        with torch.no_grad():
            each = [
                model(**{name: value[i] for name, value in held.items()}).logits.argmax(-1)
                for i in range(len(held["input_ids"]))
            ]
        return {"predicted": torch.cat(each).tolist()}

    versions = [f"PyTorch {torch.__version__}", f"transformers {transformers.__version__}"]
    return {
        "ready": {"loss": first, "versions": versions},
        "step": lambda steps: train(steps) if steps else predict(),
    }


if __name__ == "__main__":
    answer(serve)
    os._exit(0)  # the Trainer may still wait for its turn
