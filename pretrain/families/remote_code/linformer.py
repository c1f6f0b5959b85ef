"""Linformer (Wang et al. 2020) for Hugging Face transformers, written by Cloze's authors.

    model = AutoModelForMaskedLM.from_pretrained(FOLDER, trust_remote_code=True)
    model = AutoModel.from_pretrained(FOLDER, trust_remote_code=True)  # states and pooled [CLS]

B batch   L length   N longest row   R rank   D width   H heads   K head width
"""

# pyright: reportMissingImports=false
import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling, MaskedLMOutput


class LinformerConfig(PretrainedConfig):
    """The sizes; the defaults are RoBERTa-base's with rows of 512, projected to 256."""

    model_type = "linformer"

    def __init__(
        self,
        vocab_size=50265,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        layer_norm_eps=1e-5,
        max_position_embeddings=512,
        type_vocab_size=1,
        rank=256,
        sharing="layerwise",  # or none, headwise, key-value
        **settings,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.layer_norm_eps = layer_norm_eps
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.rank = rank
        self.sharing = sharing
        super().__init__(**settings)


def make_projection(config, *heads):
    """Return a matrix [N, R], or one for each head [H, N, R], before it is drawn."""
    return nn.Parameter(torch.zeros(*heads, config.max_position_embeddings, config.rank))


class Attention(nn.Module):
    """Attention to R mixtures of the positions of a row."""

    def __init__(self, config):
        super().__init__()
        self.num_heads, self.sharing = config.num_attention_heads, config.sharing
        self.query, self.key, self.value, self.out = (
            nn.Linear(config.hidden_size, config.hidden_size) for _ in range(4)
        )
        self.drop = nn.Dropout(config.attention_probs_dropout_prob)
        if self.sharing == "none":
            self.head_key_projection = make_projection(config, self.num_heads)
            self.head_value_projection = make_projection(config, self.num_heads)
        elif self.sharing == "headwise":
            self.key_projection, self.value_projection = (make_projection(config) for _ in range(2))
        elif self.sharing == "key-value":
            self.projection = make_projection(config)

    def split_heads(self, x):
        """Return [B, H, L, K] of [B, L, D]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def mix_per_head(self, linear, x, projection):
        """Return E_h x W_h + b_h of each head h, [B, H, R, K]."""
        of_heads = self.split_heads(x @ linear.weight.T)
        mixed = torch.einsum("bhlk,hlr->bhrk", of_heads, projection[:, : x.shape[1]])
        return mixed + linear.bias.unflatten(0, (self.num_heads, 1, -1))

    def forward(self, x, padding, shared):
        """Return [B, L, D]; padding: bool [B, L]; shared: the matrix of all layers, or None."""
        source = x.masked_fill(padding[..., None], 0.0)
        if self.sharing == "none":
            key = self.mix_per_head(self.key, source, self.head_key_projection)
            value = self.mix_per_head(self.value, source, self.head_value_projection)
        else:
            of_keys, of_values = {
                "headwise": lambda: (self.key_projection, self.value_projection),
                "key-value": lambda: (self.projection, self.projection),
                "layerwise": lambda: (shared, shared),
            }[self.sharing]()
            mixtures = (
                torch.einsum("bld,lr->brd", source, matrix[: x.shape[1]])
                for matrix in (of_keys, of_values)
            )
            key, value = (
                self.split_heads(linear(mixture))
                for linear, mixture in zip((self.key, self.value), mixtures)
            )
        query = self.split_heads(self.query(x))
        scores = (query @ key.mT).float() / math.sqrt(query.shape[-1])
        weights = self.drop(scores.softmax(-1).to(value.dtype))
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a norm after its sum."""

    def __init__(self, config):
        super().__init__()
        width, epsilon = config.hidden_size, config.layer_norm_eps
        self.attention = Attention(config)
        self.attention_norm, self.mlp_norm = (nn.LayerNorm(width, epsilon) for _ in range(2))
        self.up = nn.Linear(width, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, width)
        self.drop = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x, padding, shared):
        """Return [B, L, D]."""
        x = self.attention_norm(x + self.drop(self.attention(x, padding, shared)))
        return self.mlp_norm(x + self.drop(self.down(gelu(self.up(x)))))


class Head(nn.Module):
    """Logits by the similarity of a transformed state to each embedding."""

    def __init__(self, config):
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x, embedding):
        """Return [B, L, V]; embedding: [V, D]."""
        return self.norm(gelu(self.transform(x))) @ embedding.T + self.bias


class LinformerModel(PreTrainedModel):
    """The encoder and its pooler."""

    config_class = LinformerConfig
    base_model_prefix = ""
    _keys_to_ignore_on_load_unexpected = [r"^head\."]

    def __init__(self, config):
        super().__init__(config)
        width = config.hidden_size
        self.token_embedding = nn.Embedding(config.vocab_size, width)
        self.position_embedding = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embedding = nn.Embedding(config.type_vocab_size, width)
        self.norm = nn.LayerNorm(width, config.layer_norm_eps)
        self.drop = nn.Dropout(config.hidden_dropout_prob)
        self.projection = make_projection(config) if config.sharing == "layerwise" else None
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.add_head()
        self.post_init()

    def add_head(self):
        """Make what reads the states."""
        self.pooler = nn.Linear(self.config.hidden_size, self.config.hidden_size)

    def _init_weights(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, Head):
            nn.init.zeros_(module.bias)
        bound = math.sqrt(3 / (self.config.max_position_embeddings + self.config.rank))
        for name, leaf in module.named_parameters(recurse=False):
            if name.endswith("projection"):
                nn.init.uniform_(leaf, -bound, bound)

    def get_input_embeddings(self):
        """Return the table of tokens."""
        return self.token_embedding

    def set_input_embeddings(self, value):
        """Replace the table of tokens."""
        self.token_embedding = value

    def run_layers(self, input_ids, attention_mask=None, token_type_ids=None):
        """Return the last hidden states [B, L, D]."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        position = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.token_embedding(input_ids) + self.position_embedding(position)
        x = self.drop(self.norm(x + self.token_type_embedding(token_type_ids)))
        for layer in self.layers:
            x = layer(x, ~attention_mask.bool(), self.projection)
        return x

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, **unused):
        """Return the last hidden states, and the pooled state of the first token."""
        states = self.run_layers(input_ids, attention_mask, token_type_ids)
        pooled = torch.tanh(self.pooler(states[:, 0]))
        return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=pooled)


class LinformerForMaskedLM(LinformerModel):
    """Predicts masked tokens."""

    _keys_to_ignore_on_load_unexpected = [r"^pooler\."]

    def add_head(self):
        """Make the head."""
        self.head = Head(self.config)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, labels=None, **unused):
        """Return logits [B, L, V] and, with labels, the mean loss.

        labels: int64 [B, L], the id of each token that is scored, -100 elsewhere.
        """
        states = self.run_layers(input_ids, attention_mask, token_type_ids)
        logits = self.head(states, self.token_embedding.weight)
        loss = None
        if labels is not None:
            loss = cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        return MaskedLMOutput(loss=loss, logits=logits)
