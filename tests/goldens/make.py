"""Write the golden files: what `transformers` computes, for tests without torch (python
tests/goldens/make.py).

A file holds the `config` and the tensors `weights.NAME` as transformers saved them, `inputs.KEY`
and `outputs.KEY`. Needs the `peers` extra. The models are random and tiny, but nothing in them is
zero, one or alike, so no mistake hides.
"""

import json
import pathlib
import tempfile
from functools import partial

import numpy as np

HERE = pathlib.Path(__file__).parent
SHAPE = dict(vocab_size=48)
BERT = SHAPE | dict(
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=32,
)
T5 = SHAPE | dict(
    d_model=16,
    d_kv=5,
    d_ff=28,
    num_layers=2,
    num_decoder_layers=3,
    num_heads=3,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=20,
    decoder_start_token_id=0,
)
MARIAN = SHAPE | dict(
    d_model=18,
    encoder_layers=2,
    decoder_layers=3,
    encoder_attention_heads=3,
    decoder_attention_heads=3,
    encoder_ffn_dim=28,
    decoder_ffn_dim=28,
    max_position_embeddings=40,
    activation_function="relu",
    scale_embedding=True,
    pad_token_id=0,
    eos_token_id=1,
    forced_eos_token_id=None,
    decoder_start_token_id=0,
)
BART = MARIAN | dict(
    activation_function="gelu",
    scale_embedding=False,
    pad_token_id=1,
    bos_token_id=0,
    eos_token_id=2,
    decoder_start_token_id=2,
    forced_bos_token_id=None,
)
DISTILBERT = SHAPE | dict(dim=24, n_layers=2, n_heads=3, hidden_dim=40, max_position_embeddings=32)
GPT = SHAPE | dict(n_embd=24, n_layer=2, n_head=3, n_positions=32)
CASES = {
    "gpt": ("openai-gpt", GPT),
    "gpt2": ("gpt2", GPT | dict(n_inner=40)),
    "bert": ("bert", BERT),
    "t5": ("t5", T5),
    "t5_v1_1": ("t5", T5 | dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "t5_gated_tied": ("t5", T5 | dict(feed_forward_proj="gated-gelu")),
    "t5_relu_untied": ("t5", T5 | dict(tie_word_embeddings=False)),
    "roberta": (
        "roberta",
        BERT | dict(max_position_embeddings=34, type_vocab_size=1, layer_norm_eps=1e-5),
    ),
    "transformer": ("marian", MARIAN),
    "bart": ("bart", BART),
    "distilbert": ("distilbert", DISTILBERT),
    "albert": ("albert", BERT | dict(embedding_size=10, num_hidden_layers=3)),
    # Both networks of the first have another width than their embeddings; in the second only the
    # generator has.
    "electra": (
        "electra",
        BERT
        | dict(
            embedding_size=10,
            generator=dict(hidden_size=8, num_attention_heads=2, intermediate_size=12),
        ),
    ),
    "electra_wide": (
        "electra",
        BERT
        | dict(
            embedding_size=24,
            generator=dict(hidden_size=12, num_attention_heads=1, intermediate_size=20),
        ),
    ),
}


def make_model(kind, settings, seed=0):
    """Return a transformers model in evaluation mode with random values in every parameter."""
    import torch
    import transformers

    torch.set_num_threads(1)  # a second thread only spins on models of this size
    if kind == "electra":
        return make_electra(settings, seed)
    configuration, architecture = {
        "bert": (transformers.BertConfig, transformers.BertForPreTraining),
        "t5": (transformers.T5Config, transformers.T5ForConditionalGeneration),
        "openai-gpt": (transformers.OpenAIGPTConfig, transformers.OpenAIGPTLMHeadModel),
        "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
        "roberta": (transformers.RobertaConfig, transformers.RobertaForMaskedLM),
        "albert": (transformers.AlbertConfig, transformers.AlbertForPreTraining),
        "marian": (transformers.MarianConfig, transformers.MarianMTModel),
        "distilbert": (transformers.DistilBertConfig, transformers.DistilBertForMaskedLM),
        "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration),
    }[kind]
    made = architecture(configuration(**settings)).eval()
    if kind == "roberta":  # with the pooler of the released files
        made.roberta = transformers.RobertaModel(made.config, add_pooling_layer=True).eval()
        made.tie_weights()
    if kind == "t5" and not settings.get("tie_word_embeddings", True):
        made.lm_head.weight = torch.nn.Parameter(made.lm_head.weight.detach().clone())
    if kind in ("marian", "bart"):
        return separate_words(
            made, torch.Generator().manual_seed(seed + 5)
        )  # the least monotonous of the first seeds
    return randomize_model(made, seed)


def randomize_model(made, seed):
    """Return the model with random values in every parameter."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim == 2:
                table = (
                    any(part in name for part in ("embed", "shared", "relative", "wte", "wpe"))
                    and "_project" not in name
                )
                weight.copy_(noise if table else noise * weight.shape[1] ** -0.5)
            else:
                weight.copy_(
                    0.3 * noise
                    + (("norm" in name.lower() or ".ln_" in name) and name.endswith("weight"))
                )
    return made


def make_electra(settings, seed):
    """Return a discriminator and a generator with shared embeddings; settings["generator"] is the
    generator's own.
    """
    import torch
    import transformers

    settings = dict(settings)
    own = settings.pop("generator")
    discriminator = transformers.ElectraForPreTraining(transformers.ElectraConfig(**settings))
    generator = transformers.ElectraForMaskedLM(transformers.ElectraConfig(**settings | own))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.tie_weights()
    return randomize_model(
        torch.nn.ModuleDict({"discriminator": discriminator, "generator": generator}).eval(), seed
    )


def separate_words(made, generator):
    """Draw a model with tied embeddings that does not repeat its last token for ever."""
    import torch

    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.requires_grad:  # all except sinusoids
                bias = weight.ndim == 1 and name.endswith("bias")
                scale = 0.05 if bias else weight.shape[-1] ** -0.5 if weight.ndim == 2 else 1.0
                weight.copy_(scale * torch.randn(weight.shape, generator=generator))
    return made


def save_model(made, folder):
    """Return (config, weights) as transformers writes them; a generator is in "generator", its
    weights in "generator/".
    """
    from safetensors.numpy import load_file

    if hasattr(made, "keys"):
        config, weights = save_model(made["discriminator"], folder)
        other, more = save_model(made["generator"], folder / "generator")
        other.pop("transformers_version")
        return config | {"generator": other}, weights | {
            f"generator/{name}": weight for name, weight in more.items()
        }
    made.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


def bert_inputs(vocab, seed=0, rows=3, length=13, masked=4):
    """Return a batch of the batch spec of sentence_pair."""
    rng = np.random.default_rng(seed)
    lengths = np.linspace(length // 2, length, rows).astype(int)
    valid = np.arange(length) < lengths[:, None]
    return {
        "token_ids": np.where(valid, rng.integers(1, vocab, (rows, length)), 0).astype(np.int32),
        "attention_mask": valid,
        "token_type_ids": (valid & (np.arange(length) >= lengths[:, None] // 2)).astype(np.int32),
        "masked_positions": np.sort(
            [rng.choice(size, masked, replace=False) for size in lengths]
        ).astype(np.int32),
        "labels": rng.integers(1, vocab, (rows, masked)).astype(np.int32),
        "label_weights": np.ones((rows, masked), np.float32),
        "next_sentence_labels": rng.integers(0, 2, rows).astype(np.int32),
        "next_sentence_weights": np.ones(rows, np.float32),
    }


def t5_inputs(vocab, seed=0, rows=3, length=37, written=9):
    """Return a batch of the batch spec of span_corruption, long enough for the far buckets."""
    rng = np.random.default_rng(seed)
    valid = np.arange(length) < np.linspace(length // 2, length, rows).astype(int)[:, None]
    return {
        "encoder_token_ids": np.where(valid, rng.integers(2, vocab, (rows, length)), 0).astype(
            np.int32
        ),
        "encoder_attention_mask": valid,
        "labels": rng.integers(1, vocab, (rows, written)).astype(np.int32),
        "label_weights": np.ones((rows, written), np.float32),
    }


def marian_inputs(vocab, seed=0):
    """Return a batch of the batch spec of seq2seq, one pair a row, with short sources."""
    batch = t5_inputs(vocab, seed, length=19)
    segments = {
        "encoder_segment_ids": batch["encoder_attention_mask"].astype(np.int32),
        "decoder_segment_ids": np.ones(batch["labels"].shape, np.int32),
    }
    return batch | segments


def gpt_inputs(vocab, seed=0, rows=3, length=13):
    """Return a batch of the batch spec of causal_lm."""
    row = np.random.default_rng(seed).integers(0, vocab, (rows, length + 1)).astype(np.int32)
    return {
        "token_ids": row[:, :-1].copy(),
        "labels": row[:, 1:].copy(),
        "label_weights": np.ones((rows, length), np.float32),
    }


def gpt_outputs(made, batch, length=12):
    """Return logits, the loss, and the greedy continuation of rows of different `lengths` until
    `end`: see `t5_outputs`.
    """
    import torch

    row = torch.from_numpy(
        np.concatenate([batch["token_ids"], batch["labels"][:, -1:]], axis=1)
    ).long()
    lengths = np.linspace(len(row) + 1, row.shape[1] - 1, len(row)).astype(np.int32)

    def generate_row(i, end):
        greedy = dict(max_new_tokens=length, do_sample=False, pad_token_id=end, eos_token_id=end)
        return made.generate(row[i : i + 1, : lengths[i]], **greedy)[0, lengths[i] :].numpy()

    with torch.no_grad():
        found = made(input_ids=row, labels=row)
        hidden = made.transformer(input_ids=row).last_hidden_state
        end = int(generate_row(0, made.config.vocab_size)[length // 2])
        written = [
            np.pad(ids, (0, length - len(ids)), constant_values=end)
            for ids in (generate_row(i, end) for i in range(len(row)))
        ]
    return {
        "words": found.logits[:, :-1].numpy(),
        "hidden": hidden[:, :-1].numpy(),
        "loss": found.loss.numpy(),
        "lengths": lengths,
        "end": np.int32(end),
        "written": np.stack(written).astype(np.int32),
    }


def roberta_inputs(vocab, seed=0):
    """Return a batch of the batch spec of masked_lm; padding is id 1, which their code uses to
    count positions.
    """
    batch = bert_inputs(vocab, seed)
    batch["token_ids"] = np.where(
        batch["attention_mask"], np.maximum(batch["token_ids"], 2), 1
    ).astype(np.int32)
    return {
        key: batch[key]
        for key in ("token_ids", "attention_mask", "masked_positions", "labels", "label_weights")
    }


def albert_inputs(vocab, seed=0):
    """Return a batch of the batch spec of sentence_order."""
    batch = bert_inputs(vocab, seed)
    return {
        {
            "next_sentence_labels": "sentence_order_labels",
            "next_sentence_weights": "sentence_order_weights",
        }.get(key, key): value
        for key, value in batch.items()
    }


def electra_inputs(vocab, seed=0):
    """Return a batch of the batch spec of replaced_token."""
    batch = roberta_inputs(vocab, seed)
    chances = np.random.default_rng(seed).random(batch["labels"].shape, np.float32)
    return batch | {
        "uniforms": chances,
        "discriminator_weights": batch["attention_mask"].astype(np.float32),
    }


def electra_outputs(made, batch):
    """Return both networks' logits and hidden states, the sampled replacements, and the loss of the
    two.
    """
    import torch

    there = {
        key: torch.from_numpy(value).long() for key, value in batch.items() if key != "uniforms"
    }
    read = dict(input_ids=there["token_ids"], attention_mask=there["attention_mask"])
    labels = torch.full_like(there["token_ids"], -100).scatter(
        1, there["masked_positions"], there["labels"]
    )
    with torch.no_grad():
        found = made["generator"](**read, labels=labels)
        judged, hidden = (
            made["discriminator"](**read).logits,
            made["discriminator"].electra(**read).last_hidden_state,
        )
        shares = (
            found.logits.gather(
                1, there["masked_positions"][..., None].expand(-1, -1, found.logits.shape[-1])
            )
            .double()
            .softmax(-1)
        )
        drawn = torch.searchsorted(
            shares.cumsum(-1), torch.from_numpy(batch["uniforms"]).double()[..., None], right=True
        )[..., 0]
        filled = there["token_ids"].scatter(1, there["masked_positions"], drawn)
        replaced = torch.zeros_like(filled).scatter(
            1, there["masked_positions"], (drawn != there["labels"]).long()
        )
        loss = made["discriminator"](
            input_ids=filled, attention_mask=there["attention_mask"], labels=replaced
        ).loss
    outputs = {
        "words": found.logits,
        "replaced": judged,
        "hidden": hidden,
        "loss": found.loss + 50 * loss,
    }
    return {key: output.numpy() for key, output in outputs.items()} | {
        "drawn": drawn.numpy().astype(np.int32)
    }


def bert_outputs(made, batch):
    import torch

    there = {key: torch.from_numpy(value).long() for key, value in batch.items()}
    labels = torch.full_like(there["token_ids"], -100).scatter(
        1, there["masked_positions"], there["labels"]
    )
    with torch.no_grad():
        found = made(
            input_ids=there["token_ids"],
            attention_mask=there["attention_mask"],
            token_type_ids=there["token_type_ids"],
            labels=labels,
            next_sentence_label=there["next_sentence_labels"],
        )
        hidden = made.bert(
            input_ids=there["token_ids"],
            attention_mask=there["attention_mask"],
            token_type_ids=there["token_type_ids"],
        )
    outputs = (
        found.prediction_logits,
        found.seq_relationship_logits,
        hidden.last_hidden_state,
        found.loss,
    )
    return dict(
        zip(
            ("words", "next", "hidden", "loss"), (output.numpy() for output in outputs), strict=True
        )
    )


def roberta_outputs(made, batch):
    import torch

    there = {key: torch.from_numpy(value).long() for key, value in batch.items()}
    labels = torch.full_like(there["token_ids"], -100).scatter(
        1, there["masked_positions"], there["labels"]
    )
    read = dict(input_ids=there["token_ids"], attention_mask=there["attention_mask"])
    with torch.no_grad():
        found, hidden = made(**read, labels=labels), made.roberta(**read)
    outputs = {
        "words": found.logits,
        "hidden": hidden.last_hidden_state,
        "pooled": hidden.pooler_output,
        "loss": found.loss,
    }
    return {key: output.numpy() for key, output in outputs.items() if output is not None}


def distilbert_outputs(made, batch):
    import torch

    there = {key: torch.from_numpy(value).long() for key, value in batch.items()}
    labels = torch.full_like(there["token_ids"], -100).scatter(
        1, there["masked_positions"], there["labels"]
    )
    read = dict(input_ids=there["token_ids"], attention_mask=there["attention_mask"])
    with torch.no_grad():
        found, hidden = made(**read, labels=labels), made.distilbert(**read).last_hidden_state
    return {"words": found.logits.numpy(), "hidden": hidden.numpy(), "loss": found.loss.numpy()}


def albert_outputs(made, batch):
    import torch

    there = {key: torch.from_numpy(value).long() for key, value in batch.items()}
    labels = torch.full_like(there["token_ids"], -100).scatter(
        1, there["masked_positions"], there["labels"]
    )
    read = dict(
        input_ids=there["token_ids"],
        attention_mask=there["attention_mask"],
        token_type_ids=there["token_type_ids"],
    )
    with torch.no_grad():
        found = made(**read, labels=labels, sentence_order_label=there["sentence_order_labels"])
        hidden = made.albert(**read).last_hidden_state
    outputs = (found.prediction_logits, found.sop_logits, hidden, found.loss)
    return dict(
        zip(
            ("words", "order", "hidden", "loss"),
            (output.numpy() for output in outputs),
            strict=True,
        )
    )


def t5_outputs(made, batch, length=12):
    """Return logits, the loss, and the greedy output until `end`, a token that some row generates."""
    import torch

    there = {key: torch.from_numpy(value).long() for key, value in batch.items()}
    read = dict(
        input_ids=there["encoder_token_ids"], attention_mask=there["encoder_attention_mask"]
    )
    # Without the cache, which transformers 5 sizes by the encoder: a deeper decoder exceeds it.
    greedy = dict(
        max_new_tokens=length, num_beams=1, do_sample=False, pad_token_id=0, use_cache=False
    )
    with torch.no_grad():
        found = made(**read, labels=there["labels"])
        hidden = made.get_encoder()(**read).last_hidden_state
        endless = made.generate(**read, **greedy, eos_token_id=made.config.vocab_size)[:, 1:]
        end = endless[0, length // 2]
        written = made.generate(**read, **greedy, eos_token_id=int(end))[:, 1:]
    written = np.pad(written.numpy(), ((0, 0), (0, length - written.shape[1])))
    return {
        "words": found.logits.numpy(),
        "hidden": hidden.numpy(),
        "loss": found.loss.numpy(),
        "end": end.numpy().astype(np.int32),
        "written": written.astype(np.int32),
    }


def make_case(kind, settings, seed=0):
    """Return (config, weights, inputs, outputs) of one random model."""
    made = make_model(kind, settings, seed)
    inputs, outputs = PARTS[kind]
    batch = inputs(settings["vocab_size"], seed)
    with tempfile.TemporaryDirectory() as folder:
        config, weights = save_model(made, pathlib.Path(folder))
    return config, weights, batch, outputs(made, batch)


PARTS = {
    "bert": (bert_inputs, bert_outputs),
    "t5": (t5_inputs, t5_outputs),
    "roberta": (roberta_inputs, roberta_outputs),
    "albert": (albert_inputs, albert_outputs),
    "electra": (electra_inputs, electra_outputs),
    "marian": (marian_inputs, t5_outputs),
    "distilbert": (roberta_inputs, distilbert_outputs),
    "bart": (partial(t5_inputs, length=19), t5_outputs),
    "openai-gpt": (gpt_inputs, gpt_outputs),
    "gpt2": (gpt_inputs, gpt_outputs),
}


def compute_buckets():
    """Return T5's bucket of each distance, in three settings."""
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = np.arange(-700, 701)
    settings = {
        "both_32_128": (True, 32, 128),
        "past_32_128": (False, 32, 128),
        "both_8_20": (True, 8, 20),
    }
    return {"distances": distances.astype(np.int16)} | {
        name: T5Attention._relative_position_bucket(torch.from_numpy(distances), *setting)
        .numpy()
        .astype(np.int16)
        for name, setting in settings.items()
    }


def main():
    import torch
    import transformers
    from safetensors.numpy import save_file

    source = f"transformers {transformers.__version__}, torch {torch.__version__}"
    for name, (kind, settings) in CASES.items():
        config, *parts = make_case(kind, settings)
        named = zip(("weights", "inputs", "outputs"), parts, strict=True)
        tensors = {
            f"{part}.{key}": np.asarray(value, order="C")
            for part, values in named
            for key, value in values.items()
        }
        save_file(
            tensors,
            HERE / f"{name}.safetensors",
            metadata={"config": json.dumps(config), "source": source},
        )
    save_file(compute_buckets(), HERE / "t5_buckets.safetensors", metadata={"source": source})
    for path in sorted(HERE.glob("*.safetensors")):
        print(f"{path.stat().st_size:>9,} {path.name}")


if __name__ == "__main__":
    main()
