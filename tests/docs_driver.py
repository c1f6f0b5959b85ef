"""Execute the commands of the pages in one process: `python -m tests.docs_driver FOLDER RESULTS
[PAGE ...]`.

What is imported and compiled once serves all commands. Each is executed in FOLDER as it stands on
its page, with sizes in which it takes seconds. tests/test_docs_run.py starts this.
"""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
import traceback
from unittest import mock

import pretrain.api.training
import pretrain.config
from pretrain.__main__ import main
from tests.docs_pages import ROOT, RUN, list_pages, read_blocks, read_verb, split_commands

QUICKSTART, TRAINING = "docs/quickstart.md", "docs/training.md"
# {page: the page that makes the runs it needs}; TRAINING for the other pages.
NEEDS = {
    f"docs/{name}.md": QUICKSTART
    for name in ("training", "finetune", "tagging", "questions", "python", "embeddings")
}
LOAD = pretrain.config.load
STEPS = 2  # of each command that trains
ENDS = ("train.steps=", "train.stop_at_step=")  # of a run; another end is another phase
SHORT = ("data.batch_size=8", "evaluate.every=2", "evaluate.samples=0", "checkpoint.every=2")
SHORT += ("optimizer.warmup_steps=1",)
SIZES = ("train.stop_at_step=0", "model.width=32", "model.mlp=64", "model.num_heads=2")
LARGER = ("model.width=64", "model.mlp=128", "model.num_heads=4")  # than SIZES
DECODER = ("model.depth=2", "model.decoder_depth=2")
GENERATOR = ("model.generator_width=32", "model.generator_num_heads=2", "model.generator_mlp=64")
BY_CONFIG = {  # {prefix of a configuration's name: further overrides}
    "bert_base": ("model.depth=2",),
    "t5": (*DECODER, "model.head_width=16"),
    "ul2": (*DECODER, "model.head_width=16", "data.batch_size=14"),
    "bart": DECODER,
    "gpt_bert_babylm": (
        "model.depth=1",
        "model.length=64",
        "data.batch_size=16",
        "data.objective.parts.masked.objective.length=64",
        "data.objective.parts.causal.objective.length=64",
        "evaluate.every=0",
        "train.ema_decay=0",
        "train.compute_dtype=float32",
        "checkpoint.words=100,1000",
        "data.objective.parts.masked.objective.mask_ramp.last_step=1",
    ),
    "transformer_multi30k": DECODER,
    "reformer": ("model.axial_widths=8,24", "model.head_width=16"),
    "electra": ("model.embedding=32", *GENERATOR),
}
HEADLESS = ("seq2seq",)  # models without heads of attention
BY_VERB = {
    "prepare": ("--workers", "1", "--held-out", "0.1"),
    "inspect": ("--batches", "2", "data.batch_size=8"),
    "finetune": (f"train.steps={STEPS}", *SHORT),
}
PHASE_STEPS = re.compile(r"^(phases\.\w+\.steps=)\d+$")
RAMP_END = re.compile(r"^(.*_ramp\.(?:last_step|steps)=)\d+$")
RAMP_START = re.compile(r"^(data\.batch_ramp\.start=)\d+$")
trained: dict[str, list[str]] = {}  # {workdir: where its commands end, in their own words}


def list_small(config: str) -> tuple[str, ...]:
    """Return overrides with which a run takes seconds; none for a saved configuration, which has
    them already.
    """
    if config.endswith(".json"):
        return ()
    name = os.path.basename(config)
    more = [words for start, words in BY_CONFIG.items() if name.startswith(start)]
    sizes = [size for size in SIZES if "num_heads" not in size or not name.startswith(HEADLESS)]
    return (*SHORT, *sizes, *(word for words in more for word in words))


def shrink(verb: str, words: list[str]) -> list[str]:
    """Return the arguments of a command with smaller sizes, appended so that they take precedence."""
    if verb in ("train", "distil"):
        # within the steps and below the batch that follow
        words = [RAMP_END.sub(r"\g<1>1", word) for word in words]
        words = [RAMP_START.sub(r"\g<1>4", word) for word in words]
        if "--profile" in words:
            words[words.index("--profile") + 1] = f"1:{STEPS}"
        end = " ".join(word for word in words if word.startswith(ENDS))
        seen = trained.setdefault(words[words.index("--workdir") + 1], [])
        if end not in seen:
            seen.append(end)
        larger = LARGER if "--tile" in words else ()
        if any(word.startswith("phases.") for word in words):  # train.steps is their sum
            words = [PHASE_STEPS.sub(rf"\g<1>{STEPS}", word) for word in words]
            return [*words, *list_small(words[0]), *larger]
        steps = STEPS * len(seen)
        if "--with-optimizer" in words:  # a branch goes on after the steps of its run
            words[words.index("--step") + 1] = str(STEPS)
            steps, larger = steps + STEPS, ("optimizer.cooldown_steps=1",)
        return [*words, *list_small(words[0]), *larger, f"train.steps={steps}"]
    if verb == "sweep":
        # it takes each setting once
        small = (*list_small(words[0]), f"train.steps={STEPS}", "train.seed=0")
        names = {word.partition("=")[0] for word in small}
        return [*(word for word in words if word.partition("=")[0] not in names), *small]
    if verb == "prepare":
        words = ["builtin.txt" if word == "builtin" else word for word in words]
        if "builtin.txt" in words and "--document" not in words:
            words += ["--document", "block"]
        if "--vocab-size" in words:
            size = min(600, int(words[words.index("--vocab-size") + 1]))
            words += ["--vocab-size", str(size)]
    if "--seeds" in words:
        words += ["--seeds", "2"]
    more = BY_VERB.get(verb, ())
    if verb == "inspect" and words[0].startswith("runs/"):  # a store, which has no batches
        more = ()
    if "--validation" in words:  # the held-out part is no share
        more = more[: more.index("--held-out")]
    return [*words, *more]


def run_command(command: str) -> None:
    """Execute one command of a page. Raises RuntimeError with its output if it fails."""
    rest = read_verb(command)
    if rest is None:
        command = command.replace(".venv/bin/python", sys.executable, 1)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        status, printed = done.returncode, done.stdout + done.stderr
    else:
        verb, *words = shlex.split(rest)
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            try:
                status = main([verb, *shrink(verb, words)])
            except SystemExit as ending:  # raised by argparse
                status = ending.code
        printed = out.getvalue()
    if status:
        raise RuntimeError(f"status {status} of: {command}\n{printed[-3000:]}")


def skip_flop_counts() -> None:
    """Replace the count of FLOPs, which traces the whole model in each run, by a constant.

    tests/pretrain/training/test_flops.py tests the count.
    """
    from pretrain.training import flops

    flops.count_step_flops = lambda run: flops.StepFlops(1_000_000, 1_000_000)


def run_block(block, names: dict) -> None:
    """Execute a block; `names` is the namespace that the Python blocks of a page share."""
    if block.language != "python":
        for command in split_commands(block.text):
            run_command(command)
        return
    first, _, rest = block.text.partition("\n")
    if first.startswith("# ") and first.endswith(".py"):
        with open(first[2:], "w") as file:
            file.write(rest)
        return
    with (
        contextlib.redirect_stdout(io.StringIO()),
        mock.patch.object(pretrain.config, "load", load_small),
        mock.patch.object(pretrain.api.training, "load", load_small),
    ):
        exec(compile(block.text, block.name, "exec"), names)


def follow(page: str) -> list[dict]:
    """Execute the unmarked blocks of a page and return [{name, seconds, error or None}]."""
    results, names = [], {"__name__": "page"}
    for block in read_blocks(page):
        if block.language not in RUN or block.reason is not None:
            continue
        began, error = time.monotonic(), None
        try:
            run_block(block, names)
        except Exception:
            error = traceback.format_exc()[-4000:]
        seconds = round(time.monotonic() - began, 1)
        results.append({"name": block.name, "seconds": seconds, "error": error})
        print(f"{block.name}: {seconds} s {'failed' if error else ''}", flush=True)
        if error:
            print(error, flush=True)
    return results


def load_small(config, overrides=()):
    """Return `pretrain.config.load` with smaller sizes."""
    return LOAD(config, [*overrides, *list_small(config), f"train.steps={STEPS}"])


def prepare_folder() -> None:
    """Write a text for the built-in corpus, and link the folders that commands name."""
    text = "\n\n".join((ROOT / page).read_text() for page in list_pages())
    with open("builtin.txt", "w") as file:
        file.write(text)
    for name in ("configs", "benchmarks", "docs"):
        os.symlink(ROOT / name, name)


def wait_for(page, limit=600) -> None:
    """Wait until a page is done, in this process or in another one in the same folder."""
    while not os.path.exists(f"{os.path.basename(page)}.done"):
        limit -= 0.2
        if limit < 0:
            raise TimeoutError(f"nobody has followed {page}")
        time.sleep(0.2)


if __name__ == "__main__":
    folder, output, *pages = sys.argv[1:]
    os.chdir(folder)
    if QUICKSTART in pages:
        prepare_folder()
    skip_flop_counts()
    results = {}
    for page in pages:
        if page != QUICKSTART:
            wait_for(NEEDS.get(page, TRAINING))
        results[page] = follow(page)
        open(f"{os.path.basename(page)}.done", "w").close()
    print(f"{time.process_time():.0f} s of CPU", flush=True)
    with open(output, "w") as file:
        json.dump(results, file)
