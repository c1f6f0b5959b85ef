"""Write given_models.json: configurations, names and shapes of tiny models as transformers saves
them, without values.

    python tests/goldens/make_given.py        (needs the extra `peers`)

tests/given.py fills the tensors. All dropout rates are 0.
"""

import json
import pathlib
import struct
import tempfile

import torch
import transformers as hf

HERE = pathlib.Path(__file__).parent
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
BERT = dict(
    vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=48, **NO_DROPOUT
)  # fmt: skip
BYTES = BERT | dict(
    vocab_size=280, max_position_embeddings=50, type_vocab_size=1, layer_norm_eps=1e-5
)
ESMC = dict(
    vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=48,
)  # fmt: skip
T5 = dict(
    vocab_size=160, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_decoder_layers=3,
    num_heads=2, decoder_start_token_id=0, dropout_rate=0.0,
)  # fmt: skip
GPT = dict(
    n_embd=16, n_layer=2, n_head=2, n_positions=48, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0
)
DISTILBERT = dict(
    vocab_size=64, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=48,
    dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
SIDES = dict(
    encoder_layers=2, decoder_layers=3, encoder_attention_heads=2, decoder_attention_heads=2,
    encoder_ffn_dim=24, decoder_ffn_dim=24,
)  # fmt: skip
WRITER = SIDES | dict(d_model=16, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
BART = WRITER | dict(
    vocab_size=280,
    max_position_embeddings=48,
    pad_token_id=1,
    bos_token_id=0,
    eos_token_id=2,
    decoder_start_token_id=2,
)
MARIAN = WRITER | dict(
    vocab_size=160, activation_function="relu", scale_embedding=True, pad_token_id=0, eos_token_id=1, forced_eos_token_id=1,
    decoder_start_token_id=0, share_encoder_decoder_embeddings=True, max_position_embeddings=1024,
)  # fmt: skip
XLNET = dict(
    vocab_size=64, d_model=16, n_layer=2, n_head=2, d_inner=24, mem_len=None, dropout=0.0, pad_token_id=0
)  # fmt: skip
REFORMER = dict(
    vocab_size=264, hidden_size=16, num_attention_heads=2, attention_head_size=6, feed_forward_size=24, is_decoder=True,
    attn_layers=["local", "lsh"], axial_pos_shape=[4, 8], axial_pos_embds_dim=[4, 12], max_position_embeddings=32,
    lsh_attn_chunk_length=32, local_attn_chunk_length=8, hidden_dropout_prob=0.0, eos_token_id=260, pad_token_id=260,
    local_attention_probs_dropout_prob=0.0,
)  # fmt: skip
MODERNBERT = dict(
    vocab_size=64, hidden_size=16, num_hidden_layers=6, num_attention_heads=2, intermediate_size=24, max_position_embeddings=48,
    local_attention=8, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3,
)  # fmt: skip
EUROBERT = dict(
    vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
    max_position_embeddings=48, pad_token_id=0, bos_token_id=2, eos_token_id=3, mask_token_id=4,
)  # fmt: skip
DEBERTA = dict(
    vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=48,
    relative_attention=True, position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p",
    position_biased_input=False, legacy=False, pad_token_id=0,
)  # fmt: skip
T5GEMMA = dict(
    vocab_size=160, hidden_size=16, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
    head_dim=4, query_pre_attn_scalar=4, max_position_embeddings=48, sliding_window=8, pad_token_id=0, bos_token_id=1, eos_token_id=1,
)  # fmt: skip
LABELS = dict(num_labels=3, classifier_dropout=0.0, problem_type="single_label_classification")
ELECTRA = BERT | dict(embedding_size=12)


class DebertaV2Model(hf.DebertaV2ForMaskedLM):
    """A discriminator with the head that the released files have, and transformers has not."""

    def __init__(self, config):
        super().__init__(config)
        del self.lm_predictions
        width = config.hidden_size
        self.mask_predictions = torch.nn.ModuleDict(
            {
                "LayerNorm": torch.nn.LayerNorm(width),
                "dense": torch.nn.Linear(width, width),
                "classifier": torch.nn.Linear(width, 1),
            }
        )


def make_models():
    """Return {name: {subfolder: model}}. The released RoBERTa files have a pooler, and T5 v1.1 two
    tables.
    """
    roberta = hf.RobertaForMaskedLM(hf.RobertaConfig(**BYTES))
    roberta.roberta = hf.RobertaModel(roberta.config, add_pooling_layer=True)
    roberta.tie_weights()
    untied = hf.T5ForConditionalGeneration(
        hf.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    )
    untied.lm_head.weight = torch.nn.Parameter(torch.zeros_like(untied.shared.weight))
    return {
        "bert": {"": hf.BertForPreTraining(hf.BertConfig(**BERT))},
        "roberta": {"": roberta},
        "albert": {"": hf.AlbertForPreTraining(hf.AlbertConfig(**BERT, embedding_size=12))},
        "electra": {
            "": hf.ElectraForPreTraining(hf.ElectraConfig(**ELECTRA)),
            "generator": hf.ElectraForMaskedLM(
                hf.ElectraConfig(
                    **ELECTRA | dict(hidden_size=8, num_attention_heads=1, intermediate_size=12)
                )
            ),
        },
        "deberta_v3": {
            "": DebertaV2Model(hf.DebertaV2Config(**DEBERTA)),
            "generator": hf.DebertaV2ForMaskedLM(
                hf.DebertaV2Config(**DEBERTA | dict(num_hidden_layers=1))
            ),
        },
        "distilbert": {"": hf.DistilBertForMaskedLM(hf.DistilBertConfig(**DISTILBERT))},
        "t5": {"": hf.T5ForConditionalGeneration(hf.T5Config(**T5))},
        "t5_v1_1": {"": untied},
        "t5gemma": {
            "": hf.T5GemmaForConditionalGeneration(
                hf.T5GemmaConfig(encoder=T5GEMMA, decoder=T5GEMMA)
            )
        },
        "bart": {"": hf.BartForConditionalGeneration(hf.BartConfig(**BART))},
        "marian": {"": hf.MarianMTModel(hf.MarianConfig(**MARIAN))},
        "xlnet": {"": hf.XLNetLMHeadModel(hf.XLNetConfig(**XLNET))},
        "reformer": {"": hf.ReformerModelWithLMHead(hf.ReformerConfig(**REFORMER))},
        "modernbert": {"": hf.ModernBertForMaskedLM(hf.ModernBertConfig(**MODERNBERT))},
        "modernbert-decoder": {
            "": hf.ModernBertDecoderForCausalLM(hf.ModernBertDecoderConfig(**MODERNBERT))
        },
        "esm": {
            "": hf.EsmForMaskedLM(
                hf.EsmConfig(
                    **BERT, position_embedding_type="rotary", token_dropout=True, mask_token_id=4
                )
            )
        },
        "esmc": {"": hf.EsmcForMaskedLM(hf.EsmcConfig(**ESMC))},
        "eurobert": {"": hf.EuroBertForMaskedLM(hf.EuroBertConfig(**EUROBERT))},
        "gpt": {"": hf.OpenAIGPTLMHeadModel(hf.OpenAIGPTConfig(**GPT, vocab_size=64))},
        "gpt2": {
            "": hf.GPT2LMHeadModel(
                hf.GPT2Config(**GPT, vocab_size=264, n_inner=20, bos_token_id=260, eos_token_id=260)
            )
        },
        "bert_classifier": {"": hf.BertForSequenceClassification(hf.BertConfig(**BERT, **LABELS))},
        "albert_classifier": {
            "": hf.AlbertForSequenceClassification(
                hf.AlbertConfig(
                    **BERT, embedding_size=12, num_labels=3, classifier_dropout_prob=0.0
                )
            )
        },
        "roberta_classifier": {
            "": hf.RobertaForSequenceClassification(hf.RobertaConfig(**BYTES, **LABELS))
        },
        "electra_classifier": {
            "": hf.ElectraForSequenceClassification(hf.ElectraConfig(**ELECTRA, **LABELS))
        },
        "distilbert_classifier": {
            "": hf.DistilBertForSequenceClassification(
                hf.DistilBertConfig(**DISTILBERT, num_labels=3, seq_classif_dropout=0.0)
            )
        },
    }


def describe_model(model) -> dict:
    """Return {"config": contents of config.json, "tensors": {name: shape}} of a model as it is
    saved.
    """
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        content = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    config.pop("transformers_version")
    shapes = {name: header[name]["shape"] for name in sorted(header) if name != "__metadata__"}
    if config["model_type"] == "esm":
        # transformers 5 gives some of its own names of older files to what it saves.
        for saved, own in (
            ("LayerNorm.gamma", "LayerNorm.weight"),
            ("LayerNorm.beta", "LayerNorm.bias"),
            ("encoder.layer.*.attention.self.rotary_embeddings", "rotary_embeddings"),
        ):
            shapes = {name.replace(saved, own): shape for name, shape in shapes.items()}
    return {"config": config, "tensors": shapes}


def main():
    hf.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    given = json.loads(
        (HERE / "given_models.json").read_text()
    )  # make_transformer_xl.py adds to it
    given |= {
        name: {part: describe_model(model) for part, model in parts.items()}
        for name, parts in make_models().items()
    }
    lines = [f"{json.dumps(name)}: {json.dumps(parts)}" for name, parts in given.items()]
    (HERE / "given_models.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
