"""GPT-BERT (Charpentier and Samuel 2024) for Hugging Face transformers, written by Cloze's authors.

    model = AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True)
    model = AutoModelForMaskedLM.from_pretrained(FOLDER, trust_remote_code=True)
    model = AutoModel.from_pretrained(FOLDER, trust_remote_code=True)  # last hidden states

All three have the same weights. The first attends to the tokens before, the others to both sides.

The network predicts a masked token at the position before it, so the logits of both models at
position i are of token i + 1. With `predicts_next=False`, as an argument of `from_pretrained` or in
config.json, they are of token i itself, as `pipeline("fill-mask")` expects; those of the first
token are then all 0.

B batch   L length   R buckets of distances   D width   H heads   K head width
"""

# pyright: reportMissingImports=false
import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, layer_norm
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput, MaskedLMOutput


class GptBertConfig(PretrainedConfig):
    """The sizes; the defaults are of the larger model of the paper."""

    model_type = "gpt_bert"

    def __init__(
        self,
        vocab_size=16384,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=2560,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        layer_norm_eps=1e-5,
        max_position_embeddings=512,
        position_bucket_size=32,
        max_distance=None,  # max_position_embeddings by default
        predicts_next=True,
        use_cache=False,
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
        self.position_bucket_size = position_bucket_size
        self.max_distance = max_distance or max_position_embeddings
        self.predicts_next = predicts_next
        self.use_cache = use_cache
        super().__init__(**settings)


def normalize(x, epsilon):
    """Return a layer norm without parameters."""
    return layer_norm(x, x.shape[-1:], eps=epsilon)


def find_buckets(length, config, device):
    """Return the bucket of each query and key, int64 [L, L], from 0 to 2 * buckets - 2."""
    position = torch.arange(length, device=device)
    distance = position[:, None] - position
    half = config.position_bucket_size // 2
    far = distance.abs().clamp(half, config.max_distance - 1).double()
    share = torch.log(far / half) / math.log((config.max_distance - 1) / half)
    longer = half + torch.ceil(torch.round(share * (half - 1), decimals=9))
    bucket = torch.where(distance.abs() <= half, distance, distance.sign() * longer.long())
    return bucket + config.position_bucket_size - 1


class Attention(nn.Module):
    """Attention by content and distance, with gated values."""

    def __init__(self, config):
        super().__init__()
        self.config, width = config, config.hidden_size
        self.query, self.key, self.value, self.gate, self.out = (
            nn.Linear(width, width) for _ in range(5)
        )
        self.drop = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, x, visible, table, bucket):
        """Return [B, L, D]; visible: bool [B, 1, L, L]; table: [R, D]; bucket: [L, L]."""
        epsilon, num_heads = self.config.layer_norm_eps, self.config.num_attention_heads

        def split_heads(y):
            return y.unflatten(-1, (num_heads, -1)).transpose(-3, -2)  # [..., H, L, K]

        y, table = normalize(x, epsilon), self.drop(table)
        query, key, value = (split_heads(f(y)) for f in (self.query, self.key, self.value))
        # The terms of each query and each key for each bucket, [B, H, L, R].
        of_query = query @ split_heads(self.key(table)).mT
        of_key = key @ split_heads(self.query(table)).mT
        pairs = bucket.expand(*query.shape[:2], -1, -1)
        scores = query @ key.mT + of_query.gather(-1, pairs) + of_key.gather(-1, pairs.mT).mT
        scores = scores.float() / math.sqrt(3 * query.shape[-1])
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        weights = self.drop(scores.softmax(-1).to(value.dtype))
        context = (weights @ value).transpose(1, 2).flatten(2) * gelu(self.gate(y))
        return self.out(normalize(context, epsilon))


class FeedForward(nn.Module):
    """A gated feed-forward network with a norm of its hidden layer."""

    def __init__(self, config):
        super().__init__()
        self.epsilon = config.layer_norm_eps
        self.gate, self.up = (
            nn.Linear(config.hidden_size, config.intermediate_size, bias=False) for _ in range(2)
        )
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        """Return [B, L, D]."""
        y = normalize(x, self.epsilon)
        hidden = gelu(self.gate(y), approximate="tanh") * self.up(y)
        return self.down(normalize(hidden, self.epsilon))


class Layer(nn.Module):
    """Two sublayers; after each, a learned sum of all outputs so far is read on."""

    def __init__(self, config, number):
        super().__init__()
        self.attention, self.mlp = Attention(config), FeedForward(config)
        self.attention_mix = nn.Parameter(torch.zeros(2 * number + 2))
        self.mlp_mix = nn.Parameter(torch.zeros(2 * number + 3))
        self.drop = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x, outputs, visible, table, bucket):
        """Return the last sum [B, L, D]; `outputs` gets two more."""
        outputs.append(x + self.drop(self.attention(x, visible, table, bucket)))
        x = sum(weight * y for weight, y in zip(self.attention_mix, outputs))
        outputs.append(x + self.drop(self.mlp(x)))
        return sum(weight * y for weight, y in zip(self.mlp_mix, outputs))


class Head(nn.Module):
    """Logits by the similarity of a transformed state to each embedding."""

    def __init__(self, config):
        super().__init__()
        self.epsilon = config.layer_norm_eps
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x, embedding):
        """Return [B, L, V]; embedding: [V, D]."""
        hidden = gelu(self.transform(normalize(x, self.epsilon)))
        return normalize(hidden, self.epsilon) @ embedding.T + self.bias


class GptBertModel(PreTrainedModel):
    """The network without its head, which attends to both sides."""

    config_class = GptBertConfig
    base_model_prefix = ""
    is_causal = False
    _keys_to_ignore_on_load_unexpected = [r"^head\."]

    def __init__(self, config):
        super().__init__(config)
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        num_buckets = 2 * config.position_bucket_size - 1
        self.relative_embedding = nn.Embedding(num_buckets, config.hidden_size)
        self.relative_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_hidden_layers))
        self.drop = nn.Dropout(config.hidden_dropout_prob)
        self.add_head()
        self.post_init()

    def add_head(self):
        """Make the head of a model that has one."""

    def _init_weights(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            std = math.sqrt(2 / (5 * self.config.hidden_size))
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, Layer):
            for mix in (module.attention_mix, module.mlp_mix):
                nn.init.zeros_(mix[:-1])
                nn.init.ones_(mix[-1:])
        elif isinstance(module, Head):
            nn.init.zeros_(module.bias)

    def get_input_embeddings(self):
        """Return the table of tokens."""
        return self.token_embedding

    def set_input_embeddings(self, value):
        """Replace the table of tokens."""
        self.token_embedding = value

    def run_layers(self, input_ids, attention_mask=None):
        """Return the last hidden states [B, L, D]."""
        length, device = input_ids.shape[1], input_ids.device
        visible = torch.ones(1, 1, length, length, dtype=torch.bool, device=device)
        if self.is_causal:
            visible = visible.tril()
        if attention_mask is not None:
            visible = visible & attention_mask[:, None, None, :].bool()
        table = self.relative_norm(self.relative_embedding.weight)
        bucket = find_buckets(length, self.config, device)
        x = self.drop(normalize(self.token_embedding(input_ids), self.config.layer_norm_eps))
        outputs = [x]
        for layer in self.layers:
            x = layer(x, outputs, visible, table, bucket)
        return x

    def forward(self, input_ids, attention_mask=None, **unused):
        """Return the last hidden states."""
        return BaseModelOutput(last_hidden_state=self.run_layers(input_ids, attention_mask))


class GptBertWithHead(GptBertModel):
    """The network with its head."""

    _keys_to_ignore_on_load_unexpected = None
    output_class = MaskedLMOutput

    def add_head(self):
        """Make the head."""
        self.head = Head(self.config)

    def forward(self, input_ids, attention_mask=None, labels=None, **unused):
        """Return logits [B, L, V] and, with labels, the mean loss.

        labels: int64 [B, L], the id of each token that is scored, -100 elsewhere.
        """
        states = self.run_layers(input_ids, attention_mask)
        logits = self.head(states, self.token_embedding.weight)
        loss = None
        if labels is not None:
            loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        if not self.config.predicts_next:
            logits = torch.cat([torch.zeros_like(logits[:, :1]), logits[:, :-1]], dim=1)
        return self.output_class(loss=loss, logits=logits)


class GptBertForMaskedLM(GptBertWithHead):
    """Predicts masked tokens; see above for the position of their logits."""


class GptBertForCausalLM(GptBertWithHead, GenerationMixin):
    """Predicts the next token. Generation has no cache, so it reads the whole text at each step."""

    is_causal = True
    output_class = CausalLMOutput

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **unused):
        """Return the arguments of a step of `generate`."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}
