"""BERT's feature experiment on WNUT-17 (Devlin et al. 2018, section 5.3 and table 7): what each layer of a frozen encoder is worth to a tagger.

    python -m benchmarks.feature_layers --corpora ../shared/corpora [--from runs/bert_mini] [--seeds 3] [--again]

The hidden states of each word's first piece are computed once, by what `python -m pretrain features` runs, and kept in WORK as .npz; each of
its combinations of layers then feeds a two-layer bidirectional LSTM that begins at random, with a classification layer over BIO tags, which
learns by Adam. The epoch is the best by the entity F1 of dev; test is scored at that epoch. The same is done for an encoder with random
weights. Sentences that are longer than the encoder's rows are read in parts, cut between words, and tagged whole. A dated section is
appended to benchmarks/results/feature_layers.md.

D width of a state   S words of all sentences
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys
from functools import partial

import jax
import numpy as np

from benchmarks.downstream import write_result
from benchmarks.downstream_page import spelt
from benchmarks.harness import ROOT, append, at_least, command, title
from benchmarks.lstm_tagger import BATCH, RATE, WIDTH, Part, learn
from data.examples import tag_schemes, tagging
from data.store.atomic import replace_file
from models import build
from pretrain.config import Mesh
from pretrain.distributed.sharding import make_mesh
from pretrain.inference.hidden_states import COMBINATIONS, extract
from pretrain.inference.trained import open_trained
from pretrain.training.state import init_params
from pretrain.workdir.checkpoints import read_run

FILES = ("train", "dev", "test")  # of ner_wnut17/
ROWS = {
    "pretrained": tuple(COMBINATIONS),
    "random weights": ("embeddings", "last", "concat_last_four"),
}
EPOCHS = 8


# ---- features ----------------------------------------------------------------


def in_parts(sentences, vocabulary, most):
    """[(place, text)] of sentences, each in as few parts as have no more than `most` pieces; a word is not cut, a longer one stands alone."""
    texts = []
    for sentence, pieces in zip(
        sentences, tagging.word_ids(vocabulary, [sentence.words for sentence in sentences])
    ):
        part, held = [], 0
        for i, (word, ids) in enumerate(zip(sentence.words, pieces)):
            if part and held + len(ids) > most:
                texts.append((sentence.place(i - len(part)), " ".join(part)))
                part, held = [], 0
            part.append(word)
            held += len(ids)
        texts.append((sentence.place(len(sentence.words) - len(part)), " ".join(part)))
    return texts


def states_of(trained, sentences):
    """({layer_n: float32 [S, D]} of each word's first piece, what is to be told). A word of which nothing is known is all zeros.

    Raises ValueError where the words that were read are not those of the sentences.
    """
    texts = in_parts(
        sentences, trained.vocabulary, trained.run.data.objective.length - 2
    )  # [CLS], [SEP]
    mesh = make_mesh(Mesh(data=1), jax.devices()[:1])
    with jax.set_mesh(mesh):
        found = extract(trained, mesh, texts, layers=("all",), pooling="word")
    words, read = (
        sum(len(sentence.words) for sentence in sentences),
        int(found.arrays["offsets"][-1]),
    )
    if words != read:
        raise ValueError(
            f"{sentences[0].source}: {words} words, of which {read} were read: one has white space in it, or stands behind a row's end"
        )
    states = {
        name: np.nan_to_num(array)
        for name, array in found.arrays.items()
        if name.startswith("layer_")
    }
    return states, {
        "sentences": len(sentences),
        "words": words,
        "parts": len(texts),
        "cut": found.cut,
        "empty": found.empty,
    }


def read_by(opened, workdir, sentences):
    """`states_of` sentences by the `Trained` that `opened` gives of a workdir."""
    return states_of(opened(workdir), sentences)


def untrained(workdir):
    """The `Trained` of a workdir with parameters that have learned nothing."""
    trained = open_trained(workdir)
    fresh = jax.jit(
        partial(
            init_params,
            build(trained.run.model),
            trained.run.data.objective,
            trained.run.train.seed,
        )
    )()
    return dataclasses.replace(trained, params=fresh, step=0)


def kept(path, make, again):
    """What `make` gives, (arrays, JSON), out of a .npz file where that is there."""
    if again or not path.exists():
        arrays, about = make()
        with replace_file(path) as new:
            np.savez(new, **arrays, about=np.array(json.dumps(about)))
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, json.loads(str(arrays.pop("about")))


def combined(states, name):
    """float32 [S, D]: a combination of {layer_n: [S, D]}."""
    return np.asarray(COMBINATIONS[name].of([states[f"layer_{i}"] for i in range(len(states))]))


STARTS = {"pretrained": open_trained, "random weights": untrained}


# ---- the program -------------------------------------------------------------


def measured(args):
    """({(start, combination): what `learn` gives}, {file: facts of how it was read}, facts of the encoder)."""
    sentences = {
        name: tagging.read(str(args.corpora / "ner_wnut17" / f"{name}.conll")) for name in FILES
    }
    names = tag_schemes.names(
        {tag for sentence in sentences["train"] for tag in sentence.tags}, "bio"
    )
    found, facts = {}, {}
    for start, opened in STARTS.items():
        stem, states = start.split()[0], {}
        for name, own in sentences.items():
            path = args.work / f"{stem}-{name}.npz"
            states[name], facts[name] = kept(
                path, partial(read_by, opened, args.encoder, own), args.again
            )
        for combination in ROWS[start]:
            path = (
                args.work
                / f"{stem}-{distinct(combination, len(states['train']) - 1)}-{args.seeds}x{args.epochs}.json"
            )
            if args.again or not path.exists():
                print(f"{start}, {combination}", file=sys.stderr, flush=True)
                parts = {
                    name: part_of(states[name], combination, own, names)
                    for name, own in sentences.items()
                }
                write_result(path, learn(parts, names, args.seeds, args.epochs))
            found[start, combination] = json.loads(path.read_text())
    return found, facts


def part_of(states, combination, sentences, names):
    """The `Part` of sentences, of a combination of the states of their words."""
    starts = np.cumsum([0, *(len(sentence.words) for sentence in sentences)])
    return Part(
        combined(states, combination), np.concatenate(tagging.numbered(sentences, names)), starts
    )


def distinct(combination, depth):
    """Of combinations that are the same in a model of so few layers, the first one."""
    return "sum_last_four" if combination == "sum_all" and depth == 4 else combination


def table(found, depth):
    """A line for each row that was measured."""
    lines = ["| features | encoder | dev | test | best epochs |", "|---|---|---|---|---|"]
    for (start, combination), seeds in found.items():
        same = (
            ""
            if distinct(combination, depth) == combination
            else f" (here the same as {distinct(combination, depth)})"
        )
        scores = [spelt([one[part] for one in seeds]) for part in ("dev", "test")]
        lines.append(
            f"| {combination}{same} | {start} | {' | '.join(scores)} | {', '.join(str(one['epoch']) for one in seeds)} |"
        )
    return lines


def page(found, facts, run, args):
    """The lines of a section, behind its heading."""
    read = "; ".join(
        f"{name} {one['sentences']:,} of {one['words']:,} words, in {one['parts']:,} parts"
        for name, one in facts.items()
    )
    cut, empty = (sum(one[key] for one in facts.values()) for key in ("cut", "empty"))
    length, model = run.data.objective.length, run.model
    text = f"""
The encoder: {args.encoder}, {model.depth} layers of {model.width}, whose rows are {length} tokens long, frozen. Sentences: {read}: those of more
than {length - 2} pieces are read in parts. {cut} of the parts are one word longer than the model, of which the first piece counts; {empty} words
have no piece. The tagger: two bidirectional LSTM layers of {WIDTH} each way and a classification layer, batches of {BATCH} sentences of about one
length, Adam at {RATE:g}, {args.epochs} epochs, no dropout. Entity F1 in hundredths, mean ± sample standard deviation of {args.seeds} seeds of the
tagger and of the order; the encoder with random weights is one. The epoch is the best on dev, whose figures are therefore optimistic; test
chose nothing."""
    return [
        f"`{command()}`",
        text,
        "",
        *table(found, model.depth),
        "",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, default=pathlib.Path("../shared/corpora"))
    parser.add_argument(
        "--from",
        dest="encoder",
        type=pathlib.Path,
        default=pathlib.Path("runs/bert_mini"),
        help="the workdir of the pretrained encoder",
    )
    parser.add_argument("--seeds", type=at_least(1), default=3)
    parser.add_argument("--epochs", type=at_least(1), default=EPOCHS)
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        default=pathlib.Path("runs/feature_layers"),
        help="where features and scores are kept",
    )
    parser.add_argument(
        "--again", action="store_true", help="measure again what was measured already"
    )
    args = parser.parse_args()
    os.chdir(ROOT)
    load = os.getloadavg()[0]
    args.work.mkdir(parents=True, exist_ok=True)
    found, facts = measured(args)
    append(
        "feature_layers.md",
        [
            title(load, f"JAX {jax.__version__}"),
            "",
            *page(found, facts, read_run(args.encoder), args),
        ],
    )


if __name__ == "__main__":
    main()
