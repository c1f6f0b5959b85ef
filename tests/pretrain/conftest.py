"""Fixtures: tiny runs, and batches in the batch spec's shapes."""

import dataclasses
from unittest.mock import Mock

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import (
    BidirectionalLm,
    CausalLm,
    Classification,
    Denoising,
    Distillation,
    MaskedLm,
    MaskedNextToken,
    PermutationLm,
    ReplacedToken,
    SentenceOrder,
    SentencePair,
    Seq2Seq,
    SpanCorruption,
)
from models.config.albert import AlbertConfig
from models.config.bart import BartConfig
from models.config.bert import BertConfig
from models.config.classifier import ClassifierConfig
from models.config.deberta_v3 import DebertaV3Config
from models.config.deep_averaging import DeepAveragingConfig
from models.config.distilbert import DistilBertConfig
from models.config.electra import ElectraConfig
from models.config.elmo import ElmoConfig
from models.config.eurobert import EuroBertConfig
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.gpt3 import Gpt3Config
from models.config.gpt_bert import GptBertConfig
from models.config.linformer import LinformerConfig
from models.config.lstm_lm import LstmLmConfig
from models.config.modernbert import ModernBertConfig
from models.config.modernbert_decoder import ModernBertDecoderConfig
from models.config.music_transformer import MusicTransformerConfig
from models.config.neobert import NeoBertConfig
from models.config.recurrent_encoder import RecurrentEncoderConfig
from models.config.reformer import Hashing, LocalChunks, ReformerConfig
from models.config.roberta import RobertaConfig
from models.config.seq2seq_lstm import Seq2SeqLstmConfig
from models.config.sparse_transformer import SparseTransformerConfig
from models.config.t5 import T5Config
from models.config.t5gemma import T5GemmaConfig
from models.config.textcnn import TextCnnConfig
from models.config.transformer import TransformerConfig
from models.config.transformer_xl import Clusters, TransformerXLConfig
from models.config.xlnet import XLNetConfig
from pretrain.config import AdamW, Lamb, Run, Train
from tests.tiny import fit_sizes

SIZES = dict(
    **dict(vocab=128, length=32, width=32, depth=2, decoder_depth=2, num_heads=8, head_width=4),
    **dict(mlp=64, embedding=16, dropout=0.0, attention_dropout=0.0),
)


def make_tiny(kind, **settings):
    return fit_sizes(kind, SIZES, **settings)


BERT, T5, BART = make_tiny(BertConfig), make_tiny(T5Config), make_tiny(BartConfig)
ALBERT, ROBERTA, XLNET = make_tiny(AlbertConfig), make_tiny(RobertaConfig), make_tiny(XLNetConfig)
TRANSFORMER, SEQ2SEQ_LSTM = make_tiny(TransformerConfig), make_tiny(Seq2SeqLstmConfig, mlp=24)
DISTILBERT = make_tiny(DistilBertConfig, teacher_depth=4)
MODERNBERT = make_tiny(ModernBertConfig, depth=5, window=8)
MODERNBERT_DECODER = make_tiny(ModernBertDecoderConfig, depth=5, window=8)
EUROBERT, NEOBERT = make_tiny(EuroBertConfig, num_key_heads=4), make_tiny(NeoBertConfig)
T5GEMMA = make_tiny(T5GemmaConfig, num_key_heads=4, window=6, start=1)
LINFORMER = make_tiny(LinformerConfig, rank=8)
ELECTRA = make_tiny(ElectraConfig, generator_width=16, generator_num_heads=4, generator_mlp=32)
DEBERTA_V3 = make_tiny(
    DebertaV3Config, generator_depth=1, buckets=8, max_distance=20, attention_dropout=0.0
)
MUSIC_TRANSFORMER = make_tiny(MusicTransformerConfig, max_distance=20)
TRANSFORMER_XL = make_tiny(TransformerXLConfig, memory=16, clusters=Clusters((32, 64), 2))
SPARSE_TRANSFORMER = make_tiny(
    SparseTransformerConfig, stride=8, summary=2, subblocks=2, merged=False
)
ELMO = make_tiny(
    **dict(kind=ElmoConfig, cells=64, characters=6, character_width=8, highways=1),
    character_filters=((1, 16), (3, 16)),
)
REFORMER = make_tiny(
    **dict(kind=ReformerConfig, depth=4, mlp_chunk=16, layers=("local", "lsh")),
    hashing=Hashing(chunk=8, rounds=2, dropout=0.0),
    local=LocalChunks(chunk=8, dropout=0.0),
    axial_shape=(4, 8),
    axial_widths=(8, 24),
)


WORD_ENCODERS = {
    "deep_averaging": DeepAveragingConfig(vocab=128, width=16, depth=2, hidden=32, ngrams=2, buckets=64, channels="multichannel"),
    "textcnn": TextCnnConfig(vocab=128, width=16, depth=2, windows=(2, 3), filters=8),
    "recurrent_encoder": RecurrentEncoderConfig(vocab=128, width=16, depth=2, cells=8, bidirectional=True),
    "elman": RecurrentEncoderConfig(vocab=128, width=16, cell="elman", cells=8, pooling="mean"),
}  # fmt: skip


def make_tiny_run(model, objective, **train):
    return Run(
        model=model,
        data=Data(objective=objective, batch_size=32),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2),
        train=Train(steps=10, compute_dtype="float32", **train),
    )


RUNS = {
    "bert": make_tiny_run(BERT, MaskedLm(length=32, max_predictions=6, rows="documents")),
    "bert_packed": make_tiny_run(BERT, MaskedLm(length=32, max_predictions=6, rows="packed")),
    "bert_pairs": make_tiny_run(BERT, SentencePair(length=32, max_predictions=6)),
    "bert_unrolled": make_tiny_run(
        dataclasses.replace(BERT, scan=False, remat=True),
        MaskedLm(length=32, max_predictions=6, rows="documents"),
    ),
    "bart": make_tiny_run(BART, Denoising(length=32)),
    "distilbert": make_tiny_run(
        DISTILBERT, Distillation(length=32, max_predictions=6, rows="documents")
    ),
    "classifier": make_tiny_run(
        ClassifierConfig(encoder=BERT, labels=("a", "b"), dropout=0.0), Classification(length=32)
    ),
    **{
        name: make_tiny_run(
            ClassifierConfig(encoder=encoder, labels=("a", "b"), dropout=0.0),
            Classification(length=32),
        )
        for name, encoder in WORD_ENCODERS.items()
    },
    "decoder_classifier": make_tiny_run(
        ClassifierConfig(encoder=make_tiny(Gpt2Config), labels=("a", "b"), dropout=0.0),
        Classification(length=32, cls_position="none"),
    ),
    "t5": make_tiny_run(T5, SpanCorruption(inputs=32)),
    "t5_gated": make_tiny_run(
        dataclasses.replace(T5, gated=True, tied=False, remat=True), SpanCorruption(inputs=32)
    ),
    "t5gemma": make_tiny_run(T5GEMMA, SpanCorruption(inputs=32)),
    "albert": dataclasses.replace(
        make_tiny_run(ALBERT, SentenceOrder(length=32, max_predictions=6)),
        optimizer=Lamb(learning_rate=1e-2, warmup_steps=2),
    ),
    "modernbert": make_tiny_run(MODERNBERT, MaskedLm(length=32, max_predictions=6)),
    "modernbert_decoder": make_tiny_run(MODERNBERT_DECODER, CausalLm(length=32)),
    "eurobert": make_tiny_run(EUROBERT, MaskedLm(length=32, max_predictions=6, masks_only=True)),
    # its keys are not sharded
    "eurobert_one_key": make_tiny_run(
        dataclasses.replace(EUROBERT, num_key_heads=1), MaskedLm(length=32, max_predictions=6)
    ),
    "neobert": make_tiny_run(NEOBERT, MaskedLm(length=32, max_predictions=6)),
    "roberta": make_tiny_run(ROBERTA, MaskedLm(length=32, max_predictions=6, rows="sentences")),
    "linformer": make_tiny_run(LINFORMER, MaskedLm(length=32, max_predictions=6, rows="documents")),
    "linformer_unshared": make_tiny_run(
        dataclasses.replace(LINFORMER, sharing="none"),
        MaskedLm(length=32, max_predictions=6, rows="documents"),
    ),
    "electra": make_tiny_run(
        ELECTRA, ReplacedToken(length=32, max_predictions=6, rows="documents")
    ),
    "deberta_v3": make_tiny_run(
        DEBERTA_V3, ReplacedToken(length=32, max_predictions=6, rows="packed")
    ),
    "transformer": make_tiny_run(
        TRANSFORMER, Seq2Seq(length=32, target_length=24), label_smoothing=0.1
    ),
    "seq2seq_lstm": make_tiny_run(SEQ2SEQ_LSTM, Seq2Seq(length=32, target_length=24)),
    "seq2seq_lstm_fed": make_tiny_run(
        dataclasses.replace(SEQ2SEQ_LSTM, direction="backward", score="general", remat=True),
        Seq2Seq(length=32, target_length=24),
    ),
    "gpt": make_tiny_run(make_tiny(GptConfig), CausalLm(length=32, end_of_text=False)),
    "gpt_bert": make_tiny_run(
        make_tiny(GptBertConfig, buckets=8, max_distance=20),
        MaskedNextToken(length=32, max_predictions=6),
    ),
    "transformer_xl": make_tiny_run(TRANSFORMER_XL, CausalLm(length=32)),
    "xlnet": make_tiny_run(XLNET, PermutationLm(length=32, partial=4, rows="documents")),
    "reformer": make_tiny_run(REFORMER, CausalLm(length=32)),
    "reformer_kept": make_tiny_run(dataclasses.replace(REFORMER, remat=False), CausalLm(length=32)),
    "sparse_transformer": make_tiny_run(SPARSE_TRANSFORMER, CausalLm(length=32)),
    "music_transformer": make_tiny_run(MUSIC_TRANSFORMER, CausalLm(length=32)),
    "lstm_lm": make_tiny_run(make_tiny(LstmLmConfig), CausalLm(length=32)),
    "elmo": make_tiny_run(ELMO, BidirectionalLm(length=32, order="shuffled", characters=6)),
    "gpt3": make_tiny_run(
        make_tiny(Gpt3Config, depth=4, window=5, remat=True), CausalLm(length=32)
    ),
}


@pytest.fixture
def spied(monkeypatch):
    """Return spied(owner, name): wrap an attribute of an owner in a Mock that records its calls."""

    def spy_on(owner, name):
        known = Mock(wraps=getattr(owner, name))
        monkeypatch.setattr(
            owner, name, lambda *args, **kw: known(*args, **kw)
        )  # a Mock would not be given `self`
        return known

    return spy_on


@pytest.fixture
def runs():
    """Return the tiny runs by name, without dropout."""
    return RUNS


@pytest.fixture
def random_batch():
    """Return random_batch(run, seed): a batch with padding and unequal numbers of targets in its
    rows.
    """

    def make_batch(run, seed=0):
        rng = np.random.default_rng(seed)
        batch = {}
        for key, (dtype, shape) in batch_spec.compute_shapes(
            run.data.objective, run.data.batch_size
        ).items():
            if key in ("attention_mask", "encoder_attention_mask", "discriminator_weights"):
                value = np.arange(shape[-1]) < rng.integers(
                    shape[-1] // 2, shape[-1] + 1, (*shape[:-1], 1)
                )
            elif key in ("encoder_segment_ids", "decoder_segment_ids"):  # tokens per target, about
                value = 1 + np.cumsum(rng.random(shape) < 1 / 6, axis=1)
                value *= batch["encoder_attention_mask"] if key == "encoder_segment_ids" else 1
            elif key == "segment_ids":  # tokens per target, about
                value = (1 + np.cumsum(rng.random(shape) < 1 / 6, axis=1)) * batch["attention_mask"]
            elif key in ("label_weights", "backward_weights") and len(shape) == 2:
                value = rng.random(shape) < rng.random((shape[0], 1))
            elif key in (
                "next_sentence_weights",
                "sentence_order_weights",
                "row_weights",
                "label_weights",
            ):
                value = np.arange(shape[0]) % 5 > 0
            elif key == "uniforms":
                value = rng.random(shape)
            elif key == "masked_positions":
                value = np.sort(rng.integers(0, run.model.length // 2, shape), axis=1)
            else:
                value = rng.integers(
                    0,
                    {
                        "token_type_ids": 2,
                        "next_sentence_labels": 2,
                        "sentence_order_labels": 2,
                        "labels": 2,
                    }.get(key, 128),
                    shape,
                )
            batch[key] = value.astype(dtype)
        batch_spec.check_batch(batch, run.data.objective, run.data.batch_size)
        return batch

    return make_batch


WORDS = "the a of and old grey fox dog river stone walks runs sees finds under over near with quick slow house".split()


def make_texts(count):
    """Return deterministic sentences, all different."""
    return [
        " ".join(WORDS[(i * i + 7 * i * j + j * j) % len(WORDS)] for j in range(4 + i % 9)) + "."
        for i in range(count)
    ]


def _write_tiny_store(folder, layout, size):
    from data.vocabulary.load import train_vocabulary
    from tests.small_store import write_store

    vocabulary = train_vocabulary(make_texts(600), size, layout=layout)
    encoded = iter(vocabulary.encode_batch(make_texts(600)))
    documents = [[next(encoded) for _ in range(1 + i % 9)] for i in range(100)]
    return write_store(folder, vocabulary, documents[:90], heldout=documents[90:])


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """Return {"bert": a small token store in BERT's layout, "t5": one in T5's}."""
    root = tmp_path_factory.mktemp("stores")
    return {
        "bert": _write_tiny_store(root / "bert", "bert", 40),
        "t5": _write_tiny_store(root / "t5", "t5", 138),
    }


@pytest.fixture(scope="session")
def configs(tmp_path_factory, stores):
    """Return {"bert": path of a saved configuration of a run of 12 steps with dropout on that
    store, "t5": the same}.
    """
    from pretrain.config import Checkpoint, Evaluate, to_json

    root = tmp_path_factory.mktemp("configs")
    paths = {}
    for name, run in (("bert", RUNS["bert_pairs"]), ("t5", RUNS["t5"])):
        run = dataclasses.replace(
            run,
            model=dataclasses.replace(run.model, vocab=256, dropout=0.1),
            data=dataclasses.replace(run.data, store=str(stores[name].path), batch_size=8),
            train=dataclasses.replace(run.train, steps=12),
            evaluate=Evaluate(every=6, samples=0),
            checkpoint=Checkpoint(every=4, keep=10),
        )
        paths[name] = root / f"{name}.json"
        paths[name].write_text(to_json(run))
    return paths
