"""The PyTorch program of `time_to_loss`, like `run_mlm.py`; for the peers' environment.

time_to_loss_torch.py FOLDER EVERY SCORES [bf16]
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


class TokenRows(torch.utils.data.Dataset):
    """Rows "[CLS] text [SEP]" of one length, taken from the concatenated text."""

    def __init__(self, ids: np.ndarray, length: int, settings: Mapping[str, Any]) -> None:
        """Split `ids` into rows of `length` tokens."""
        self.ids, self.text, self.ends = ids, length - 2, (settings["cls"], settings["sep"])
        # With this mask the collator does not need the tokenizer.
        self.special = np.array([1, *[0] * self.text, 1])

    def __len__(self) -> int:
        return len(self.ids) // self.text

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        text = self.ids[i * self.text : (i + 1) * self.text].astype(np.int64)
        return {
            "input_ids": np.array([self.ends[0], *text, self.ends[1]]),
            "special_tokens_mask": self.special,
        }


# Keys of settings.json that are not fields of transformers.BertConfig.
OWN_KEYS = {
    *("cls", "sep", "mask", "arguments", "rate", "length_of_rows"),
    *("transformers_version", "architectures", "model_type"),
}


def compute_heldout_loss(
    model: Any, heldout_batches: Mapping[str, np.ndarray], use_bfloat16: bool
) -> float:
    """Return the mean loss of all held-out targets in the step's dtype."""
    model.eval()
    total = weight = 0.0
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=use_bfloat16):
        for start in range(0, len(heldout_batches["token_ids"]), 64):
            batch = {
                key: torch.tensor(value[start : start + 64])
                for key, value in heldout_batches.items()
            }
            states = model.bert(
                input_ids=batch["token_ids"].long(), attention_mask=batch["attention_mask"].long()
            )[0]
            positions = batch["masked_positions"].long()[..., None]
            masked_states = torch.take_along_dim(states, positions, 1)
            nats = torch.nn.functional.cross_entropy(
                model.cls(masked_states).flatten(0, 1).float(),
                batch["labels"].long().flatten(),
                reduction="none",
            )
            total += float((nats * batch["label_weights"].flatten()).sum())
            weight += float(batch["label_weights"].sum())
    model.train()
    return total / weight


def main() -> None:
    folder, every, scores_path = (
        pathlib.Path(sys.argv[1]),
        int(sys.argv[2]),
        pathlib.Path(sys.argv[3]),
    )
    settings = json.loads((folder / "settings.json").read_text())
    held_out = dict(np.load(folder / "heldout.npz"))
    fields = {key: value for key, value in settings.items() if key not in OWN_KEYS}
    model = transformers.BertForMaskedLM(transformers.BertConfig(**fields))
    low = "bf16" in sys.argv[4:]

    class HeldoutCallback(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % every == 0:
                line = {
                    "step": state.global_step,
                    "heldout_loss": compute_heldout_loss(model, held_out, low),
                }
                with scores_path.open("a") as file:
                    file.write(json.dumps(line) + "\n")

    arguments = transformers.TrainingArguments(
        output_dir=str(scores_path.with_suffix("")), use_cpu=True, report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True, lr_scheduler_type="linear",
        remove_unused_columns=False, seed=0, bf16=low, **settings["arguments"],
    )  # fmt: skip
    tokenizer: Any = ReadyIdsTokenizer(
        settings["mask"], settings["pad_token_id"], settings["vocab_size"]
    )
    collator = transformers.DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=settings["rate"]
    )
    rows = TokenRows(
        np.load(folder / "ids.npy", mmap_mode="r"), settings["length_of_rows"], settings
    )
    transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=collator,
        callbacks=[HeldoutCallback()],
    ).train()


if __name__ == "__main__":
    main()
