"""Read mutations of real files: `python tests/faults/mutated.py READER FIRST COUNT PLACE` prints one
line of JSON with what was accepted, refused, and how it failed.

PLACE holds the real folders. PLACE/READER.seed holds the seed that is read now, for an error that
ends the process.
"""

import json
import pathlib
import re
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.faults.measured import MOST_SECONDS, bound_resources, measure
from tests.faults.mutating import mutate

TEXT = "The quick Fox, 12 [MASK] <mask> Ünïcode 数学 \x1b\n\tend."
MOST_SHOWN = 20  # failures


def read_model(folder):
    """Read a Hugging Face folder whole: configuration, tokenizer, tensors."""
    from pretrain.convert.read_write import open_model

    opened = open_model(folder, report=lambda line: None)
    for name in opened.tensors:
        assert opened.tensors[name].nbytes < 1 << 24
    return opened


def read_tensors(folder):
    """Read all tensors of a folder."""
    from pretrain.convert.safe_folder import FolderTensors

    tensors = FolderTensors(folder)
    return [tensors[name].sum() for name in tensors]


def read_tokenizer(folder):
    """Read a vocabulary, encode and decode with it, save it and load it."""
    from data.vocabulary.load import load_vocabulary, read_vocabulary

    vocabulary = read_vocabulary(folder)
    ids = vocabulary.encode(TEXT)
    vocabulary.encode_with_offsets([TEXT, ""])
    assert all(0 <= i < vocabulary.size for i in ids), "an id beyond the vocabulary"
    vocabulary.decode(ids)
    vocabulary.save(folder / "saved")
    assert load_vocabulary(folder / "saved") == vocabulary


def read_store(folder):
    """Open a store and its splits, and read from each."""
    from data.store.reader import Store

    store = Store.open(folder)
    assert store.fingerprint and store.vocabulary.size
    for name in ("train", "heldout"):
        split = store.open_split(name)
        assert split.tokens[:10].sum() >= 0 and split.document_starts[-1] >= 0
    store.verify_checksums()


def read_checkpoint(folder):
    """Read a checkpoint's record, and what is made of it before arrays are read."""
    from pretrain.config import from_json
    from pretrain.workdir.checkpoint_record import read_record
    from pretrain.workdir.errors import DamagedCheckpoint

    try:
        record = read_record(folder)
    except DamagedCheckpoint as error:  # which its callers name
        raise ValueError(f"{folder}: {error}") from error
    from_json(record["run"], where=str(folder))


def read_tables(folder):
    """Read all documents of a folder of tables and packed files."""
    from data.corpus import sources

    for path in sorted(folder.iterdir()):
        found = sources.resolve_source(
            str(path), field="a.text" if "nested" in path.name else "text"
        )
        for chunk in sources.split_source(found, 1 << 9, folder):
            for document in sources.read_chunk(chunk):
                document.raw.decode()


def seal(content):
    """Give a mutated record the checksum that belongs to it, as who made it would."""
    from pretrain.workdir.checkpoint_record import seal_record

    try:
        sealed = json.loads(content)
        if isinstance(sealed, dict) and isinstance(sealed.get("record"), dict):
            return json.dumps(seal_record(sealed["record"])).encode()
    except (ValueError, RecursionError):
        pass
    return content


def keep(content):
    return content


# {reader: (function, [(a folder within PLACE, the file that is mutated)], what follows a mutation)}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json")
TOKENIZER_FILES += ("merges.txt", "spiece.model", "vocabulary.json")
TOKENIZER_FILES += ("added_tokens.json", "special_tokens_map.json")
READERS = {
    "config": (read_model, ("config.json",), keep),
    "tokenizer": (read_tokenizer, TOKENIZER_FILES, keep),
    "safetensors": (read_tensors, ("model.safetensors",), keep),
    "manifest": (read_store, ("manifest.json", "*/vocabulary/vocabulary.json"), keep),
    "tables": (read_tables, ("*.parquet", "*.arrow", "*.csv", "*.zst", "*.wet", "*.warc.gz"), keep),
    "record": (read_checkpoint, ("record/metadata",), seal),
}


def list_files(reader, place):
    """The real files that a reader's mutations begin with."""
    patterns = READERS[reader][1]
    folders = sorted(path for path in (place / reader).iterdir() if path.is_dir())
    return [
        (folder, path.relative_to(folder))
        for folder in folders
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
    ]


def describe_failure(error, folder):
    """Return what is wrong with an error, or None for one line that names the folder."""
    message = str(error)
    if not isinstance(error, (ValueError, OSError)) or isinstance(error, UnicodeError):
        return f"{type(error).__name__}: {message[:300]}"
    if len(message.splitlines()) != 1:
        return f"{len(message.splitlines())} lines: {message[:300]}"
    if str(folder) not in message and folder.name not in message:
        return f"names no file: {message[:300]}"
    return None


def read_mutation(reader, seed, files, place):
    """Return (whether it was refused, a failure or None) of one mutation."""
    read, _, follow = READERS[reader]
    folder, name = files[seed % len(files)]
    work = place / "work" / reader / folder.name  # a checkpoint's folder has the name of its step
    if work.exists():
        shutil.rmtree(work)
    shutil.copytree(folder, work)
    content = mutate((folder / name).read_bytes(), seed)
    (work / name).write_bytes(follow(content) if seed % 4 else content)
    try:
        read(work)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return True, describe_failure(error, work)
    return False, None


def main(reader, first, count, place):
    files, seed_file = list_files(reader, place), place / f"{reader}.seed"
    refused, failures, slowest = 0, [], (0.0, 0)
    for folder in dict.fromkeys(folder for folder, _ in files):  # imports; and all are sound
        shutil.copytree(folder, place / "work" / reader / folder.name, dirs_exist_ok=True)
        READERS[reader][0](place / "work" / reader / folder.name)

    def read_all():
        nonlocal refused, slowest
        for seed in range(first, first + count):
            seed_file.write_text(str(seed))
            began = time.process_time()
            is_refused, failure = read_mutation(reader, seed, files, place)
            slowest = max(slowest, (time.process_time() - began, seed))
            refused += is_refused
            if failure:
                failures.append((seed, failure))

    with bound_resources(MOST_SECONDS + count / 10):
        _, seconds, megabytes = measure(read_all)
    unlike = {}
    for seed, failure in failures:
        unlike.setdefault(re.sub(r"\d+|'.*'", "", failure)[:60], (seed, failure))
    print(
        json.dumps(
            {
                "accepted": count - refused,
                "refused": refused,
                "seconds": seconds,
                "slowest": slowest,
                "megabytes": megabytes,
                "failed": len(failures),
                "failures": list(unlike.values())[:MOST_SHOWN],
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), pathlib.Path(sys.argv[4]))
