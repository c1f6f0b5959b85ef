"""The side of PyTorch in benchmarks/downstream_peer.py; runs in the peers' environment: downstream_torch.py FOLDER.

A plain loop over `AutoModelForSequenceClassification`: the folder's weights and batches, AdamW, a warm-up and linear decay, clipping.

FOLDER/model     what `export` writes of a run that has not begun
FOLDER/train.npz, heldout.npz   batches [N, B, ...], as the run has them
FOLDER/settings.json   of the optimizer
"""

import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from benchmarks.harness import answer  # noqa: E402


def batches(path):
    """{key: tensor [N, B, ...]} of a file, under the names that the models of `transformers` want."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file}
    names = {"input_ids": "tokens", "attention_mask": "valid", "token_type_ids": "segments"}
    found = {name: torch.tensor(arrays[key].astype(np.int64)) for name, key in names.items()}
    return found, torch.tensor(arrays["labels"].astype(np.int64))


def rate(step, steps, warmup):
    """The share of the peak rate at a step, as pretrain/optim.py has it."""
    return (step + 1) / max(warmup, 1) if step < warmup else (steps - step) / (steps - warmup)


def groups(model, settings):
    """The parameters of a model as AdamW takes them; biases and norms are not decayed."""
    kept = lambda name: name.endswith("bias") or "LayerNorm" in name  # noqa: E731
    parameters = list(model.named_parameters())
    return [
        {"params": [each for name, each in parameters if not kept(name)], "weight_decay": settings["weight_decay"]},
        {"params": [each for name, each in parameters if kept(name)], "weight_decay": 0.0},
    ]


def optimizer_of(model, settings):
    """(AdamW, its schedule)."""
    adam = torch.optim.AdamW(groups(model, settings), lr=settings["rate"], betas=settings["betas"], eps=settings["epsilon"], fused=True)
    steps = settings["steps"]
    return adam, torch.optim.lr_scheduler.LambdaLR(adam, lambda step: rate(step, steps, min(settings["warmup"], steps - 1)))


def serve():
    folder = pathlib.Path(sys.argv[1])
    settings = json.loads((folder / "settings.json").read_text())
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(settings["seed"])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "model")
    (inputs, labels), (held, _) = batches(folder / "train.npz"), batches(folder / "heldout.npz")
    adam, schedule = optimizer_of(model, settings)
    done = 0

    def loss_of(step):
        logits = model(**{name: value[step] for name, value in inputs.items()}).logits
        return torch.nn.functional.cross_entropy(logits, labels[step])

    def train(steps):
        nonlocal done
        model.train()
        began, cpu, losses = time.perf_counter(), time.process_time(), []
        for _ in range(steps):
            adam.zero_grad(set_to_none=True)
            loss = loss_of(done)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
            adam.step()
            schedule.step()
            done += 1
            losses.append(loss.item())
        return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "losses": losses}

    def predict():
        model.eval()
        with torch.no_grad():
            each = [model(**{name: value[i] for name, value in held.items()}).logits.argmax(-1) for i in range(len(held["input_ids"]))]
        return {"predicted": torch.cat(each).tolist()}

    model.eval()
    with torch.no_grad():
        first = loss_of(0).item()
    versions = [f"PyTorch {torch.__version__}", f"transformers {transformers.__version__}"]
    return {"ready": {"loss": first, "versions": versions}, "step": lambda steps: train(steps) if steps else predict()}


if __name__ == "__main__":
    answer(serve)
