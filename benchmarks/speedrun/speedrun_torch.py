"""The `transformers.Trainer` of the speedrun, like `run_mlm.py`; for the peers' environment.

speedrun_torch.py train FOLDER | speedrun_torch.py score FOLDER
"""

# torch and transformers are optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np
import torch
import transformers

from benchmarks.speed.ready_ids import ReadyIdsTokenizer
from benchmarks.speed.time_to_loss_torch import OWN_KEYS, TokenRows


def make_model(settings: Mapping[str, Any]) -> Any:
    """Return a new BERT with the sizes of the settings."""
    fields = {key: value for key, value in settings.items() if key not in OWN_KEYS}
    return transformers.BertForMaskedLM(transformers.BertConfig(**fields))


def make_optimizer(model: Any, arguments: Mapping[str, Any], steps: int) -> tuple[Any, Any]:
    """Return AdamW and its schedule over all steps, which both stages continue.

    Biases and norms have no weight decay, as in the Trainer.
    """
    groups: dict[bool, list[Any]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups["bias" not in name and "LayerNorm" not in name].append(parameter)
    optimizer = torch.optim.AdamW(
        [
            {"params": groups[True], "weight_decay": arguments["weight_decay"]},
            {"params": groups[False], "weight_decay": 0.0},
        ],
        lr=arguments["learning_rate"],
        betas=(arguments["adam_beta1"], arguments["adam_beta2"]),
        eps=arguments["adam_epsilon"],
    )
    warmup = arguments["warmup_steps"]
    return optimizer, transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)


class SavingCallback(transformers.TrainerCallback):
    """Logs and saves the parameters of every so many steps, and of the last one of the plan."""

    def __init__(self, folder: pathlib.Path, model: Any, plan: Mapping[str, Any]) -> None:
        """Begin before the first step of the first stage."""
        self.folder, self.model, self.every = folder, model, plan["every"]
        self.last = sum(steps for steps, _, _ in plan["stages"])
        self.step = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count a step of any stage."""
        self.step += 1
        if self.step % self.every == 0 or self.step == self.last:
            with (self.folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": self.step}) + "\n")
            torch.save(self.model.state_dict(), self.folder / f"{self.step}.pt")


def train_stages(folder: pathlib.Path) -> None:
    """Train all stages of a plan, one Trainer each, with one optimizer and one schedule."""
    settings = json.loads((folder / "settings.json").read_text())
    plan = json.loads((folder / "plan.json").read_text())
    transformers.set_seed(plan["seed"])
    model, arguments = make_model(settings), settings["arguments"]
    steps = sum(steps for steps, _, _ in plan["stages"])
    optimizer, schedule = make_optimizer(model, arguments, steps)
    saving = SavingCallback(folder, model, plan)
    tokenizer: Any = ReadyIdsTokenizer(
        settings["mask"], settings["pad_token_id"], settings["vocab_size"]
    )
    collator = transformers.DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=settings["rate"]
    )
    ids = np.load(folder / "ids.npy", mmap_mode="r")
    for number, (length_of_stage, length, batch) in enumerate(plan["stages"]):
        own = transformers.TrainingArguments(
            output_dir=str(folder / "trainer"), use_cpu=True, report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True,
            remove_unused_columns=False, seed=plan["seed"] + number,
            per_device_train_batch_size=batch, max_steps=length_of_stage,
            max_grad_norm=arguments["max_grad_norm"],
        )  # fmt: skip
        transformers.Trainer(
            model=model,
            args=own,
            train_dataset=TokenRows(ids, length, settings),
            data_collator=collator,
            optimizers=(optimizer, schedule),
            callbacks=[saving],
        ).train()


def score_model(model: Any, heldout: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Return (accuracy, nats) of a model on the held-out targets."""
    model.eval()
    right = nats = weight = 0.0
    with torch.no_grad():
        for start in range(0, len(heldout["token_ids"]), 64):
            batch = {key: torch.tensor(value[start : start + 64]) for key, value in heldout.items()}
            states = model.bert(
                input_ids=batch["token_ids"].long(), attention_mask=batch["attention_mask"].long()
            )[0]
            positions = batch["masked_positions"].long()[..., None]
            logits = model.cls(torch.take_along_dim(states, positions, 1)).flatten(0, 1)
            labels, counts = batch["labels"].long().flatten(), batch["label_weights"].flatten()
            losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
            right += float(((logits.argmax(-1) == labels) * counts).sum())
            nats += float((losses * counts).sum())
            weight += float(counts.sum())
    return right / weight, nats / weight


def score_checkpoints(folder: pathlib.Path) -> None:
    """Write [step, accuracy, nats] of all checkpoints to torch_scores.json."""
    settings = json.loads((folder / "settings.json").read_text())
    heldout = dict(np.load(folder / "heldout.npz"))
    model, scores = make_model(settings), []
    for path in sorted(folder.glob("*.pt"), key=lambda path: int(path.stem)):
        model.load_state_dict(torch.load(path))
        scores.append([int(path.stem), *score_model(model, heldout)])
    (folder / "torch_scores.json").write_text(json.dumps(scores))


if __name__ == "__main__":
    {"train": train_stages, "score": score_checkpoints}[sys.argv[1]](pathlib.Path(sys.argv[2]))
