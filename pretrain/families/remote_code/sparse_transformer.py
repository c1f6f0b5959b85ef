"""The Sparse Transformer (Child et al. 2019) for Hugging Face transformers, by Cloze's authors.

    model = AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True)
    model = AutoModel.from_pretrained(FOLDER, trust_remote_code=True)  # last hidden states

The patterns are masks of full attention here: the same logits, and the memory of full attention.
Padding is allowed on the right.

B batch   L length   D width   H heads   K head width   S stride   V vocabulary
"""

# pyright: reportMissingImports=false
import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput


class SparseTransformerConfig(PretrainedConfig):
    """The sizes; the defaults are of the paper's model of enwik8."""

    model_type = "sparse_transformer"

    def __init__(
        self,
        vocab_size=256,
        hidden_size=512,
        num_hidden_layers=30,
        num_attention_heads=8,
        intermediate_size=2048,
        hidden_dropout_prob=0.4,
        layer_norm_eps=1e-5,
        max_position_embeddings=12288,
        pattern="fixed",  # or strided
        stride=128,
        summary=32,
        subblocks=4,
        merged=True,
        use_cache=False,
        **settings,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.layer_norm_eps = layer_norm_eps
        self.max_position_embeddings = max_position_embeddings
        self.pattern = pattern
        self.stride = stride
        self.summary = summary
        self.subblocks = subblocks
        self.merged = merged
        self.use_cache = use_cache
        super().__init__(**settings)


def find_visible(config, length, device):
    """Return which keys a query reads by the first and by the second pattern, bool [H, L, L]."""
    position = torch.arange(length, device=device)
    head = torch.arange(config.num_attention_heads, device=device)[:, None, None]
    query, key, stride = position[:, None], position, config.stride
    if config.pattern == "strided":
        first, second = query - key <= stride, (query - key) % stride == 0
    else:
        before_end = stride - 1 - key % stride
        first = query // stride == key // stride
        second = before_end // config.summary == head % config.subblocks
        second = second | (query == key)
    causal = (key <= query).expand(len(head), -1, -1)
    return first & causal, second & causal


class Attention(nn.Module):
    """Attention to the keys of a pattern."""

    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.query, self.key, self.value, self.out = (
            nn.Linear(config.hidden_size, config.hidden_size) for _ in range(4)
        )

    def forward(self, x, visible):
        """Return [B, L, D]; visible: bool [H, L, L]."""
        query, key, value = (
            linear(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        scores = (query @ key.mT).float() / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        return self.out((scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2).flatten(2))


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

    def forward(self, x, visible):
        """Return [B, L, D]."""
        x = x + self.drop(self.attention(self.attention_norm(x), visible))
        hidden = self.up(self.mlp_norm(x))
        return x + self.drop(self.down(hidden * torch.sigmoid(1.702 * hidden)))


class SparseTransformerModel(PreTrainedModel):
    """The network without its output."""

    config_class = SparseTransformerConfig
    base_model_prefix = ""
    _keys_to_ignore_on_load_unexpected = [r"^head\."]

    def __init__(self, config):
        super().__init__(config)
        width, rows = config.hidden_size, math.ceil(config.max_position_embeddings / config.stride)
        self.token_embedding = nn.Embedding(config.vocab_size, width)
        self.row_embedding = nn.Embedding(rows, width)
        self.column_embedding = nn.Embedding(config.stride, width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(width, config.layer_norm_eps)
        self.add_head()
        self.post_init()

    def add_head(self):
        """Make the output of a model that has one."""

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.125 / math.sqrt(module.in_features))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.125 / math.sqrt(self.config.hidden_size))
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)

    def get_input_embeddings(self):
        """Return the table of tokens."""
        return self.token_embedding

    def set_input_embeddings(self, value):
        """Replace the table of tokens."""
        self.token_embedding = value

    def run_layers(self, input_ids):
        """Return the last hidden states [B, L, D]."""
        length, device = input_ids.shape[1], input_ids.device
        position = torch.arange(length, device=device)
        x = self.token_embedding(input_ids) + self.row_embedding(position // self.config.stride)
        x = x + self.column_embedding(position % self.config.stride)
        first, second = find_visible(self.config, length, device)
        patterns = [first | second] if self.config.merged else [first, second]
        for number, layer in enumerate(self.layers):
            x = layer(x, patterns[number % len(patterns)])
        return self.norm(x)

    def forward(self, input_ids, attention_mask=None, **unused):
        """Return the last hidden states."""
        return BaseModelOutput(last_hidden_state=self.run_layers(input_ids))


class SparseTransformerForCausalLM(SparseTransformerModel, GenerationMixin):
    """Predicts the next token. Generation has no cache, so it reads the whole text at each step."""

    _keys_to_ignore_on_load_unexpected = None

    def add_head(self):
        """Make the output."""
        self.head = nn.Linear(self.config.hidden_size, self.config.vocab_size, bias=False)

    def forward(self, input_ids, attention_mask=None, labels=None, **unused):
        """Return logits [B, L, V] of the next tokens and, with labels, the mean loss.

        labels: int64 [B, L], the ids, -100 where a token is not scored.
        """
        logits = self.head(self.run_layers(input_ids))
        loss = None
        if labels is not None:
            loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **unused):
        """Return the arguments of a step of `generate`."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}
