"""BERT's feature experiment on WNUT-17 (Devlin et al. 2018, section 5.3 and table 7): what each layer of a frozen encoder is worth to a tagger.

    python -m benchmarks.feature_layers --corpora ../shared/corpora [--from runs/bert_mini] [--seeds 3] [--again]

The hidden states of each word's first piece are computed once, by what `python -m pretrain features` runs, and kept in WORK as .npz; each of
its combinations of layers then feeds a two-layer bidirectional LSTM that begins at random, with a classification layer over BIO tags, which
learns by Adam. The epoch is the best by the entity F1 of dev; test is scored at that epoch. The same is done for an encoder with random
weights. Sentences that are longer than the encoder's rows are read in parts, cut between words, and tagged whole. A dated section is
appended to benchmarks/results/feature_layers.md.

B batch   L words of a row   D width of the features   H width of the LSTM, each way   C tags   S words of all sentences
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import sys
import time
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.downstream import write_result
from benchmarks.downstream_page import spelt
from benchmarks.harness import ROOT, append, title
from data import tag_schemes, tagged
from models import build
from pretrain.config import Mesh
from pretrain.features import COMBINATIONS, extract
from pretrain.finetune import entities
from pretrain.sharding import make_mesh
from pretrain.state import init_params
from pretrain.trained import open_trained

FILES = {"train": "train", "dev": "dev", "test": "test"}  # of ner_wnut17/
STARTS = {"pretrained": tuple(COMBINATIONS), "random weights": ("embeddings", "last", "concat_last_four")}
LENGTHS = (8, 16, 24, 32, 48, 64, 128)  # rows are padded to these, so that few shapes are compiled
BATCH, WIDTH, RATE, EPOCHS = 32, 64, 1e-3, 8
ADAM = optax.adam(RATE)


# ---- features ----------------------------------------------------------------


def in_parts(sentences, vocabulary, most):
    """[(place, text)] of sentences, each in as few parts as have no more than `most` pieces; a word is not cut, a longer one stands alone."""
    texts = []
    for sentence, pieces in zip(sentences, tagged.word_ids(vocabulary, [sentence.words for sentence in sentences])):
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
    texts = in_parts(sentences, trained.vocabulary, trained.run.data.objective.length - 2)  # [CLS], [SEP]
    mesh = make_mesh(Mesh(data=1), jax.devices()[:1])
    with jax.set_mesh(mesh):
        found = extract(trained, mesh, texts, layers=("all",), pooling="word")
    words, read = sum(len(sentence.words) for sentence in sentences), int(found.arrays["offsets"][-1])
    if words != read:
        raise ValueError(f"{sentences[0].source}: {words} words, of which {read} were read: one has white space in it, or stands behind a row's end")
    states = {name: np.nan_to_num(array) for name, array in found.arrays.items() if name.startswith("layer_")}
    return states, {"sentences": len(sentences), "words": words, "parts": len(texts), "cut": found.cut, "empty": found.empty}


def encoders(workdir):
    """{name of STARTS: a function that gives the `Trained`}: as it is, and with parameters that have learned nothing."""

    def random():
        trained = open_trained(workdir)
        fresh = jax.jit(partial(init_params, build(trained.run.model), trained.run.data.objective, trained.run.train.seed))()
        return dataclasses.replace(trained, params=fresh, step=0)

    return dict(zip(STARTS, (partial(open_trained, workdir), random)))


def kept(path, make, again):
    """What `make` gives, (arrays, JSON), out of a .npz file where that is there."""
    if again or not path.exists():
        arrays, about = make()
        part = path.with_suffix(".part")
        with open(part, "wb") as file:
            np.savez(file, **arrays, about=np.array(json.dumps(about)))
        part.replace(path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, json.loads(str(arrays.pop("about")))


def combined(states, name):
    """float32 [S, D]: a combination of {layer_n: [S, D]}."""
    return np.asarray(COMBINATIONS[name].of([states[f"layer_{i}"] for i in range(len(states))]))


# ---- the tagger --------------------------------------------------------------


class Tagger(nn.Module):
    """Features [B, L, D] to scores of tags [B, L, C]."""

    width: int
    tags: int

    @nn.compact
    def __call__(self, x_BLD, valid_BL):
        for _ in range(2):
            ways = (nn.RNN(nn.OptimizedLSTMCell(self.width)) for _ in range(2))
            x_BLD = nn.Bidirectional(*ways)(x_BLD, seq_lengths=valid_BL.sum(axis=1))
        return nn.Dense(self.tags)(x_BLD)


class Part(NamedTuple):
    """The words of some sentences, one behind the other. x: [S, D]; tags: int [S]; starts: where each sentence begins, and the end."""

    x: np.ndarray
    tags: np.ndarray
    starts: np.ndarray

    def rows(self, which, length):
        """(x [B, L, D], tags [B, L], valid [B, L]) of the sentences of these numbers, and of none, so that there are always BATCH."""
        x, tags, valid = np.zeros((BATCH, length, self.x.shape[1]), np.float32), np.zeros((BATCH, length), np.int32), np.zeros((BATCH, length), bool)
        for row, n in enumerate(which):
            lo, hi = self.starts[n : n + 2]
            x[row, : hi - lo], tags[row, : hi - lo], valid[row, : hi - lo] = self.x[lo:hi], self.tags[lo:hi], True
        return x, tags, valid

    def batches(self, rng):
        """[(numbers of sentences, length of the row)]: sentences of about one length together, in an order that `rng` draws."""
        lengths = np.array(LENGTHS)[np.searchsorted(LENGTHS, np.diff(self.starts))]
        order = rng.permutation(len(lengths))
        found = []
        for length in LENGTHS:
            same = order[lengths[order] == length]
            found += [(same[i : i + BATCH], length) for i in range(0, len(same), BATCH)]
        return [found[i] for i in rng.permutation(len(found))]


@partial(jax.jit, static_argnames="model", donate_argnums=(1, 2))
def update(model, params, moments, x_BLD, tags_BL, valid_BL):
    """(parameters, moments, loss) after a step of Adam on the mean cross-entropy of a batch's words."""

    def loss(params):
        nats_BL = optax.softmax_cross_entropy_with_integer_labels(model.apply(params, x_BLD, valid_BL), tags_BL)
        return jnp.where(valid_BL, nats_BL, 0.0).sum() / valid_BL.sum()

    value, grads = jax.value_and_grad(loss)(params)
    moves, moments = ADAM.update(grads, moments, params)
    return optax.apply_updates(params, moves), moments, value


@partial(jax.jit, static_argnames="model")
def likeliest(model, params, x_BLD, valid_BL):
    """The likeliest tag of each word [B, L]."""
    return model.apply(params, x_BLD, valid_BL).argmax(-1)


def entity_f1(model, params, part, names):
    """The entity F1 of a part: that of `finetune --task tagging`."""
    numbers = np.full((len(part.starts) - 1, np.diff(part.starts).max() + 1), -1)
    for which, length in part.batches(np.random.default_rng(0)):
        x_BLD, _, valid_BL = part.rows(which, length)
        for n, tags_L in zip(which, np.asarray(likeliest(model, params, x_BLD, valid_BL))):
            many = part.starts[n + 1] - part.starts[n]
            numbers[n, :many] = tags_L[:many]
    split = SimpleNamespace(sentence_starts=np.arange(len(part.tags) + 1), document_starts=part.starts, tags=part.tags)
    return entities.f1(numbers, SimpleNamespace(labels=names), split)


def learn(parts, names, seed, epochs):
    """{"epoch", "dev", "test", "devs"}: the epoch that is best on dev, the entity F1 there on both, and dev's after each epoch."""
    model, rng, train = Tagger(WIDTH, len(names)), np.random.default_rng(seed), parts["train"]
    params = jax.jit(model.init)(jax.random.key(seed), jnp.zeros((1, 1, train.x.shape[1])), jnp.ones((1, 1), bool))
    moments, best, devs = ADAM.init(params), None, []
    for epoch in range(1, epochs + 1):
        losses = []
        for which, length in train.batches(rng):
            params, moments, loss = update(model, params, moments, *train.rows(which, length))
            losses.append(loss)
        devs.append(entity_f1(model, params, parts["dev"], names))
        print(f"  seed {seed}, epoch {epoch}: loss {np.mean(jax.device_get(losses)):.4f}, entity F1 of dev {devs[-1]:.4f}", file=sys.stderr, flush=True)
        if best is None or devs[-1] > best["dev"]:
            best = {"epoch": epoch, "dev": devs[-1], "test": entity_f1(model, params, parts["test"], names)}
    return best | {"devs": devs}


# ---- the program -------------------------------------------------------------


def measured(args):
    """({(start, combination): [what `learn` gives of each seed]}, {file: facts of how it was read}, facts of the encoder)."""
    sentences = {name: tagged.read(str(args.corpora / "ner_wnut17" / f"{name}.conll")) for name in FILES}
    names = tag_schemes.names({tag for sentence in sentences["train"] for tag in sentence.tags}, "bio")
    found, facts = {}, {}
    for start, open_encoder in encoders(args.encoder).items():
        states, encoder = {}, None
        for name, own in sentences.items():

            def make():
                nonlocal encoder
                encoder = encoder or open_encoder()
                return states_of(encoder, own)

            states[name], facts[name] = kept(args.work / f"{start.split()[0]}-{name}.npz", make, args.again)
        for combination in STARTS[start]:
            path = args.work / f"{start.split()[0]}-{combination}.json"
            if args.again or not path.exists():
                print(f"{start}, {combination}", file=sys.stderr, flush=True)
                parts = {name: part_of(states[name], combination, own, names) for name, own in sentences.items()}
                write_result(path, [learn(parts, names, seed, args.epochs) for seed in range(args.seeds)])
            found[start, combination] = json.loads(path.read_text())
    return found, facts


def part_of(states, combination, sentences, names):
    """The `Part` of sentences."""
    starts = np.cumsum([0, *(len(sentence.words) for sentence in sentences)])
    return Part(combined(states, combination), np.concatenate(tagged.numbered(sentences, names)), starts)
