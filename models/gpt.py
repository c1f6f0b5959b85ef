"""GPT (Radford et al. 2018): a Transformer's decoder alone, which learns language by telling the next word from all before it.

B batch   L length   P masked positions   D width   V vocabulary
"""

from functools import partial

import flax.linen as nn

from models.config.gpt import GptConfig
from models.layers.attention import Attention
from models.layers.cache import at
from models.layers.dropout import Dropout
from models.layers.heads import take_positions
from models.layers.linear import Embed
from models.layers.masks import Mask, causal_mask
from models.layers.mlp import Mlp, gelu_tanh
from models.layers.norms import LayerNorm
from models.layers.ops import PLAIN, Ops
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer

NORMAL = nn.initializers.normal(0.02)  # section 4.1


def make_layer(config, wiring, ops, residual_init=NORMAL):
    """Return the constructor of a layer; `residual_init` is of the kernels whose products are added to the residual."""
    c = config
    return partial(
        wiring,
        attention=partial(
            Attention,
            c.num_heads,
            kernel_init=NORMAL,
            out_init=residual_init,
            dropout=partial(Dropout, c.attention_dropout, ops=ops),
            ops=ops,
        ),
        mlp=partial(
            Mlp, c.mlp, act=gelu_tanh, kernel_init=NORMAL, down_init=residual_init, ops=ops
        ),
        norm=partial(LayerNorm, c.epsilon, ops=ops),
        dropout=partial(Dropout, c.dropout, ops=ops),
    )


class Embeddings(nn.Module):
    """word + position; the words' table is also what the next word is told by (section 3.1)."""

    config: GptConfig
    ops: Ops = PLAIN

    def setup(self):
        c = self.config
        self.token_embedding = Embed(c.vocab, c.width, NORMAL, self.ops)
        self.position_embedding = Embed(c.length, c.width, NORMAL)
        self.drop = Dropout(c.dropout, ops=self.ops)

    def __call__(self, token_ids, train, step=None):
        L, longest = token_ids.shape[1], self.config.length
        if L > longest:
            raise ValueError(
                f"a row of {L} tokens is longer than the {longest} positions of the model (model.length)"
            )
        x_BLD = self.token_embedding(token_ids) + at(self.position_embedding.embedding, L, step)
        return self.drop(x_BLD, deterministic=not train)


class Gpt(nn.Module):
    """token_ids: int32 [B, L] -> float32 logits [B, L, V] of the word behind each. Padding may stand on the right: nothing reads it."""

    config: GptConfig
    ops: Ops = PLAIN

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c, self.ops)
        self.decoder = Stack(
            make_layer(c, PostNormLayer, self.ops),
            c.depth,
            scan=c.scan,
            remat=c.remat,
            ops=self.ops,
        )

    def __call__(self, token_ids, train=False):
        return self.logits(self.states(token_ids, train))

    def states(self, token_ids, train=False, step=None, masked_positions=None):
        """What `logits` reads to tell the word behind each: [B, L, D], in which position l has read tokens up to l.

        step: where the tokens [B, 1] stand behind others that the cache holds, a `models.layers.cache.Step`.
        masked_positions: int32 [B, P], those before masked words. With them every position reads the whole row, and the states there
        are returned, [B, P, D] (Charpentier and Samuel 2024, section 3.1).
        """
        return take_positions(
            self.run_layers(token_ids, train, step, masked_positions), masked_positions
        )

    def run_layers(self, token_ids, train, step, masked_positions):
        """Return the last states at all positions [B, L, D]; arguments: as of `states`."""
        mask = causal_mask(step=step) if masked_positions is None else Mask()
        return self.decoder(self.embeddings(token_ids, train, step), train, mask=mask)

    def logits(self, x_BLD):
        """Scores of every word, float32 [B, L, V]."""
        return self.embeddings.token_embedding.attend(x_BLD)
