"""ELMo (Peters et al. 2018): a language model in each direction that reads words by characters.

    x = projection(highways(maxima of filters over characters))     section 3.4; Kim et al. 2016
    h_1, h_2 = two layers of LSTMs, forward and backward            section 3.1
    ELMo = gamma sum_j softmax(s)_j h_j, h_0 = [x; x]               equation 1

Both directions share the words and the softmax, and have LSTMs of their own. Sizes, clipping and
the order of the operations follow the released code.

B batch   L length   C characters of a word   N = B L words   E character width   T windows of a
word   W characters of a window   F filters   D width of a direction   S samples   V targets
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.elmo import ElmoConfig
from models.layers.cache import CARRY
from models.layers.dropout import Dropout
from models.layers.heads import TiedHead
from models.layers.linear import FAN_IN, Dense, Embed
from models.layers.mlp import ACTIVATIONS
from models.layers.model import Model
from models.layers.ops import PLAIN, Ops
from models.layers.recurrent.bidirectional import ForwardBackwardLstm, Layers

NUM_CHARACTERS = 261  # bytes, the ends of a sentence and of a word, and the padding after a word
SENTENCE_ENDS = (257, 258)  # characters of the beginning and of the end of a sentence


def init_characters(
    key: jax.Array, shape: Sequence[int], dtype: jnp.dtype = jnp.float32
) -> jax.Array:
    """Return numbers that are uniform between -1 and 1, as in the released code."""
    return jax.random.uniform(key, shape, dtype, -1.0, 1.0)


class Highway(nn.Module):
    """g relu(W x + b) + (1 - g) x, g = sigmoid(W_g x + b_g) (Srivastava et al. 2015)."""

    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_NF: jax.Array) -> jax.Array:
        """Return the output [N, F]. A new layer passes most of its input on: b_g is -2."""
        num_filters = x_NF.shape[-1]
        linear = partial(Dense, num_filters, kernel_init=FAN_IN, ops=self.ops)
        bias_F = self.param("gate_bias", nn.initializers.constant(-2.0), (num_filters,))
        gate_NF = linear(use_bias=False, name="gate")(x_NF)
        gate_NF = jax.nn.sigmoid(self.ops.add_bias(gate_NF, bias_F.astype(gate_NF.dtype)))
        return gate_NF * nn.relu(linear(name="transform")(x_NF)) + (1 - gate_NF) * x_NF


class WordReader(nn.Module):
    """The vectors of words, from their characters."""

    config: ElmoConfig
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, characters_BLC: jax.Array) -> jax.Array:
        """Return the vectors [B, L, D].

        Args:
          characters_BLC: the ids of characters, from 1; 0 where there is no word.
        """
        c, (B, L, C) = self.config, characters_BLC.shape
        characters_NC = characters_BLC.reshape(B * L, C).astype(jnp.int32)
        embed = Embed(
            NUM_CHARACTERS,
            c.character_width,
            init_characters,
            self.ops,
            name="character_embedding",
        )
        # An id outside of the table gives NaN, also below it.
        x_NCE = embed(jnp.where(characters_NC > 0, characters_NC - 1, 0))
        is_character_NC1 = (characters_NC != 0)[..., None]
        x_NCE = jnp.where(is_character_NC1, x_NCE, jnp.zeros((), x_NCE.dtype))
        maxima = []
        for window, number in c.character_filters:
            convolve = Dense(
                number,
                num_contracting_dims=2,
                kernel_init=FAN_IN,
                ops=self.ops,
                name=f"window_{window}",
            )
            last = C - window + 1
            x_NTWE = jnp.stack([x_NCE[:, i : i + last] for i in range(window)], axis=2)
            maxima.append(convolve(x_NTWE).max(axis=1))
        x_NF = ACTIVATIONS[c.activation](jnp.concatenate(maxima, axis=-1))
        for i in range(c.highways):
            x_NF = Highway(self.ops, name=f"highway_{i}")(x_NF)
        x_ND = Dense(c.width, kernel_init=FAN_IN, ops=self.ops, name="projection")(x_NF)
        return x_ND.reshape(B, L, c.width)


class Mix(nn.Module):
    """gamma sum_j softmax(s)_j h_j: a task's own weights of the layers (equation 1)."""

    @nn.compact
    def __call__(self, states: list[jax.Array]) -> jax.Array:
        """Return the weighted sum of the states, each [B, L, 2 D]. New weights are equal."""
        weights = self.param("weights", nn.initializers.zeros, (len(states),))
        scale = self.param("scale", nn.initializers.ones, ())
        shares = jax.nn.softmax(weights.astype(jnp.float32)) * scale.astype(jnp.float32)
        mixed = jnp.zeros((), states[0].dtype)
        for share, x in zip(shares, states, strict=True):
            mixed += share.astype(x.dtype) * x
        return mixed


class LanguageStates(NamedTuple):
    """What the losses of both directions are computed of.

    Attributes:
      forward_BLD, backward_BLD: the last layer, for `compute_logits`.
      forward_labels_BL, backward_labels_BL: the targets, words without a target as [UNK].
      forward_scores, backward_scores: float32 [B, L, 1 + S] in training with samples, whose softmax
        has the probability of the target among them; else None.
    """

    forward_BLD: jax.Array
    backward_BLD: jax.Array
    forward_labels_BL: jax.Array | None
    backward_labels_BL: jax.Array | None
    forward_scores: jax.Array | None
    backward_scores: jax.Array | None


class Elmo(Model):
    """The language models of both directions; fine-tuning uses them as an encoder of words.

    The collection `CARRY` has the states after the last word that each direction has read in each
    row. Without it a row begins with zeros.
    """

    encodes, carried = True, (CARRY,)
    config: ElmoConfig

    def setup(self) -> None:
        """Make words, layers, softmax and mix."""
        c = self.config
        self.words = WordReader(c, self.ops)
        sizes = (c.cells, c.width, c.depth, c.clip, c.residual, c.dropout)
        self.bilm = ForwardBackwardLstm(*sizes, self.ops)
        self.mix = Mix()
        self.drop = Dropout(c.dropout, ops=self.ops)
        self.target_embedding = Embed(
            c.vocab, c.width, nn.initializers.normal(c.width**-0.5), self.ops
        )
        self.lm_head = TiedHead(self.ops)

    def __call__(
        self,
        token_ids: jax.Array,
        backward_ids: jax.Array | None = None,
        is_continued: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the outputs that depend on all parameters, for initialisation and inspection.

        Arguments: see `compute_states`; without `backward_ids` both directions read `token_ids`.

        Returns:
          The logits of the words after and before each word, float32 [B, L, V] each, and the mix of
          the layers [B, L, 2 D].
        """
        layers = self.read_words(token_ids, backward_ids, is_continued, train)
        forward_BLD, backward_BLD = self.drop_last(layers, train)
        logits = self.compute_logits(forward_BLD), self.compute_logits(backward_BLD)
        return *logits, self.mix_layers(layers)

    def read_words(
        self,
        token_ids: jax.Array,
        backward_ids: jax.Array | None,
        is_continued: jax.Array | None,
        train: bool,
    ) -> Layers:
        """Return the words and the layers of both directions. Arguments: as `compute_states`."""
        forward_BLD = self.words(token_ids)
        backward_BLD = forward_BLD if backward_ids is None else self.words(backward_ids)
        return self.bilm(forward_BLD, backward_BLD, train, is_continued=is_continued)

    def drop_last(self, layers: Layers, train: bool) -> list[jax.Array]:
        """Return the last layer of each direction, with dropout in training."""
        return [self.drop(x_BLD, deterministic=not train) for x_BLD in layers[-1]]

    def mix_layers(self, layers: Layers) -> jax.Array:
        """Return the mix of the layers [B, L, 2 D]."""
        return self.mix([jnp.concatenate(layer, axis=-1) for layer in layers])

    def compute_states(
        self,
        token_ids: jax.Array,
        backward_ids: jax.Array,
        labels: jax.Array | None = None,
        backward_labels: jax.Array | None = None,
        is_continued: jax.Array | None = None,
        train: bool = False,
    ) -> LanguageStates:
        """Return the states of both directions and what they predict.

        Args:
          token_ids: the characters [B, L, C] of the words that the forward direction reads.
          backward_ids: the ids of the backward direction, which reads the last word first.
          labels: int32 [B, L], the id of the word after each; None: nothing is predicted.
          backward_labels: int32 [B, L], the id of the word before each of `backward_ids`.
          is_continued: bool [B], False where a row begins with zeros; None: all rows continue.
          train: whether dropout is applied and words are sampled.
        """
        c = self.config
        states = self.drop_last(
            self.read_words(token_ids, backward_ids, is_continued, train), train
        )
        if labels is None or backward_labels is None:
            return LanguageStates(states[0], states[1], None, None, None, None)
        targets = [jnp.where(ids < c.vocab, ids, c.unk_id) for ids in (labels, backward_labels)]
        scores: list[Any] = [None, None]
        if train and c.samples:
            scores = [self.score_samples(*pair) for pair in zip(states, targets, strict=True)]
        return LanguageStates(*states, *targets, *scores)

    def compute_logits(self, x_BLD: jax.Array) -> jax.Array:
        """Return the logits of the targets, float32 [B, L, V]."""
        return self.lm_head(x_BLD, self.target_embedding)

    def score_samples(self, x_BLD: jax.Array, labels_BL: jax.Array) -> jax.Array:
        """Return the scores of the targets and of samples, [B, L, 1 + S], the target's first.

        A score is a logit minus the log-probability that its word is among S draws, so that the
        softmax is the probability that a word of the set is the target and the others were
        drawn (Jean et al. 2015, section 3, and the sampler of the released code). A word that is
        drawn again, or is the target, does not count. The word k is drawn with the probability
        log((k + 2) / (k + 1)) / log(V + 1), since ids are in the order of frequency.
        """
        V, S = self.config.vocab, self.config.samples
        uniform_S = jax.random.uniform(self.make_rng("dropout"), (S,))
        samples_S = (jnp.exp(uniform_S * jnp.log(V + 1.0)) - 1).astype(jnp.int32)
        samples_S = jnp.sort(jnp.clip(samples_S, 0, V - 1))
        is_repeated_S = jnp.pad(samples_S[1:] == samples_S[:-1], (1, 0))

        def compute_log_inclusion(ids: jax.Array) -> jax.Array:
            """Return the log-probability that an id is among the S draws."""
            probability = jnp.log1p(1 / (ids.astype(jnp.float32) + 1)) / jnp.log(V + 1.0)
            return jnp.log(-jnp.expm1(S * jnp.log1p(-probability)))

        bias_V = self.lm_head.variables["params"]["bias"].astype(jnp.float32)
        x_BLD, table_VD = x_BLD.astype(jnp.float32), self.target_embedding.embedding
        own_BLD = jnp.take(table_VD, labels_BL, axis=0).astype(jnp.float32)
        own_BL = (x_BLD * own_BLD).sum(axis=-1) + bias_V[labels_BL]
        own_BL -= compute_log_inclusion(labels_BL)
        others_SD = jnp.take(table_VD, samples_S, axis=0).astype(jnp.float32)
        others_BLS = x_BLD @ others_SD.T + bias_V[samples_S] - compute_log_inclusion(samples_S)
        is_left_out_BLS = (samples_S == labels_BL[..., None]) | is_repeated_S
        others_BLS = jnp.where(is_left_out_BLS, jnp.finfo(jnp.float32).min, others_BLS)
        return jnp.concatenate([own_BL[..., None], others_BLS], axis=-1)

    def encode(
        self,
        token_ids: jax.Array,
        attention_mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the mix of the layers [B, L, 2 D], and its mean over the words of a row [B, 2 D].

        Args:
          token_ids: the characters [B, L, C] of the words.
          attention_mask: bool [B, L], False on padding, which is not read.
          token_type_ids: not used: two texts of a row are read as one.
          train: whether dropout is applied.
        """
        is_read_BL = attention_mask.astype(bool)
        x_BLD = self.words(token_ids)
        # Layers that are not trained have no dropout: the representation is a function of the text.
        is_dropping = train and not self.config.frozen
        layers = self.bilm(x_BLD, x_BLD, is_dropping, attention_mask=is_read_BL)
        mixed_BLD = self.mix_layers(layers)
        is_word_BL = is_read_BL
        for end in SENTENCE_ENDS:
            is_word_BL &= token_ids[..., 1] != end
        num_B1 = jnp.maximum(is_word_BL.sum(axis=1, keepdims=True), 1).astype(jnp.float32)
        words_BLD = jnp.where(is_word_BL[..., None], mixed_BLD.astype(jnp.float32), 0.0)
        mean_BD = (words_BLD.sum(axis=1) / num_B1).astype(mixed_BLD.dtype)
        return mixed_BLD, mean_BD
