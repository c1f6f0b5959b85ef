"""Music Transformer (Huang et al. 2018) for Hugging Face transformers, written by Cloze's authors.

    model = AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True)
    model = AutoModel.from_pretrained(FOLDER, trust_remote_code=True)  # last hidden states

Ids are events of a piece. Padding is allowed on the right.

B batch   L length   R distances with an embedding   D width   H heads   K head width   V vocabulary
"""

# pyright: reportMissingImports=false
import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy, relu
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput


class MusicTransformerConfig(PretrainedConfig):
    """The sizes; the defaults are of the paper's model of piano performances."""

    model_type = "music_transformer"

    def __init__(
        self,
        vocab_size=390,
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=8,
        head_dim=64,
        intermediate_size=1024,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        layer_norm_eps=1e-5,
        relative=True,
        max_distance=1024,
        use_cache=False,
        **settings,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.head_dim = head_dim
        self.intermediate_size = intermediate_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.layer_norm_eps = layer_norm_eps
        self.relative = relative
        self.max_distance = max_distance
        self.use_cache = use_cache
        super().__init__(**settings)


def make_sinusoids(length, width, device):
    """Return the encodings of positions [L, D]: all sines, then all cosines."""
    rate = 10_000.0 ** (-torch.arange(0, width, 2, device=device, dtype=torch.float64) / width)
    angle = torch.arange(length, device=device)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


class Attention(nn.Module):
    """Causal attention by content and distance."""

    def __init__(self, config):
        super().__init__()
        self.config, width = config, config.hidden_size
        inner = config.num_attention_heads * config.head_dim
        self.query, self.key, self.value = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, width, bias=False)
        self.drop = nn.Dropout(config.attention_probs_dropout_prob)
        if config.relative:
            shape = config.max_distance, config.num_attention_heads, config.head_dim
            self.relative_embedding = nn.Parameter(torch.zeros(shape))

    def forward(self, x):
        """Return [B, L, D]."""
        query, key, value = (
            linear(x).unflatten(-1, (self.config.num_attention_heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        position = torch.arange(x.shape[1], device=x.device)
        distance = position[:, None] - position
        scores = query @ key.mT
        if self.config.relative:
            table = self.relative_embedding.permute(1, 2, 0)  # [H, K, R]
            index = distance.clamp(0, self.config.max_distance - 1).expand_as(scores)
            scores = scores + (query @ table).gather(-1, index)
        scores = scores.float() / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(distance < 0, torch.finfo(scores.dtype).min)
        weights = self.drop(scores.softmax(-1).to(value.dtype))
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a norm before it."""

    def __init__(self, config):
        super().__init__()
        width, epsilon = config.hidden_size, config.layer_norm_eps
        self.attention = Attention(config)
        self.attention_norm, self.mlp_norm = (nn.LayerNorm(width, epsilon) for _ in range(2))
        self.up = nn.Linear(width, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, width)
        self.drop = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x):
        """Return [B, L, D]."""
        x = x + self.drop(self.attention(self.attention_norm(x)))
        hidden = self.drop(relu(self.up(self.mlp_norm(x))))
        return x + self.drop(self.down(hidden))


class MusicTransformerModel(PreTrainedModel):
    """The network without its output, which is the table of its input."""

    config_class = MusicTransformerConfig
    base_model_prefix = ""

    def __init__(self, config):
        super().__init__(config)
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.drop = nn.Dropout(config.hidden_dropout_prob)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.hidden_size**-0.5)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, Attention) and self.config.relative:
            nn.init.normal_(module.relative_embedding, std=self.config.head_dim**-0.5)

    def get_input_embeddings(self):
        """Return the table of events."""
        return self.token_embedding

    def set_input_embeddings(self, value):
        """Replace the table of events."""
        self.token_embedding = value

    def run_layers(self, input_ids):
        """Return the last hidden states [B, L, D]."""
        width = self.config.hidden_size
        x = self.token_embedding(input_ids) * math.sqrt(width)
        x = self.drop(x + make_sinusoids(x.shape[1], width, x.device).type_as(x))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def forward(self, input_ids, attention_mask=None, **unused):
        """Return the last hidden states."""
        return BaseModelOutput(last_hidden_state=self.run_layers(input_ids))


class MusicTransformerForCausalLM(MusicTransformerModel, GenerationMixin):
    """Predicts the next event. Generation has no cache: each step reads the whole piece."""

    def forward(self, input_ids, attention_mask=None, labels=None, **unused):
        """Return logits [B, L, V] of the next events and, with labels, the mean loss.

        labels: int64 [B, L], the ids, -100 where an event is not scored.
        """
        logits = self.run_layers(input_ids) @ self.token_embedding.weight.T
        loss = None
        if labels is not None:
            loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **unused):
        """Return the arguments of a step of `generate`."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}
