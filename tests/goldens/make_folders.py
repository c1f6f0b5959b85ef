"""Write the folders hf_*: tiny random models as transformers saves them, and hf_outputs.npz with
what some of them compute.

python tests/goldens/make_folders.py        (needs the extra `peers`)
"""

import pathlib
import shutil

import numpy as np
import torch
import transformers
from tokenizers import pre_tokenizers

HERE = pathlib.Path(__file__).parent
WORDS = [
    "the",
    "a",
    "cloze",
    "is",
    "test",
    "in",
    "which",
    "words",
    "are",
    "left",
    "out",
    "of",
    "text",
    "reader",
    "gaps",
    ".",
]
LETTERS = "abcdefghijklmnopqrstuvwxyz."
BERT = dict(
    vocab_size=48,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=24,
)
T5 = dict(
    vocab_size=150,
    d_model=8,
    d_kv=3,
    d_ff=12,
    num_layers=2,
    num_decoder_layers=3,
    num_heads=2,
    decoder_start_token_id=0,
)
GPT = dict(n_embd=8, n_layer=2, n_head=2, n_positions=24)
ROBERTA = BERT | dict(
    vocab_size=280, max_position_embeddings=26, type_vocab_size=1, layer_norm_eps=1e-5
)

ALBERT = BERT | dict(embedding_size=6, vocab_size=56)


def make_models():
    """Return {folder: (model, seed)}. transformers 5 ties every T5 that it creates, so an untied
    one is loaded from a checkpoint.
    """
    untied = transformers.T5ForConditionalGeneration(
        transformers.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    )
    untied.lm_head.weight = torch.nn.Parameter(torch.zeros_like(untied.shared.weight))
    roberta = transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(**ROBERTA, attn_implementation="eager")
    )
    roberta.roberta = transformers.RobertaModel(
        roberta.config, add_pooling_layer=True
    )  # as the released files have it
    roberta.tie_weights()
    return {
        "hf_bert": (
            transformers.BertForPreTraining(
                transformers.BertConfig(**BERT, attn_implementation="eager")
            ),
            0,
        ),
        "hf_t5": (transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)), 1),
        "hf_t5_v1_1": (untied, 2),
        "hf_roberta": (roberta, 3),
        "hf_albert": (
            transformers.AlbertForPreTraining(
                transformers.AlbertConfig(**ALBERT, attn_implementation="eager")
            ),
            4,
        ),
        "hf_gpt": (
            transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**GPT, vocab_size=64)),
            3,
        ),
        "hf_gpt2": (
            transformers.GPT2LMHeadModel(
                transformers.GPT2Config(
                    **GPT, vocab_size=264, n_inner=20, bos_token_id=260, eos_token_id=260
                )
            ),
            4,
        ),
    }


def randomize_model(model, seed):
    """Draw random values for all parameters, so that no two tensors can be confused."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
            if ("norm" in name.lower() or ".ln_" in name) and name.endswith("weight"):
                parameter.add_(1.0)
    return model.eval()


def make_rows(size):
    """Return ids [3, 9] with rows of different lengths, and their attention mask."""
    ids = np.random.default_rng(0).integers(5, size, (3, 9))
    valid = np.arange(9) < np.array([[9], [6], [3]])
    return np.where(valid, ids, 0), valid


def compute_outputs(name, model):
    ids, valid = make_rows(model.config.vocab_size)
    inputs = {
        "input_ids": torch.tensor(ids),
        "attention_mask": torch.tensor(valid.astype(np.int64)),
    }
    with torch.no_grad():
        if name in ("hf_bert", "hf_albert"):
            segments = (np.arange(9) >= 4).astype(np.int64)[None].repeat(3, 0) * valid
            out = model(**inputs, token_type_ids=torch.tensor(segments))
            return {
                "segments": segments,
                "words": out.prediction_logits.numpy(),
                "next": (
                    out.seq_relationship_logits if name == "hf_bert" else out.sop_logits
                ).numpy(),
            }
        if name == "hf_roberta":
            return {
                "words": model(
                    input_ids=torch.tensor(np.where(valid, ids, 1)),
                    attention_mask=inputs["attention_mask"],
                ).logits.numpy()
            }
        targets, _ = make_rows(model.config.vocab_size)
        targets = np.roll(targets, 2, axis=1)[:, :7]
        out = model(**inputs, labels=torch.tensor(targets))
        written = model.generate(**inputs, max_new_tokens=6, do_sample=False, use_cache=False)
        return {
            "targets": targets,
            "words": out.logits.numpy(),
            "loss": out.loss.numpy(),
            "written": written.numpy()[:, 1:],
        }


def make_tokenizer(name):
    if name == "hf_bert":
        pieces = [
            "[PAD]",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "[MASK]",
            *WORDS,
            *"bcdefghijklmnopqrstuvwxyz",
            "##s",
        ]
        return transformers.BertTokenizer(vocab={piece: i for i, piece in enumerate(pieces)})
    if name == "hf_roberta":
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *letters, "Ġt", "Ġth", "he", "<mask>"]
        merges = [("Ġ", "t"), ("Ġt", "h"), ("h", "e")]
        return transformers.RobertaTokenizer(
            vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges
        )
    if name == "hf_gpt":
        pieces = [
            "<unk>",
            *LETTERS,
            *(f"{letter}</w>" for letter in LETTERS),
            "th",
            "the</w>",
            "ou",
            "ou</w>",
        ]
        merges = [("t", "h"), ("th", "e</w>"), ("o", "u"), ("o", "u</w>")]
        return transformers.OpenAIGPTTokenizer(
            vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges
        )
    if name == "hf_gpt2":
        pieces = [
            *sorted(pre_tokenizers.ByteLevel.alphabet()),
            "th",
            "Ġth",
            "Ġthe",
            "ou",
            "<|endoftext|>",
        ]
        merges = [("t", "h"), ("Ġ", "th"), ("Ġth", "e"), ("o", "u")]
        return transformers.GPT2Tokenizer(
            vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges
        )
    specials = (
        ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
        if name == "hf_albert"
        else ["<pad>", "</s>", "<unk>"]
    )
    pieces = [(piece, 0.0) for piece in specials] + [("▁", -3.0)]
    pieces += [(f"▁{word}", -2.0 - i / 8) for i, word in enumerate(WORDS)]
    pieces += [(letter, -6.0 - i / 8) for i, letter in enumerate(LETTERS)]
    if name == "hf_albert":
        return transformers.AlbertTokenizer(vocab=pieces)
    pieces += [(f"<extra_id_{i}>", 0.0) for i in reversed(range(100))]
    return transformers.T5Tokenizer(vocab=pieces)


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    outputs = {}
    for name, (model, seed) in make_models().items():
        randomize_model(model, seed)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        make_tokenizer(name).save_pretrained(folder)
        if name in (
            "hf_gpt",
            "hf_gpt2",
        ):  # these outputs are in gpt.safetensors and gpt2.safetensors
            continue
        ids, valid = make_rows(model.config.vocab_size)
        outputs |= {
            f"{name}/{key}": value
            for key, value in {"ids": ids, "valid": valid, **compute_outputs(name, model)}.items()
        }
    np.savez_compressed(HERE / "hf_outputs.npz", **outputs)


if __name__ == "__main__":
    main()
