"""The side of PyTorch in benchmarks/step.py; runs in the peers' environment: step_torch.py CASE trainer|trainer_compiled|tuned|compiled.

The Trainer has its own loop: a callback makes it wait before each turn for word to go on, and times its steps.
"""

import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import transformers

from benchmarks.harness import answer, forget, memory

WAYS = ("trainer", "trainer_compiled", "tuned", "compiled")
KINDS = {"bert": "BertForMaskedLM", "t5": "T5ForConditionalGeneration", "gpt2": "GPT2LMHeadModel"}


def features(family, batch, device):
    """The batch as the models of `transformers` want it, with -100 at what is not told.

    On a GPU no mask of a batch that is all valid: the result is the same, and fused attention takes none.
    """
    names = {
        "t5": {
            "input_ids": "encoder_token_ids",
            "attention_mask": "encoder_attention_mask",
            "labels": "labels",
        },
        "bert": {"attention_mask": "attention_mask"},
    }
    given = {
        name: torch.tensor(batch[key].astype(np.int64))
        for name, key in names.get(family, {}).items()
    }
    if device == "cuda" and "attention_mask" in given and given["attention_mask"].all():
        del given["attention_mask"]
    if family == "t5":
        return given
    ids = batch["token_ids"].astype(np.int64)
    if family == "gpt2":
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(ids)}
    labels = np.full_like(ids, -100)
    np.put_along_axis(
        labels, batch["masked_positions"].astype(np.int64), batch["labels"].astype(np.int64), axis=1
    )
    return given | {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)}


def wait(device):
    """Until all that was asked of a device is done."""
    if device == "cuda":
        torch.cuda.synchronize()


def held(device):
    """The most of its memory that a device has held since `begin_anew`, MiB."""
    return torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else memory()


def begin_anew(device):
    """What `held` says, which then begins anew."""
    if device == "cpu":
        return forget()
    most = held(device)
    torch.cuda.reset_peak_memory_stats()
    return most


def own_loss(model):
    """inputs -> loss, as the model has it."""
    return lambda inputs: model(**inputs).loss


def objective(family, model, batch, device):
    """inputs -> loss by hand; for BERT only the masked positions are scored."""
    if family != "bert":
        return own_loss(model)
    chosen = torch.tensor(
        (
            np.arange(len(batch["token_ids"]))[:, None] * batch["token_ids"].shape[1]
            + batch["masked_positions"]
        )
        .ravel()
        .astype(np.int64)
    ).to(device)
    targets = torch.tensor(batch["labels"].ravel().astype(np.int64)).to(device)

    def loss(inputs):
        states = model.bert(
            input_ids=inputs["input_ids"], attention_mask=inputs.get("attention_mask")
        )[0]
        scores = model.cls(states.reshape(-1, states.shape[-1])[chosen])
        return torch.nn.functional.cross_entropy(scores.float(), targets)

    return loss


def first_loss(model, loss_of, inputs, low, device):
    """The loss without dropout, in the type of the step."""
    model.eval()
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=low):
        loss = loss_of(inputs).item()
    model.train()
    return loss


def by_hand(model, loss_of, inputs, low, device):
    """A function (steps) -> answer, and the seconds that its first step took."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-8, weight_decay=0.01, fused=True)

    def one():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=low):
            loss = loss_of(inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    def step(steps):
        times = []
        for _ in range(steps):
            began = time.perf_counter()
            loss = one()
            wait(device)
            times.append(time.perf_counter() - began)
        return {"seconds": float(np.median(times)), "memory": held(device), "loss": loss.item()}

    began = time.perf_counter()
    one()
    wait(device)
    return step, time.perf_counter() - began


def by_trainer(case, model, inputs, low, compiled, device):
    """The same, out of `transformers.Trainer` in a thread of its own.

    A step lasts from the end of the one before to its own, so that the data loader and the collator are in it; the first of a turn begins with
    its batch at hand.
    """
    import queue
    import threading

    go, done = queue.Queue(), queue.Queue()

    class Turns(transformers.TrainerCallback):
        left = 0

        def on_step_begin(self, *_, **__):
            if not self.left:
                self.left, self.began = go.get(), time.perf_counter()

        def on_step_end(self, *_, **__):
            wait(device)
            ended = time.perf_counter()
            done.put(ended - self.began)
            self.left, self.began = self.left - 1, ended

    rows = [{name: value[i] for name, value in inputs.items()} for i in range(case["rows"])] * 1000
    how = transformers.TrainingArguments(
        output_dir=case["folder"] + "/trainer", per_device_train_batch_size=case["rows"], max_steps=1_000_000, bf16=low, use_cpu=device == "cpu",
        learning_rate=1e-8, weight_decay=0.01, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=0,
        torch_compile=compiled,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=how, train_dataset=rows, callbacks=[Turns()])

    def train():
        try:
            trainer.train()
        except Exception as error:  # raised where the step is waited for
            done.put(error)

    threading.Thread(target=train, daemon=True).start()

    def next_time():
        if isinstance(told := done.get(), Exception):
            raise told
        return told

    def step(steps):
        go.put(steps)
        return {
            "seconds": float(np.median([next_time() for _ in range(steps)])),
            "memory": held(device),
        }

    first = step(1)["seconds"]
    return step, first


def serve():
    case, way = json.loads(sys.argv[1]), sys.argv[2]
    if way not in WAYS:
        raise SystemExit(f"no such way: {way}; there are {', '.join(WAYS)}")
    device = {"cpu": "cpu", "gpu": "cuda"}[case["device"]]
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    with np.load(pathlib.Path(case["folder"]) / "batch.npz") as file:
        batch = dict(file)
    model = getattr(transformers, KINDS[case["family"]]).from_pretrained(case["folder"]).to(device)
    inputs, low = (
        {name: value.to(device) for name, value in features(case["family"], batch, device).items()},
        case["compute"] == "bfloat16",
    )
    trainer, compiled = way.startswith("trainer"), way.endswith("compiled")
    loss_of = own_loss(model) if trainer else objective(case["family"], model, batch, device)
    loss = first_loss(model, loss_of, inputs, low, device)
    if trainer:
        rows = {name: value.cpu() for name, value in inputs.items()}  # which the Trainer moves
        step, first = by_trainer(case, model, rows, low, compiled, device)
    else:
        step, first = by_hand(
            model, torch.compile(loss_of) if compiled else loss_of, inputs, low, device
        )
    versions = [f"PyTorch {torch.__version__}", f"transformers {transformers.__version__}"]
    return {
        "ready": {
            "loss": loss,
            "compile": first,
            "versions": versions,
            "hardware": [],
            "memory": begin_anew(device),
        },
        "step": step,
    }


if __name__ == "__main__":
    answer(serve)
    os._exit(0)  # the Trainer still waits for its turn
