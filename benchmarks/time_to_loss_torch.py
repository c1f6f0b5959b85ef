"""The side of PyTorch in benchmarks/time_to_loss.py, after `run_mlm.py`; runs in the peers' environment: time_to_loss_torch.py FOLDER EVERY TOLD [bf16]."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import transformers

from benchmarks.ready_ids import Ready


class Rows(torch.utils.data.Dataset):
    """[CLS] text [SEP], cut out of the joined text."""

    def __init__(self, ids, length, settings):
        self.ids, self.text, self.ends = ids, length - 2, (settings["cls"], settings["sep"])
        self.special = np.array(
            [1, *[0] * self.text, 1]
        )  # with which the collator need not ask the tokenizer

    def __len__(self):
        return len(self.ids) // self.text

    def __getitem__(self, i):
        text = self.ids[i * self.text : (i + 1) * self.text].astype(np.int64)
        return {
            "input_ids": np.array([self.ends[0], *text, self.ends[1]]),
            "special_tokens_mask": self.special,
        }


OWN = {  # keys of settings.json that are not of their configuration
    *("cls", "sep", "mask", "arguments", "rate", "length_of_rows"),
    *("transformers_version", "architectures", "model_type"),
}


def score(model, held, low):
    """The mean over all held-out targets, in the type of the step."""
    model.eval()
    total = weight = 0.0
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=low):
        for at in range(0, len(held["token_ids"]), 64):
            batch = {key: torch.tensor(value[at : at + 64]) for key, value in held.items()}
            states = model.bert(
                input_ids=batch["token_ids"].long(), attention_mask=batch["attention_mask"].long()
            )[0]
            chosen = torch.take_along_dim(states, batch["masked_positions"].long()[..., None], 1)
            nats = torch.nn.functional.cross_entropy(
                model.cls(chosen).flatten(0, 1).float(),
                batch["labels"].long().flatten(),
                reduction="none",
            )
            total += float((nats * batch["label_weights"].flatten()).sum())
            weight += float(batch["label_weights"].sum())
    model.train()
    return total / weight


def main():
    folder, every, told, *more = (
        pathlib.Path(sys.argv[1]),
        int(sys.argv[2]),
        pathlib.Path(sys.argv[3]),
        *sys.argv[4:],
    )
    settings = json.loads((folder / "settings.json").read_text())
    held = dict(np.load(folder / "heldout.npz"))
    theirs = {key: value for key, value in settings.items() if key not in OWN}
    model = transformers.BertForMaskedLM(transformers.BertConfig(**theirs))
    low = "bf16" in more

    class Score(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step % every == 0:
                line = {"step": state.global_step, "heldout_loss": score(model, held, low)}
                with told.open("a") as file:
                    file.write(json.dumps(line) + "\n")

    arguments = transformers.TrainingArguments(
        output_dir=str(told.with_suffix("")), use_cpu=True, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
        lr_scheduler_type="linear", remove_unused_columns=False, seed=0, bf16=low, **settings["arguments"],
    )  # fmt: skip
    tokenizer = Ready(settings["mask"], settings["pad_token_id"], settings["vocab_size"])
    collator = transformers.DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=settings["rate"]
    )
    rows = Rows(np.load(folder / "ids.npy", mmap_mode="r"), settings["length_of_rows"], settings)
    transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, data_collator=collator, callbacks=[Score()]
    ).train()


if __name__ == "__main__":
    main()
