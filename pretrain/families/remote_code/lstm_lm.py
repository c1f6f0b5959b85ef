"""An LSTM language model (Zaremba et al. 2014) for Hugging Face transformers, by Cloze's authors.

    model = AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True)
    model = AutoModel.from_pretrained(FOLDER, trust_remote_code=True)  # last hidden states

A text begins with a state of zeros. Padding is allowed on the right.

B batch   L length   D width   V vocabulary
"""

# pyright: reportMissingImports=false
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput


class LstmLmConfig(PretrainedConfig):
    """The sizes; the defaults are of the paper's medium model."""

    model_type = "lstm_lm"

    def __init__(
        self,
        vocab_size=10000,
        hidden_size=650,
        num_hidden_layers=2,
        hidden_dropout_prob=0.5,
        forget_bias=0.0,
        tie_word_embeddings=False,
        use_cache=False,
        **settings,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.hidden_dropout_prob = hidden_dropout_prob
        self.forget_bias = forget_bias  # is a part of bias_hh_l0
        self.use_cache = use_cache
        settings["tie_word_embeddings"] = tie_word_embeddings
        super().__init__(**settings)


class LstmLmModel(PreTrainedModel):
    """The network without its output."""

    config_class = LstmLmConfig
    base_model_prefix = ""
    _keys_to_ignore_on_load_unexpected = [r"^head"]

    def __init__(self, config):
        super().__init__(config)
        width = config.hidden_size
        self.token_embedding = nn.Embedding(config.vocab_size, width)
        self.layers = nn.ModuleList(
            nn.LSTM(width, width, batch_first=True) for _ in range(config.num_hidden_layers)
        )
        self.drop = nn.Dropout(config.hidden_dropout_prob)
        self.add_head()
        self.post_init()

    def add_head(self):
        """Make the output of a model that has one."""

    def _init_weights(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.05)
        elif isinstance(module, nn.LSTM):
            width = self.config.hidden_size
            for name, leaf in module.named_parameters():
                if name.startswith("weight"):
                    nn.init.uniform_(leaf, -(width**-0.5), width**-0.5)
                else:
                    nn.init.zeros_(leaf)
                if name == "bias_hh_l0":
                    nn.init.constant_(leaf[width : 2 * width], self.config.forget_bias)
        if isinstance(module, LstmLmForCausalLM):
            nn.init.zeros_(module.head_bias)

    def get_input_embeddings(self):
        """Return the table of tokens."""
        return self.token_embedding

    def set_input_embeddings(self, value):
        """Replace the table of tokens."""
        self.token_embedding = value

    def run_layers(self, input_ids):
        """Return the last hidden states [B, L, D]."""
        x = self.token_embedding(input_ids)
        for layer in self.layers:
            x, _ = layer(self.drop(x))
        return self.drop(x)

    def forward(self, input_ids, attention_mask=None, **unused):
        """Return the last hidden states."""
        return BaseModelOutput(last_hidden_state=self.run_layers(input_ids))


class LstmLmForCausalLM(LstmLmModel, GenerationMixin):
    """Predicts the next token. Generation has no cache, so it reads the whole text at each step."""

    _keys_to_ignore_on_load_unexpected = None

    def add_head(self):
        """Make the output, whose table may be the input's."""
        config = self.config
        self.head_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.head = None
        if not config.tie_word_embeddings:
            self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, input_ids, attention_mask=None, labels=None, **unused):
        """Return logits [B, L, V] of the next tokens and, with labels, the mean loss.

        labels: int64 [B, L], the ids, -100 where a token is not scored.
        """
        table = self.token_embedding if self.head is None else self.head
        logits = self.run_layers(input_ids) @ table.weight.T + self.head_bias
        loss = None
        if labels is not None:
            loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **unused):
        """Return the arguments of a step of `generate`."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}
