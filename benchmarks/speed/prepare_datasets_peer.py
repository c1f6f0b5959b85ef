"""Encode the texts of Parquet files with `datasets.map`: prepare_datasets.py starts this.

python prepare_datasets_peer.py FOLDER MODEL OUTPUT PROCESSES
"""

import pathlib
import shutil
import sys

import datasets
import transformers


def main() -> None:
    folder, model, output, processes = sys.argv[1:]
    vocabulary = pathlib.Path(output) / "vocabulary"
    vocabulary.mkdir(parents=True)
    shutil.copy(model, vocabulary / "spiece.model")
    tokenizer = transformers.T5Tokenizer.from_pretrained(str(vocabulary))
    files = sorted(str(path) for path in pathlib.Path(folder).glob("*.parquet"))
    rows = datasets.load_dataset("parquet", data_files=files, split="train")

    def encode(batch):
        return {"input_ids": tokenizer(batch["text"], add_special_tokens=False)["input_ids"]}

    rows.map(encode, batched=True, num_proc=int(processes), remove_columns=rows.column_names)


if __name__ == "__main__":
    main()
